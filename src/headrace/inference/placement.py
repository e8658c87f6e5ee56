"""Placement: tensors in the form that a model takes, and brought to the device where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.extras import installing
from headrace.gpu import StreamHandle
from headrace.inference.errors import InferenceError
from headrace.tensor import DLDeviceType, Tensor, as_tensor
from headrace.tensor.capsule import exporter_of
from headrace.tensor.copies import copy, simulate, simulated_memory
from headrace.tensor.description import row_major

_DEVICE_TYPES = (DLDeviceType.CUDA, DLDeviceType.CUDA_MANAGED)
_COPY_SECONDS = 20e-6  # of a simulated kernel that copies


def in_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a C-contiguous tensor in another shape with the same elements."""
    if tensor.shape == shape:
        return tensor
    strides = row_major(shape, tensor.itemsize)
    description = (tensor.data, shape, strides, tensor.dl_dtype, tensor.device, tensor.is_readonly)
    return Tensor._create(description, tensor, exporter_of(description, tensor), tensor._pending_work)


def to_device(tensor: Tensor, stream: StreamHandle, allocator: Any, operator: str) -> Tensor:
    """Return a C-contiguous tensor in device memory: the given one, or a copy made in the order of a stream."""
    is_here = tensor.device.device_type in _DEVICE_TYPES
    if is_here and tensor.is_contiguous():
        return tensor
    if is_here and stream.backend.runs_cuda:
        return _contiguous_on_gpu(tensor, stream)
    target: Tensor = allocator.allocate_tensor(tensor.shape, tensor.dtype, stream=stream, operator=operator)
    if is_here:
        views = simulated_memory(target), simulated_memory(tensor)
        simulate("contiguous", _COPY_SECONDS, stream, lambda: np.copyto(*views))
        return target
    if not tensor.is_contiguous():
        if tensor.device.is_cuda:
            stream.stream.sync()  # NumPy reads pinned memory at once
        tensor = as_tensor(np.ascontiguousarray(tensor))
    copy(target, tensor, stream)
    return target


def _contiguous_on_gpu(tensor: Tensor, stream: StreamHandle) -> Tensor:
    """Return a C-contiguous copy of a strided tensor on a GPU, which takes a kernel."""
    try:
        from headrace.tensor.libraries.cupy import contiguous_copy
    except ImportError as error:
        raise InferenceError(
            f"{tensor!r} is strided, and only CuPy could copy it on the GPU ({error}): {installing('cupy')}, "
            "or send a C-contiguous tensor"
        ) from error
    return as_tensor(contiguous_copy(tensor, stream), stream=stream)
