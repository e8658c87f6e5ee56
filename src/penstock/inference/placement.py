"""Placement: tensors brought to where a model runs, and memory for its results.

A model runs on the host, on a GPU, or on the host for a simulated device. Copies are submitted to the operator's
stream. Only a copy to the host ends with a wait: whoever reads host memory does not ask a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import gpu
from penstock.inference.errors import InferenceError
from penstock.tensor import DLDevice, DLDeviceType, Tensor, as_tensor
from penstock.tensor.types import element_from_name

if TYPE_CHECKING:
    from penstock.gpu import StreamHandle

__all__ = ["DeviceMemory", "host_array", "in_shape", "is_on_device", "simulated_view", "to_device", "to_host"]

_DEVICE_TYPES = (DLDeviceType.CUDA, DLDeviceType.CUDA_MANAGED)
_COPY_SECONDS = 20e-6  # of a simulated copy


def is_on_device(tensor: Tensor) -> bool:
    """Return whether a model on the GPU can read a tensor as fast as any."""
    return tensor.device.device_type in _DEVICE_TYPES


def in_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a C-contiguous tensor in another shape with the same elements."""
    if tensor.shape == shape:
        return tensor
    strides = _row_major(shape, tensor.itemsize)
    description = (tensor.data, shape, strides, tensor.dl_dtype, tensor.device, tensor.is_readonly)
    exporter = None
    if gpu.backend() == "cuda":
        exporter = _cuda_view(Tensor._create(description, tensor, None, None))
    return Tensor._create(description, tensor, exporter, tensor._pending_work)


