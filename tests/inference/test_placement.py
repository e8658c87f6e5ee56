"""Tensors brought to where a model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import as_tensor, gpu
from headrace.gpu import sim
from headrace.inference.running_model import in_shape, to_device
from headrace.resources import UnboundedAllocator
from headrace.tensor.copies import simulated_memory
from tests.harness import MS, launch
from tests.operators.allocators import CountingAllocator
from tests.operators.device_arrays import DeviceArray


@pytest.fixture
def stream(machine: sim.Machine) -> gpu.StreamHandle:
    return gpu.StreamHandle(sim.Device(0).create_stream())


def on_device(array: np.ndarray, stream: Any) -> Any:
    return to_device(as_tensor(array), stream, UnboundedAllocator(), "test")


def test_pinned_memory_is_copied_in_the_order_of_the_stream(stream: gpu.StreamHandle) -> None:
    buffer = sim.LegacyPinnedMemoryResource().allocate(4)
    pinned: Any = np.from_dlpack(buffer)
    launch(stream, MS, lambda: pinned.fill(5))
    tensor = to_device(as_tensor(buffer), stream, UnboundedAllocator(), "test")
    stream.stream.sync()
    assert simulated_memory(tensor).tolist() == [5] * 4


def test_strided_tensors_arrive_contiguous(stream: gpu.StreamHandle) -> None:
    frame = np.arange(6, dtype=np.float32).reshape(2, 3).T
    tensor = on_device(frame, stream)
    stream.stream.sync()
    assert tensor.is_contiguous()
    assert simulated_memory(tensor).tolist() == frame.tolist()


def test_a_tensor_takes_another_shape_without_a_copy(stream: gpu.StreamHandle) -> None:
    tensor = on_device(np.arange(6, dtype=np.float32), stream)
    other = in_shape(tensor, (1, 2, 3))
    assert (other.shape, other.data) == ((1, 2, 3), tensor.data)
    assert in_shape(tensor, (6,)) is tensor
    stream.stream.sync()
    assert simulated_memory(other).tolist() == [[[0, 1, 2], [3, 4, 5]]]


def test_a_strided_tensor_of_the_device_is_copied_there_by_the_allocator(stream: gpu.StreamHandle) -> None:
    frame = np.arange(8, dtype=np.float32)
    tensor = on_device(frame, stream)
    strided = DeviceArray(tensor.owner.buffer, (4,), frame.dtype, (8,))
    allocator = CountingAllocator()
    copied = to_device(as_tensor(strided), stream, allocator, "net")
    stream.stream.sync()
    assert simulated_memory(copied).tolist() == frame[::2].tolist()
    assert allocator.requests == [((4,), "float32", 1, "net")]
