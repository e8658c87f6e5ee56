"""Copies of tensors between the host and a device, simulated and real."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.gpu import StreamHandle
from headrace.resources import UnboundedAllocator
from headrace.tensor.copies import HostMemory, copy, copy_from_pinned, read_on_host, upload
from tests.gpu.bench import Bench

VALUES = np.random.default_rng(5).integers(0, 1 << 16, (300, 400, 3), dtype=np.uint16)


@pytest.fixture
def stream(of_this_process: Bench) -> StreamHandle:
    return StreamHandle(of_this_process.device.create_stream())


def test_plain_memory_goes_to_the_device_and_back(stream: StreamHandle) -> None:
    source = VALUES.copy()
    tensor = upload(source, stream)
    source[...] = 0  # the copy has read it
    (array,) = read_on_host([tensor], stream)
    assert (array == VALUES).all()
    assert tensor.device.is_cuda


@pytest.mark.parametrize("kind", ["host", "device", "system"])
def test_a_tensor_of_an_allocator_is_filled_from_every_kind_of_memory(
    stream: StreamHandle, kind: str
) -> None:
    allocator = UnboundedAllocator()
    source, target = (
        allocator.allocate_tensor(VALUES.shape, VALUES.dtype, storage, stream=stream)
        for storage in (kind, "device")
    )
    if kind == "device":
        copy(source, VALUES, stream)
    else:
        np.asarray(source)[...] = VALUES
    copy(target, source, stream)
    assert (read_on_host([target], stream)[0] == VALUES).all()


def test_pinned_memory_that_is_let_go_is_kept_until_the_copy_has_read_it(stream: StreamHandle) -> None:
    memory = HostMemory()
    target = upload(np.zeros_like(VALUES), stream)
    for round_ in range(8):
        pinned = memory.array(VALUES.shape, VALUES.dtype)
        pinned[...] = VALUES + round_
        copy_from_pinned(target, pinned, stream)
        del pinned
        back = memory.copy(target, stream)
        stream.stream.sync()
        assert (back == VALUES + round_).all()


def test_copies_to_the_host_use_pinned_memory_again_once_it_is_let_go(stream: StreamHandle) -> None:
    memory = HostMemory()
    tensors = [upload(np.full(size, size, np.float32), stream) for size in (6, 4, 80)]
    places = []
    for tensor, size in zip(tensors, (6, 4, 80), strict=True):
        (array,) = read_on_host([tensor], stream, memory)
        assert (array == size).all()
        places.append(array.ctypes.data)
        del array
    assert places[0] == places[1] != places[2], "the second fits in what the first had"
    first, second = (read_on_host([tensors[0]], stream, memory)[0] for _ in range(2))
    assert not np.shares_memory(first, second)
