"""Placement: tensors in the form that a model takes, and brought to the device where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.extras import installing
from headrace.inference.errors import InferenceError
from headrace.tensor import DLDeviceType, Tensor, as_tensor
from headrace.tensor.copies import copy, simulate, simulated_memory
from headrace.tensor.description import row_major
from headrace.tensor.memory_exporter import exporter_of

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle

_DEVICE_TYPES = (DLDeviceType.CUDA, DLDeviceType.CUDA_MANAGED)
_COPY_SECONDS = 20e-6  # of a simulated kernel that copies


def is_on_device(tensor: Tensor) -> bool:
    """Return whether a model on the GPU can read a tensor as fast as any."""
    return tensor.device.device_type in _DEVICE_TYPES


def in_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a C-contiguous tensor in another shape with the same elements."""
    if tensor.shape == shape:
        return tensor
    strides = row_major(shape, tensor.itemsize)
    description = (tensor.data, shape, strides, tensor.dl_dtype, tensor.device, tensor.is_readonly)
    return Tensor._create(description, tensor, exporter_of(description, tensor), tensor._pending_work)


def host_array(tensor: Tensor, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a C-contiguous array of a tensor in host memory: a view, or a copy if the tensor is strided."""
    array = np.asarray(tensor)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array if array.shape == shape else array.reshape(shape)


def to_device(tensor: Tensor, stream: StreamHandle, allocator: Any, operator: str) -> Tensor:
    """Return a C-contiguous copy of a tensor in device memory, made in the order of a stream."""
    if is_on_device(tensor):
        return _contiguous_on_device(tensor, stream, allocator, operator)
    source = tensor
    if not tensor.is_contiguous():
        if tensor.device.is_cuda:
            stream.stream.sync()  # NumPy reads pinned memory at once
        source = as_tensor(np.ascontiguousarray(np.asarray(tensor)))
    target: Tensor = allocator.allocate_tensor(source.shape, source.dtype, stream=stream, operator=operator)
    copy(target, source, stream)
    return target


def _contiguous_on_device(tensor: Tensor, stream: StreamHandle, allocator: Any, operator: str) -> Tensor:
    """Return a C-contiguous copy of a strided tensor in device memory, which takes a kernel."""
    if not stream.backend.runs_cuda:
        target: Tensor = allocator.allocate_tensor(
            tensor.shape, tensor.dtype, stream=stream, operator=operator
        )
        views = simulated_memory(target), simulated_memory(tensor)
        simulate("contiguous", _COPY_SECONDS, stream, lambda: np.copyto(*views))
        return target
    try:
        from headrace.tensor.libraries.cupy import contiguous_copy
    except ImportError as error:
        raise InferenceError(
            f"{tensor!r} is strided, and only CuPy could copy it on the GPU ({error}): {installing('cupy')}, "
            "or send a C-contiguous tensor"
        ) from error
    return as_tensor(contiguous_copy(tensor, stream), stream=stream)
