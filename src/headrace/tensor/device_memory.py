"""Memory of a device by its address, real or simulated: allocated, copied, compared and read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import gpu

if TYPE_CHECKING:
    import numpy as np


class DeviceMemory:
    """Memory of a device, allocated in the order of a stream.

    Attributes
    ----------
    address, size
        Where it is.
    """

    __slots__ = ("_buffer", "address", "size")

    def __init__(self, stream: gpu.StreamHandle, size: int) -> None:
        self._buffer = stream.device.allocate(max(size, 1), stream=stream.stream)
        self.address = int(self._buffer.handle)
        self.size = size

    @property
    def buffer(self) -> Any:
        """The buffer of cuda.core, or of the simulated device."""
        return self._buffer

    def __simulated_memory__(self) -> Any:
        """Return the bytes, for a simulated kernel."""
        return self._buffer._open()

    def part(self, start: int, size: int) -> Any:
        """Return a buffer on a part of it."""
        if size == self.size:
            return self._buffer
        return gpu.Buffer.from_handle(self.address + start, size, owner=self._buffer)

    def close(self, stream: gpu.StreamHandle) -> None:
        """Free it, in the order of a stream."""
        self._buffer.close(stream.stream)


def copy(stream: gpu.StreamHandle, target: int, source: int, size: int) -> None:
    """Copy bytes from one address of a device to another, on a stream."""
    if size:
        stream.backend.copy(stream, target, source, size)


def read_bytes(stream: gpu.StreamHandle, address: int, size: int) -> np.ndarray[Any, Any]:
    """Return the bytes at an address of a device, once a stream has passed its work; wait for that."""
    import numpy as np

    found = np.empty(size, np.uint8)
    if size:
        stream.backend.copy(stream, found, address, size)
        stream.stream.sync()
    return found


_SOURCE = Path(__file__).with_suffix(".cu").read_text()
_differs = gpu.kernel("headrace_differs", source=_SOURCE, seconds=0.0)  # simulated memory is compared here
_THREADS, _MOST_BLOCKS = 256, 1024


def are_equal(stream: gpu.StreamHandle, one: int, two: int, size: int) -> bool:
    """Return whether the bytes at two addresses are the same; wait for the stream.

    They are compared on the device, so that large arrays need not be copied to the host.
    """
    if not size or one == two:
        return True
    if not stream.backend.runs_cuda:
        return bool((read_bytes(stream, one, size) == read_bytes(stream, two, size)).all())
    names = stream.backend.names
    flag = DeviceMemory(stream, 4)
    try:
        flag.buffer.fill(0, stream=stream.stream)
        blocks = min(-(-size // _THREADS), _MOST_BLOCKS)
        config = names.LaunchConfig(grid=blocks, block=_THREADS)
        names.launch(stream.stream, config, _differs.on(stream.device), flag.address, one, two, size)
        return not read_bytes(stream, flag.address, 4).any()
    finally:
        flag.close(stream)
