"""cuda.core: buffers, real or simulated, are bytes without a shape."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import gpu
from headrace.gpu.backend import backend_of_type
from headrace.tensor.device_arrays import DeviceLibrary, Layout, Unsupported
from headrace.tensor.libraries.library import Library
from headrace.tensor.types import DLDataType, DLDevice

if TYPE_CHECKING:
    from headrace.tensor.description import Description

_device = cache(DLDevice)


class _Byte(NamedTuple):
    itemsize: int


_BYTE = _Byte(1)


class Buffers(DeviceLibrary):
    """Buffers of cuda.core."""

    name = "cuda.core"
    types = ("cuda.Buffer", "headrace.Buffer")
    has_views = False

    def for_type(self, kind: type) -> Library:
        """Return the library of buffers of a GPU, or of a device whose memory only the host can describe."""
        return self if backend_of_type(kind).runs_cuda else _OF_HOST

    def owner(self, array: Any) -> Any:
        """Return the buffer."""
        return array

    def begin(self, array: Any) -> int:
        """Return the address."""
        return int(array.handle)

    def layout(self, array: Any) -> Layout:
        """Return the layout of a buffer in device memory."""
        if not array.is_device_accessible or array.is_host_accessible:
            raise Unsupported("a buffer in memory of the host, and a captured segment reads device memory")
        return Layout(self, (array.size,), (1,), _BYTE, array.device_id)

    def address(self, array: Any) -> int:
        """Return the address."""
        return int(array.handle)

    def numpy_dtype(self, layout: Layout) -> Any:
        """Return None: nobody says what the bytes are."""
        return None

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return a buffer at an address."""
        return gpu.Buffer.from_handle(address, layout.shape[0], owner=owner)

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        """Return a new buffer."""
        return stream.device.allocate(layout.shape[0], stream=stream.stream)


class _OfHost(Buffers):
    @staticmethod
    def describe(array: Any, device: tuple[int, int]) -> Description:
        return (array.handle, (array.size,), (1,), DLDataType(0, 8), _device(*device), False)


LIBRARY = Buffers()
_OF_HOST = _OfHost()
