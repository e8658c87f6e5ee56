"""Copies of tensors between the host and a device, in the order of a stream.

Operators and the runtimes of models copy tensors by this file. A copy is started and the caller goes on; what it
was copied to may be read when the stream has passed it. Only :func:`read_on_host` waits.

- Plain host memory has been read when the call returns, as CUDA promises for pageable memory. So its owner may
  change it or let it go.
- All other memory has to stay as it is until the stream has passed the copy. In a pipeline the runtime sees to that
  for whatever an operator has received or sends.
- The host's side of a copy from a device is pinned, since anything else would make the copy wait for the device.
  :class:`HostMemory` keeps it for the next frame: to pin it anew would cost more than the copy.

A tensor with gaps between its elements is copied to the host with the gaps, from its first byte to its last, and
viewed with the same strides. That takes no kernel, and so no array library.

On a simulated device the copy engines copy, and a copy takes effect when it ends. It uses the memory, not the owner
of the memory: what is freed too early is reused, as on a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.tensor.capsule import view_as_numpy
from headrace.tensor.conversion import as_tensor
from headrace.tensor.description import compute_layout, row_major
from headrace.tensor.tensor import Tensor
from headrace.tensor.types import CPU, DLDataType, DLDevice, DLDeviceType, TensorError, element_from_name

if TYPE_CHECKING:
    import numpy as np

    from headrace.gpu import StreamHandle


def copy(target: Tensor, source: Tensor | np.ndarray[Any, Any], stream: StreamHandle) -> None:
    """Copy a C-contiguous tensor or NumPy array to a C-contiguous tensor of the same size, on a stream."""
    source = as_tensor(source)
    for one in (target, source):
        if not one.is_contiguous():
            raise ValueError(f"{one!r} must be C-contiguous to be copied to or from")
    if target.nbytes != source.nbytes:
        raise ValueError(f"{target!r} and {source!r} differ in size")
    if not source.nbytes:
        return
    stream.backend.copy(stream, _place(target), _place(source), source.nbytes)


def copy_from_pinned(target: Tensor, source: np.ndarray[Any, Any], stream: StreamHandle) -> None:
    """Copy an array in pinned memory to a C-contiguous tensor of the same size, on a stream.

    The array must stay unchanged until the stream has passed this point; it is kept alive as long.
    """
    if not target.is_contiguous():
        raise ValueError(f"a buffer to be filled must be contiguous, and {target!r} is not")
    stream.backend.copy(stream, target.data, int(source.ctypes.data), source.nbytes)
    kept = [source]
    gpu.when_done(stream, lambda error: kept.clear())


def upload(array: np.ndarray[Any, Any], stream: StreamHandle) -> Tensor:
    """Return a new tensor in device memory with the contents of an array, copied on a stream.

    For tables that are kept over many frames. Frames come from an allocator.
    """
    import numpy as np

    shape, element = array.shape, element_from_name(array.dtype.name)
    device = stream.stream.device
    buffer = device.allocate(max(array.nbytes, 1), stream=stream.stream)
    where = DLDevice(DLDeviceType.CUDA, device.device_id)
    description = (int(buffer.handle), shape, row_major(shape, element.itemsize), element, where, False)
    tensor = Tensor._at(description, buffer)
    copy(tensor, np.ascontiguousarray(array), stream)
    return tensor


def read_on_host(
    tensors: Sequence[Tensor], stream: StreamHandle | None, memory: HostMemory | None = None
) -> list[np.ndarray[Any, Any]]:
    """Return tensors as arrays that the host can read; wait once for the stream, unless all are in plain memory.

    Device memory is copied, to `memory` where that is given. Pinned, managed and plain memory is read in place.
    """
    import numpy as np

    memory = HostMemory() if memory is None else memory
    arrays: list[Any] = []
    for tensor in tensors:
        if tensor.device.is_host:
            arrays.append(tensor)
        elif stream is None:
            raise ValueError(f"{tensor!r} is on a device, and only a stream can copy it")
        else:
            arrays.append(memory.copy(tensor, stream))
    if stream is not None and any(tensor.device.is_cuda for tensor in tensors):
        stream.stream.sync()
    return [np.asarray(array) for array in arrays]


class HostMemory:
    """Pinned host memory for copies of tensors, reused once nobody refers to a copy any more.

    Parameters
    ----------
    most
        The number of unused blocks that are kept.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._unused: list[Any] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return an array in pinned memory."""
        size = prod(shape) * dtype.itemsize
        return self._block(size)[:size].view(dtype).reshape(shape)

    def copy(self, tensor: Tensor, stream: StreamHandle) -> np.ndarray[Any, Any]:
        """Copy a tensor on a stream; the array may be read, or let go, when the stream has passed this point."""
        import numpy as np

        if not tensor.size:
            return np.empty(tensor.shape, tensor.dtype)
        _, first, end = compute_layout(tensor.shape, tensor.strides, 1, tensor.itemsize)
        block = self._block(end - first)
        array: np.ndarray[Any, Any] = np.ndarray(tensor.shape, tensor.dtype, block, -first, tensor.strides)
        stream.backend.copy(stream, int(block.ctypes.data), tensor.data + first, end - first)
        return array

    def _block(self, size: int) -> np.ndarray[Any, Any]:
        """Return bytes of pinned memory, which come back when the last view of them is gone."""
        with self._lock:
            fitting = [buffer for buffer in self._unused if size <= buffer.size <= 2 * size]
            buffer = min(fitting, key=lambda one: int(one.size), default=None)
            if buffer is not None:
                self._unused.remove(buffer)
            # Freed here and not where they come back: that may be in a host function, which must not call CUDA.
            del self._unused[: -self._most]
        if buffer is None:
            buffer = gpu.LegacyPinnedMemoryResource().allocate(max(size, 1))
        address, length = int(buffer.handle), int(buffer.size)
        bytes_ = (address, (length,), (1,), DLDataType(1, 8), CPU, False)
        return view_as_numpy(bytes_, _Lease(self, buffer), False)

    def _give_back(self, buffer: Any) -> None:
        # Without the lock, which this thread may hold: memory is freed at any moment.
        self._unused.append(buffer)


class _Lease:
    """A block in use; arrays made of it keep it alive."""

    def __init__(self, memory: HostMemory, buffer: Any) -> None:
        self._memory, self._buffer = memory, buffer

    def __del__(self) -> None:
        self._memory._give_back(self._buffer)


def simulated_memory(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return the memory of a tensor on the host or on a simulated device, for the effect of a kernel."""
    import numpy as np

    if tensor.device.is_host:
        return np.asarray(tensor)
    owner = tensor.owner
    while isinstance(owner, Tensor):  # the same memory in another shape
        owner = owner.owner
    if not hasattr(owner, "__simulated_memory__"):
        raise TensorError(
            f"{tensor!r} is not memory of the simulated device; a GPU's memory needs HEADRACE_DEVICE=cuda"
        )
    memory = owner.__simulated_memory__()
    offset = tensor.data - int(memory.ctypes.data)
    return np.ndarray(tensor.shape, tensor.dtype, memory, offset, tensor.strides)


def simulate(
    name: str,
    seconds: float,
    stream: StreamHandle,
    effect: Callable[[], object],
    grid: int = 1,
    block: int = 32,
) -> None:
    """Launch a kernel that is a function of the host, on a device whose kernels are such functions."""
    kernel = gpu.kernel(name, source="", seconds=seconds, effect=effect)
    gpu.launch(stream.stream, gpu.LaunchConfig(grid=grid, block=block), kernel.on(stream.device))


def _place(tensor: Tensor) -> Any:
    """Return where a tensor is, as a backend takes it: an address, or an array in plain memory of the host."""
    import numpy as np

    return np.asarray(tensor) if tensor.device.device_type == DLDeviceType.CPU else tensor.data
