"""RMM's buffers and arrays of RMM's memory, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import as_tensor, gpu
from headrace.tensor import DLDevice, DLDeviceType

cupy = pytest.importorskip("cupy")
rmm = pytest.importorskip("rmm")


pytestmark = pytest.mark.usefixtures("real")


def test_a_buffer_is_a_tensor_of_bytes() -> None:
    buffer = rmm.DeviceBuffer.to_device(bytes(range(100)))
    tensor = as_tensor(buffer)
    assert (tensor.shape, tensor.dtype, tensor.data) == ((100,), np.uint8, buffer.ptr)
    assert tensor.device == DLDevice(DLDeviceType.CUDA, 0)
    assert tensor.owner is buffer
    for taken in (cupy.asarray(tensor), cupy.from_dlpack(tensor)):
        assert taken.data.ptr == buffer.ptr
        assert taken.get().tolist() == list(range(100))


def test_an_empty_buffer_is_an_empty_tensor() -> None:
    assert as_tensor(rmm.DeviceBuffer(size=0)).shape == (0,)


def test_a_buffer_is_filled_from_a_tensor() -> None:
    given = cupy.arange(64, dtype=cupy.uint8)
    cupy.cuda.get_current_stream().synchronize()
    buffer = rmm.DeviceBuffer(size=64)
    buffer.copy_from_device(as_tensor(given))
    assert buffer.copy_to_host().tolist() == list(range(64))


def test_a_buffer_is_made_on_a_stream_of_headrace(real: Any) -> None:
    from rmm.pylibrmm.stream import Stream

    handle = gpu.StreamHandle(real.device.create_stream())
    stream = Stream(handle)
    assert stream.__cuda_stream__()[1] == handle
    buffer = rmm.DeviceBuffer.to_device(b"abc", stream=stream)
    stream.synchronize()
    assert cupy.asarray(as_tensor(buffer)).get().tolist() == list(b"abc")