def host_array(tensor: Tensor, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a C-contiguous array of a tensor in host memory: a view, or a copy if the tensor is strided."""
    array = np.asarray(tensor)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array if array.shape == shape else array.reshape(shape)


def to_host(
    tensors: Sequence[Tensor], stream: StreamHandle, staging: dict[int, Any] | None = None
) -> list[np.ndarray[Any, Any]]:
    """Return tensors of the device as arrays that the host can read; wait for the stream once.

    Device memory is copied. Pinned and managed memory is read in place.

    Parameters
    ----------
    staging
        Pinned memory of the last call, which is used again: pinning memory, and releasing it, stops the device.
        Arrays of that call are overwritten. Without it, each array has memory of its own.
    """
    staging = {} if staging is None else staging
    copies = [
        None if tensor.device.is_host else _submit_copy_to_host(tensor, stream, staging, place)
        for place, tensor in enumerate(tensors)
    ]
    stream.stream.sync()
    return [
        np.asarray(tensor if copy is None else copy) for copy, tensor in zip(copies, tensors, strict=True)
    ]


def to_device(tensor: Tensor, stream: StreamHandle, allocator: Any, operator: str) -> Tensor:
    """Return a C-contiguous copy of a tensor in device memory, made in the order of a stream."""
    if is_on_device(tensor):
        return _contiguous_on_device(tensor, stream)
    source = tensor
    if not tensor.is_contiguous():
        if tensor.device.is_cuda:
            stream.stream.sync()  # NumPy reads pinned memory at once
        source = as_tensor(np.ascontiguousarray(np.asarray(tensor)))
    target: Tensor = allocator.allocate_tensor(source.shape, source.dtype, stream=stream, operator=operator)
    if stream.is_simulated:
        view = simulated_view(source)
        _simulate_copy(stream, simulated_view(target), view if source.device.is_cuda else view.copy())
    elif source.nbytes:
        # A copy from pageable memory has read its source when the call returns; pinned memory was received, and
        # what was received is kept.
        _buffer(target.data, source.nbytes, target).copy_from(
            _buffer(source.data, source.nbytes, source), stream=stream.stream
        )
    return target


def simulated_view(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return the memory of a tensor on a simulated device, for the effect of a kernel.

    It is the memory, not its owner: what is freed too early is reused, as on a GPU.
    """
    from penstock.gpu import sim

    if tensor.device.is_host:
        return np.asarray(tensor)
    owner = tensor.owner
    if isinstance(owner, Tensor):  # the same memory in another shape
        owner = owner.owner
    if isinstance(owner, sim.Buffer):
        memory = sim.host_view(owner)
    elif hasattr(owner, "__simulated_memory__"):
        memory = owner.__simulated_memory__()
    else:
        raise InferenceError(
            f"{tensor!r} is not memory of the simulated device; a GPU's memory needs PENSTOCK_DEVICE=cuda"
        )
    return np.ndarray(tensor.shape, tensor.dtype, memory, tensor.data - memory.ctypes.data, tensor.strides)


class DeviceMemory:
    """Allocates from the device's own pool, in the order of a stream, where the program gives no allocator."""

    def allocate_tensor(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        storage_type: int = 1,
        *,
        stream: StreamHandle | None = None,
        operator: str = "",
    ) -> Tensor:
        """Return a C-contiguous tensor in device memory."""
        assert stream is not None
        kind = np.dtype(dtype)
        device: Any = stream.stream.device
        buffer = device.allocate(max(prod(shape) * kind.itemsize, 1), stream=stream.stream)
        exporter = None
        if not stream.is_simulated:
            from cuda.core.utils import StridedMemoryView

            exporter = StridedMemoryView.from_buffer(buffer, shape, dtype=kind)
        where = DLDevice(DLDeviceType.CUDA, device.device_id)
        strides = _row_major(shape, kind.itemsize)
        description = (int(buffer.handle), tuple(shape), strides, element_from_name(kind.name), where, False)
        return Tensor._create(description, buffer, exporter, None)


def _simulate_copy(stream: StreamHandle, target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    from penstock.gpu import sim

    kernel = sim.Kernel("copy", _COPY_SECONDS, lambda: np.copyto(target, source))
    sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel)


def _submit_copy_to_host(
    tensor: Tensor, stream: StreamHandle, staging: dict[int, Any], place: int
) -> np.ndarray[Any, Any]:
    """Submit the copy of a tensor to host memory, and return an array of it, which is filled later."""
    if stream.is_simulated:
        copy = np.empty(tensor.shape, tensor.dtype)
        _simulate_copy(stream, copy, simulated_view(tensor))
        return copy
    span = 0  # with the gaps between the elements of a strided tensor
    if tensor.size:
        steps = zip(tensor.shape, tensor.strides, strict=True)
        span = tensor.itemsize + sum((extent - 1) * stride for extent, stride in steps)
    pinned: Any = staging.get(place)
    if pinned is None or pinned.size < span:
        pinned = staging[place] = gpu.LegacyPinnedMemoryResource().allocate(max(span, 1))
    if span:
        _buffer(tensor.data, span, tensor).copy_to(
            _buffer(int(pinned.handle), span, pinned), stream=stream.stream
        )
    return np.ndarray(tensor.shape, tensor.dtype, np.from_dlpack(pinned), strides=tensor.strides)


def _contiguous_on_device(tensor: Tensor, stream: StreamHandle) -> Tensor:
    """Return a C-contiguous copy of a strided tensor in device memory."""
    if stream.is_simulated:
        target = DeviceMemory().allocate_tensor(tensor.shape, tensor.dtype, stream=stream)
        _simulate_copy(stream, simulated_view(target), simulated_view(tensor))
        return target
    try:
        import cupy
    except ImportError as error:
        raise InferenceError(
            f"{tensor!r} is strided, and only CuPy could copy it on the GPU ({error}): install penstock[cupy], or "
            "send a C-contiguous tensor"
        ) from error
    with stream.cupy():
        return as_tensor(cupy.ascontiguousarray(cupy.from_dlpack(tensor)), stream=stream)


def _buffer(address: int, size: int, owner: Any) -> Any:
    return gpu.Buffer.from_handle(address, size, owner=owner)  # type: ignore[attr-defined]


def _cuda_view(tensor: Tensor) -> Any:
    from cuda.core.utils import StridedMemoryView

    return StridedMemoryView.from_cuda_array_interface(tensor, -1)


def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * prod(shape[place + 1 :]) for place in range(len(shape)))
