"""Transfers: tensors between a device and the host, in the order of a stream, without waiting.

A copy is started and the caller goes on; what it was copied to may be read when the stream has passed it. The host
memory is pinned and kept for the next frame: to pin it anew for each would cost more than the copy.

A tensor with gaps between its elements is copied with the gaps, from its first byte to its last, and viewed with
the same strides. That takes no kernel, and so no array library.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from penstock import gpu
from penstock.tensor import Tensor

__all__ = ["HostMemory", "copy_bytes", "copy_to_device"]

_SIMULATED_BANDWIDTH = 50e9  # bytes a second


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

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array in pinned memory."""
        size = int(np.prod(shape)) * dtype.itemsize
        return self.block(size)[:size].view(dtype).reshape(shape)

    def copy(self, tensor: Tensor, stream: gpu.StreamHandle) -> np.ndarray:
        """Copy a tensor on a stream; the array may be read, or let go, when the stream has passed this point."""
        steps = [(extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)]
        if 0 in tensor.shape:
            return np.empty(tensor.shape, tensor.dtype)
        before = -sum(step for step in steps if step < 0)
        size = before + sum(step for step in steps if step > 0) + tensor.itemsize
        block = self.block(size)
        copy_bytes(int(block.ctypes.data), tensor.data - before, size, stream)
        return np.ndarray(tensor.shape, tensor.dtype, block, before, tensor.strides)

    def block(self, size: int) -> np.ndarray:
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
        return np.asarray(_Lease(self, buffer))

    def _give_back(self, buffer: Any) -> None:
        # Without the lock, which this thread may hold: memory is freed at any moment.
        self._unused.append(buffer)


class _Lease:
    """A block in use; arrays made of it keep it alive."""

    def __init__(self, memory: HostMemory, buffer: Any) -> None:
        self._memory, self._buffer = memory, buffer
        self.__array_interface__ = {
            "data": (int(buffer.handle), False),
            "shape": (int(buffer.size),),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._memory._give_back(self._buffer)


def copy_to_device(tensor: Tensor, source: np.ndarray, stream: gpu.StreamHandle) -> None:
    """Copy an array in pinned memory to a tensor of the same shape and dtype, on a stream.

    The array must stay unchanged until the stream has passed this point; it is kept alive as long.
    """
    if not tensor.is_contiguous():
        raise ValueError(f"a buffer to be filled must be contiguous, and {tensor!r} is not")
    copy_bytes(tensor.data, int(source.ctypes.data), source.nbytes, stream)
    gpu.when_done(stream, lambda error: _let_go(source))


def copy_bytes(target: int, source: int, size: int, stream: gpu.StreamHandle) -> None:
    """Copy bytes between addresses of a device or pinned memory, on a stream."""
    if stream.is_simulated:
        from penstock.gpu import sim

        def effect() -> None:
            ctypes.memmove(target, source, size)

        kernel = sim.Kernel("copy", size / _SIMULATED_BANDWIDTH, effect)
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=1), kernel)
        return
    from cuda.bindings import driver

    (status,) = driver.cuMemcpyAsync(target, source, size, driver.CUstream(int(stream)))
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver refused a copy of {size} bytes: {status.name}")


def _let_go(kept: Any) -> None:
    """Keep an object alive until this is called."""
