"""The memory of frames that come from outside and go there: sources place them, sinks fetch them.

It is the one place of the video operators that knows of allocators and of copies between host and device.
A copy runs on the operator's stream, and the host waits for nothing: a copy from plain memory has read it when
the call returns, and a copy to the host is looked at when its event has passed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import gpu
from penstock.resources import UnboundedAllocator
from penstock.tensor import DLDeviceType, Tensor, as_tensor

if TYPE_CHECKING:
    from penstock.core.contexts import ExecutionContext, OutputContext
    from penstock.core.operator import Operator

__all__ = [
    "DEVICE",
    "FrameMemory",
    "HostCopy",
    "bytes_at",
    "copy_to_device",
    "named_arrays",
    "simulate",
    "storage_of",
]

HOST, DEVICE, SYSTEM, MANAGED = range(4)
_STORAGE_TYPES = {"host": HOST, "device": DEVICE, "system": SYSTEM, "cuda_managed": MANAGED}
_STORAGE_OF = {
    DLDeviceType.CPU: SYSTEM,
    DLDeviceType.CUDA: DEVICE,
    DLDeviceType.CUDA_HOST: HOST,
    DLDeviceType.CUDA_MANAGED: MANAGED,
}
# How fast the simulated device copies to and from the host, in bytes per second.
_COPY_RATE = 50e9


class FrameMemory:
    """Puts the arrays of a source where its output is to be.

    Parameters
    ----------
    operator
        The source.
    storage_type
        ``"system"`` or None, ``"host"`` (pinned), ``"device"`` or ``"cuda_managed"``, or the number of one
        (0 host, 1 device, 2 system, 3 managed); with `recorded`, ``"recorded"`` for that of each array.
    allocator
        The allocator of all but system memory; an UnboundedAllocator unless given.
    recorded
        Whether ``"recorded"`` is allowed.
    """

    def __init__(self, operator: Operator, storage_type: Any, allocator: Any, recorded: bool = False) -> None:
        self._operator = operator
        self.storage_type = _storage_number(operator, storage_type, recorded)
        self._allocator = allocator

    def place(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        op_output: OutputContext,
        context: ExecutionContext,
        port: str,
        storage_types: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Return the arrays in the memory that was asked for, and set the stream of an output that copies use."""
        if self.storage_type == SYSTEM:
            return dict(arrays)
        placed: dict[str, Any] = {}
        for name, array in arrays.items():
            wanted = self.storage_type
            if wanted is None:
                wanted = (storage_types or {}).get(name, SYSTEM)
            if wanted == SYSTEM:
                placed[name] = array
            elif wanted == DEVICE:
                tensor, stream = self.allocate_on_device(array.shape, array.dtype, op_output, context, port)
                copy_to_device(array, tensor, stream)
                placed[name] = tensor
            else:
                tensor = self._allocate(array.shape, array.dtype, wanted, None)
                np.asarray(tensor)[...] = array
                placed[name] = tensor
        return placed

    def allocate_on_device(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        op_output: OutputContext,
        context: ExecutionContext,
        port: str,
    ) -> tuple[Tensor, gpu.StreamHandle]:
        """Return device memory, and the operator's stream, which goes with what the output emits."""
        name = self._operator.name
        if not context.is_gpu_available:
            raise RuntimeError(
                f"operator {name!r}: storage_type is 'device', and there is no device; use "
                "storage_type='system', or PENSTOCK_DEVICE=sim for a simulated one"
            )
        stream = context.allocate_cuda_stream(f"{name}_stream")
        if stream is None:
            raise RuntimeError(
                f"operator {name!r}: its stream pool has no stream left for its frames; give the pool a larger "
                "max_size"
            )
        op_output.set_cuda_stream(stream, port)
        return self._allocate(shape, dtype, DEVICE, stream), stream

    def _allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], storage_type: int, stream: gpu.StreamHandle | None
    ) -> Tensor:
        if self._allocator is None:
            self._allocator = UnboundedAllocator(
                self._operator.fragment, name=f"{self._operator.name}_allocator"
            )
        tensor: Tensor = self._allocator.allocate_tensor(
            shape, dtype, storage_type, stream=stream, operator=self._operator.name
        )
        return tensor


def _storage_number(operator: Operator, storage_type: Any, recorded: bool) -> int | None:
    if storage_type is None:
        return SYSTEM
    if isinstance(storage_type, str):
        if recorded and storage_type == "recorded":
            return None
        if storage_type in _STORAGE_TYPES:
            return _STORAGE_TYPES[storage_type]
    elif not isinstance(storage_type, bool):
        number = getattr(storage_type, "value", storage_type)  # of MemoryStorageType, or the number itself
        if isinstance(number, int) and number in _STORAGE_TYPES.values():
            return number
    names = [*_STORAGE_TYPES, *(["recorded"] if recorded else [])]
    raise ValueError(
        f"operator {operator.name!r}: storage_type must be one of {', '.join(map(repr, names))}, or a "
        f"MemoryStorageType, not {storage_type!r}"
    )


