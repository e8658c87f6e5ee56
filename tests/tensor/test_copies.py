"""Copies of tensors between host and device: order, gaps, and memory that is used again."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import as_tensor
from headrace.gpu import StreamHandle, sim
from headrace.resources import UnboundedAllocator
from headrace.tensor.copies import (
    HostMemory,
    copy,
    copy_from_pinned,
    read_on_host,
    simulated_memory,
    upload,
)
from tests.harness import MS, launch
from tests.operators.device_arrays import DeviceArray, device_array

RNG = np.random.default_rng(8)


@pytest.fixture
def stream(machine: sim.Machine) -> StreamHandle:
    return StreamHandle(sim.Device(0).create_stream())


def test_a_copy_from_host_memory_has_read_it_when_the_call_returns(stream: StreamHandle) -> None:
    frame = np.array([1, 2, 3])
    tensor = upload(frame, stream)
    frame[:] = 0
    assert simulated_memory(tensor).tolist() == [0, 0, 0], "it takes effect later, as on a GPU"
    stream.stream.sync()
    assert simulated_memory(tensor).tolist() == [1, 2, 3]


def test_pinned_memory_is_copied_in_the_order_of_the_stream(stream: StreamHandle) -> None:
    pinned = UnboundedAllocator().allocate_tensor(4, "uint8", "host", stream=stream)
    target = UnboundedAllocator().allocate_tensor(4, "uint8", "device", stream=stream)
    launch(stream, MS, lambda: np.asarray(pinned).fill(5))
    copy(target, pinned, stream)
    assert read_on_host([target], stream)[0].tolist() == [5] * 4


def test_a_read_comes_after_the_work_on_the_stream_and_needs_one(stream: StreamHandle) -> None:
    allocator = UnboundedAllocator()
    kinds = ("device", "host", "system")
    tensors = [allocator.allocate_tensor((2, 2), np.int32, kind, stream=stream) for kind in kinds]
    views = [simulated_memory(tensor) for tensor in tensors]
    launch(stream, MS, lambda: [view.fill(7) for view in views])
    arrays = read_on_host(tensors, stream)
    assert [array.tolist() for array in arrays] == [[[7, 7], [7, 7]]] * 3
    assert arrays[1].ctypes.data == tensors[1].data, "memory of the host is read in place"
    assert read_on_host(tensors[2:], None)[0].tolist() == [[7, 7], [7, 7]]
    with pytest.raises(ValueError, match="is on a device, and only a stream can copy it"):
        read_on_host(tensors, None)


def test_plain_memory_is_read_without_waiting_for_the_device(
    stream: StreamHandle, machine: sim.Machine
) -> None:
    launch(stream, MS, lambda: None)
    read_on_host([as_tensor(np.ones(3))], stream)
    assert machine.now == 0


def test_tensors_that_do_not_fit_are_refused(stream: StreamHandle) -> None:
    target = upload(np.zeros(6, np.uint8), stream)
    with pytest.raises(ValueError, match="differ in size"):
        copy(target, np.zeros(5, np.uint8), stream)
    with pytest.raises(ValueError, match="must be C-contiguous"):
        copy(target, np.zeros(12, np.uint8)[::2], stream)


def test_a_copy_holds_what_was_written_before_it_in_the_order_of_the_stream(stream: StreamHandle) -> None:
    memory = HostMemory()
    values = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    array = device_array(stream, values)
    copied = memory.copy(as_tensor(array), stream)
    launch(stream, MS, lambda out: out.fill(0), array.buffer)  # later work does not change it
    stream.stream.sync()
    assert (copied == values).all()


@pytest.mark.parametrize(
    "view", ["[::2]", "[:, ::3]", "[::-1]", "[:, :, 1]", "[1:5, 2:3, ::-1]", "[..., None]"]
)
def test_a_copy_of_a_tensor_with_gaps_has_its_values(stream: StreamHandle, view: str) -> None:
    values = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint16)
    array = device_array(stream, values)
    part = eval(f"values{view}")
    offset = part.__array_interface__["data"][0] - values.__array_interface__["data"][0]
    gaps = DeviceArray(array.buffer, part.shape, part.dtype, part.strides, offset)
    copied = HostMemory().copy(as_tensor(gaps), stream)
    stream.stream.sync()
    assert (copied == part).all()


def test_an_empty_tensor_is_copied(stream: StreamHandle) -> None:
    array = device_array(stream, np.zeros((4, 2), np.float32))
    empty = DeviceArray(array.buffer, (0, 2), np.dtype("f4"))
    assert HostMemory().copy(as_tensor(empty), stream).shape == (0, 2)


def test_memory_is_used_again_once_nobody_refers_to_it(machine: sim.Machine) -> None:
    memory = HostMemory()
    one, two = memory.array((10,), np.dtype("u1")), memory.array((10,), np.dtype("u1"))
    first, second = one.ctypes.data, two.ctypes.data
    assert first != second
    view = one[2:]
    del one
    third = memory.array((10,), np.dtype("u1"))
    assert third.ctypes.data not in (first, second)
    del view
    assert memory.array((8,), np.dtype("u1")).ctypes.data == first


def test_a_buffer_on_the_device_is_filled_in_order(stream: StreamHandle) -> None:
    memory = HostMemory()
    target = as_tensor(device_array(stream, np.zeros((4, 4), np.uint8)))
    source = memory.array((4, 4), np.dtype("u1"))
    source[...] = RNG.integers(0, 256, (4, 4), dtype=np.uint8)
    expected = source.copy()
    copy_from_pinned(target, source, stream)
    back = memory.copy(target, stream)
    stream.stream.sync()
    assert (back == expected).all()
    gaps = as_tensor(DeviceArray(target.owner.buffer, (4, 2), np.dtype("u1"), (4, 2)))
    with pytest.raises(ValueError, match="must be contiguous"):
        copy_from_pinned(gaps, source, stream)
