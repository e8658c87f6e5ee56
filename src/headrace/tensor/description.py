"""The description of a tensor that a protocol provides, and the conditions that every tensor must satisfy.

Descriptions are checked here before they are used: a consumer that receives an impossible shape or stride may
end the process instead of raising an error. The shapes of a pipeline repeat, so the results are cached.

The work that produces a tensor's data, and how other streams are ordered after it.

Ordering happens on the device; the host never waits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

from headrace import gpu
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE
from headrace.tensor.types import DLDataType, DLDevice, TensorError

# Address, shape, strides in bytes, element type, device, and whether the memory is read-only. A plain tuple, since
# every conversion creates one.
Description = tuple[int, tuple[int, ...], tuple[int, ...], DLDataType, DLDevice, bool]

# Strides in bytes, then the offsets of the first byte and of the end of the last byte, relative to the address.
Layout = tuple[tuple[int, ...], int, int]

MAX_DIMENSIONS = 64  # NumPy's limit
END_OF_MEMORY = 1 << 63  # all addresses and sizes are smaller


@lru_cache(maxsize=1024)
def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous tensor."""
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))


@lru_cache(maxsize=1024)
def compute_layout(shape: tuple[int, ...], steps: tuple[int, ...] | None, unit: int, itemsize: int) -> Layout:
    """Return the layout of a tensor; `steps` are strides in units of `unit` bytes, or None for row-major.

    Raises
    ------
    TensorError
        If no tensor can have this shape and these strides.
    """
    if len(shape) > MAX_DIMENSIONS:
        raise TensorError(f"it has {len(shape)} dimensions; a tensor has at most {MAX_DIMENSIONS}")
    size = itemsize
    for extent in shape:
        if extent < 0:
            raise TensorError(f"its shape is {shape}; an extent is 0 or more")
        size *= extent or 1
    if size >= END_OF_MEMORY:
        raise TensorError(f"its shape is {shape}, which is larger than any memory")
    strides = row_major(shape, itemsize) if steps is None else tuple([step * unit for step in steps])
    if len(strides) != len(shape):
        raise TensorError(
            f"it has {len(shape)} dimensions and {len(strides)} strides; each dimension needs one"
        )
    if 0 in shape:
        return strides, 0, 0
    first, end = 0, itemsize
    for extent, stride in zip(shape, strides, strict=True):
        reach = (extent - 1) * stride
        if reach < 0:
            first += reach
        else:
            end += reach
    if end - first >= END_OF_MEMORY:
        raise TensorError(
            f"its strides are {strides} bytes; with the shape {shape} they reach beyond any memory"
        )
    return strides, first, end


def invalid_address(data: int, first: int, end: int) -> TensorError:
    """Return the error for elements at addresses that cannot be memory."""
    if not data:
        return TensorError("its address is 0, but it has elements; only an empty array may have no address")
    return TensorError(
        f"its elements would lie from {data + first:#x} to {data + end:#x}, where there is no memory"
    )


class PendingWork(Protocol):
    """The work that produces a tensor's data.

    Of a received message, the receiver's stream is ordered after it; of a `StreamWork`, a consumer orders its own.
    """

    @property
    def stream_handle(self) -> int:
        """The handle of the stream that the work runs on."""

    def order(self, stream: int) -> None:
        """Order a stream after the work."""


class StreamWork:
    """All work that has been submitted to a stream at the time when another stream is ordered after it."""

    __slots__ = ("_stream", "stream_handle")

    def __init__(self, stream: int) -> None:
        self._stream = stream  # a StreamHandle keeps its stream alive
        self.stream_handle = int(stream) or LEGACY_DEFAULT_HANDLE  # the protocols have no stream 0

    def order(self, stream: int) -> None:
        """Order a stream after the work that has been submitted to this one."""
        if stream != self.stream_handle:
            stream_of(stream).wait(stream_of(self._stream))


def stream_of(handle: int) -> Any:
    """Return the device's stream object for a handle of the array protocols."""
    if isinstance(handle, gpu.StreamHandle):
        return handle.stream
    if handle in (0, LEGACY_DEFAULT_HANDLE):
        return gpu.LEGACY_DEFAULT_STREAM
    return gpu.Stream.from_handle(int(handle))
