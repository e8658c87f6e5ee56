"""What a recording needs of a device, real or simulated: copies between addresses, and a look at recorded nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import gpu

if TYPE_CHECKING:
    import numpy as np

__all__ = ["AddressedMemory", "copy", "kinds_of_nodes", "read_bytes"]


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


class AddressedMemory:
    """Memory of a device that belongs to a recording.

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

    def close(self, stream: gpu.StreamHandle) -> None:
        """Free it, in the order of a stream."""
        self._buffer.close(stream.stream)


def kinds_of_nodes(definition: Any) -> list[str]:
    """Return the kinds of the nodes of a recorded graph, as the names of their classes."""
    return sorted(type(node).__name__ for node in definition.nodes())
