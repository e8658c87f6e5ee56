"""What a recording needs of a device, real or simulated: copies between addresses, and a look at recorded nodes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.tensor.copies import submit_copy

if TYPE_CHECKING:
    import numpy as np

__all__ = ["AddressedMemory", "copy", "kinds_of_nodes", "memory_at", "read_bytes"]


def copy(stream: gpu.StreamHandle, target: int, source: int, size: int) -> None:
    """Copy bytes from one address of a device to another, on a stream."""
    if not size:
        return
    if stream.is_simulated:
        from headrace.gpu.sim.memory import copy_between

        copy_between(stream.stream, target, source, size)
    else:
        submit_copy(target, source, size, stream)


def read_bytes(stream: gpu.StreamHandle, address: int, size: int) -> np.ndarray[Any, Any]:
    """Return the bytes at an address of a device, once a stream has passed its work; wait for that."""
    import numpy as np

    if stream.is_simulated:
        stream.stream.sync()
        return memory_at(address, size).copy()
    found = np.empty(size, np.uint8)
    if size:
        from cuda.bindings import driver

        stream.stream.sync()
        (status,) = driver.cuMemcpyDtoH(found.ctypes.data, address, size)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the driver refused to read {size} bytes: {status.name}")
    return found


def memory_at(address: int, size: int) -> np.ndarray[Any, Any]:
    """Return the bytes of a simulated device at an address."""
    import numpy as np

    data: Any = (ctypes.c_uint8 * size).from_address(address)
    found: np.ndarray[Any, Any] = np.frombuffer(data, np.uint8)
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