def named_arrays(message: Any, operator: Operator, port: str) -> dict[str, Tensor]:
    """Return the tensors of a message by name: of a TensorMap or a dict of arrays, or of one array, named ""."""
    arrays = message if isinstance(message, Mapping) else {"": message}
    tensors = {}
    for name, array in arrays.items():
        try:
            tensors[str(name)] = as_tensor(array)
        except TypeError as error:
            what = f"entry {name!r} of the message" if isinstance(message, Mapping) else "the message"
            raise TypeError(
                f"operator {operator.name!r}, input {port!r}: {what} is a {type(array).__name__}; expected an "
                f"array of any library, or a dict or TensorMap of arrays ({error})"
            ) from error
    return tensors


def storage_of(tensor: Tensor) -> int:
    """Return the storage type of a tensor: 0 pinned host, 1 device, 2 system, 3 managed."""
    return _STORAGE_OF.get(DLDeviceType(tensor.device.device_type), DEVICE)


def copy_to_device(array: np.ndarray[Any, Any], tensor: Tensor, stream: gpu.StreamHandle) -> None:
    """Copy an array to a contiguous tensor of the same shape, on a stream."""
    array = np.ascontiguousarray(array)
    size = array.nbytes
    if not size:
        return
    if stream.is_simulated:
        source_bytes = array.reshape(-1).view(np.uint8)
        _simulate_copy(
            "copy_to_device", stream, lambda: (bytes_at(tensor.data, size), source_bytes), size, tensor
        )
        return
    buffers: Any = gpu.Buffer
    # A copy from pageable memory has read its source when the call returns, so `array` may go.
    source = buffers.from_handle(array.ctypes.data, size, owner=array)
    buffers.from_handle(tensor.data, size, owner=tensor).copy_from(source, stream=stream.stream)


class HostCopy:
    """A copy of a tensor in host memory that a stream makes.

    Parameters
    ----------
    tensor
        A tensor in memory that kernels can access.
    stream
        A stream that is ordered after the work on the tensor.
    spare
        Pinned memory of copies that were released, by size: pinning memory takes longer than copying a frame.
    """

    __slots__ = ("_dtype", "_event", "_memory", "_pinned", "_shape", "_spare", "_strides")

    def __init__(self, tensor: Tensor, stream: gpu.StreamHandle, spare: dict[int, list[Any]]) -> None:
        self._spare = spare
        self._shape, self._strides, self._dtype = tensor.shape, tensor.strides, tensor.dtype
        if not tensor.is_contiguous() and any(stride < 0 for stride in tensor.strides):
            raise ValueError(f"{tensor!r} has a negative stride; send a contiguous copy of it")
        # From the first element to the last, with what lies between them.
        span = 0
        if prod(tensor.shape):
            steps = zip(tensor.shape, tensor.strides, strict=True)
            span = tensor.itemsize + sum((extent - 1) * stride for extent, stride in steps)
        self._pinned: Any = None
        self._memory: np.ndarray[Any, Any]
        if stream.is_simulated or not span:
            self._memory = np.empty(span, np.uint8)
            target = self._memory
            if span:
                _simulate_copy(
                    "copy_to_host", stream, lambda: (target, bytes_at(tensor.data, span)), span, tensor
                )
        else:
            left = spare.setdefault(span, [])
            self._pinned = left.pop() if left else gpu.LegacyPinnedMemoryResource().allocate(span)
            buffers: Any = gpu.Buffer
            buffers.from_handle(tensor.data, span, owner=tensor).copy_to(self._pinned, stream=stream.stream)
            self._memory = np.from_dlpack(self._pinned)
        self._event = stream.stream.record()

    @property
    def is_done(self) -> bool:
        """Whether the copy is complete."""
        return bool(self._event.is_done)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the copy, after waiting for it; it is valid until `release`."""
        self._event.sync()
        return np.ndarray(self._shape, self._dtype, self._memory, strides=self._strides)

    def release(self) -> None:
        """Leave the memory to other copies."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None:
            self._spare[pinned.size].append(pinned)


def simulate(
    name: str, seconds: float, stream: gpu.StreamHandle, effect: Callable[[], object], keep: Any
) -> None:
    """Run a simulated kernel of one block, which has its effect when it ends and keeps an object until then."""
    from penstock.gpu import sim

    kernel: Any = sim.Kernel(name, seconds, lambda kept=keep: effect())
    sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel)


def bytes_at(address: int, size: int) -> np.ndarray[Any, Any]:
    """Return the bytes at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _simulate_copy(
    name: str, stream: gpu.StreamHandle, ends: Callable[[], tuple[Any, Any]], size: int, keep: Any
) -> None:
    """Copy bytes to the first end from the second, in the order of a simulated stream."""
    simulate(name, size / _COPY_RATE, stream, lambda: np.copyto(*ends()), keep)
