"""Tensors brought to where a model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import as_tensor, gpu
from penstock.gpu import sim
from penstock.inference import InferenceError
from penstock.inference.placement import (
    DeviceMemory,
    host_array,
    in_shape,
    simulated_view,
    to_device,
    to_host,
)
from tests.harness import MS, launch


@pytest.fixture
def stream(machine: sim.Machine) -> gpu.StreamHandle:
    return gpu.StreamHandle(sim.Device(0).create_stream())


def on_device(array: np.ndarray, stream: Any) -> Any:
    return to_device(as_tensor(array), stream, DeviceMemory(), "test")


def test_a_copy_from_host_memory_has_read_it_when_the_call_returns(stream: gpu.StreamHandle) -> None:
    frame = np.array([1, 2, 3])
    tensor = on_device(frame, stream)
    frame[:] = 0
    assert simulated_view(tensor).tolist() == [0, 0, 0]  # it takes effect later, as on a GPU
    stream.stream.sync()
    assert simulated_view(tensor).tolist() == [1, 2, 3]


def test_a_copy_to_the_host_comes_after_the_work_on_the_stream(stream: gpu.StreamHandle) -> None:
    tensor = DeviceMemory().allocate_tensor((2, 2), np.int32, stream=stream)
    view = simulated_view(tensor)
    launch(stream, MS, lambda: view.fill(7))
    (copy,) = to_host([tensor], stream)
    assert copy.tolist() == [[7, 7], [7, 7]]


def test_pinned_memory_is_copied_in_the_order_of_the_stream(stream: gpu.StreamHandle) -> None:
    buffer = sim.LegacyPinnedMemoryResource().allocate(4)
    pinned: Any = np.from_dlpack(buffer)
    launch(stream, MS, lambda: pinned.fill(5))
    tensor = to_device(as_tensor(buffer), stream, DeviceMemory(), "test")
    stream.stream.sync()
    assert simulated_view(tensor).tolist() == [5] * 4


def test_strided_tensors_arrive_contiguous(stream: gpu.StreamHandle) -> None:
    frame = np.arange(6, dtype=np.float32).reshape(2, 3).T
    tensor = on_device(frame, stream)
    stream.stream.sync()
    assert tensor.is_contiguous()
    assert simulated_view(tensor).tolist() == frame.tolist()
    assert host_array(as_tensor(frame), (3, 2)).flags.c_contiguous


def test_empty_tensors_pass_both_ways(stream: gpu.StreamHandle) -> None:
    (copy,) = to_host([on_device(np.zeros((0, 3), np.float32), stream)], stream)
    assert copy.shape == (0, 3)


def test_a_tensor_takes_another_shape_without_a_copy(stream: gpu.StreamHandle) -> None:
    tensor = on_device(np.arange(6, dtype=np.float32), stream)
    other = in_shape(tensor, (1, 2, 3))
    assert (other.shape, other.data) == ((1, 2, 3), tensor.data)
    assert in_shape(tensor, (6,)) is tensor
    stream.stream.sync()
    assert simulated_view(other).tolist() == [[[0, 1, 2], [3, 4, 5]]]


def test_memory_of_a_real_gpu_is_refused_on_a_simulated_device(stream: gpu.StreamHandle) -> None:
    class Elsewhere:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "|u1", "data": (4096, False), "version": 3}  # noqa: RUF012

    with pytest.raises(
        InferenceError, match="not memory of the simulated device; a GPU's memory needs PENSTOCK_DEVICE"
    ):
        simulated_view(as_tensor(Elsewhere()))
