"""CuPy: an array is computed on the current stream, and its memory is ``array.data.mem``, which views share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import cupy

from headrace.gpu import StreamHandle
from headrace.tensor.device_arrays import DeviceLibrary, Layout
from headrace.tensor.libraries import NEVER_ALLOCATED
from headrace.tensor.types import DLDataType, DLDevice, element_from_name

if TYPE_CHECKING:
    from headrace.gpu.allocation import Allocation
    from headrace.tensor.description import Description
    from headrace.tensor.libraries.library import Library
    from headrace.tensor.tensor import Tensor

_elements: dict[Any, DLDataType] = {}
_device = cache(DLDevice)
_current_stream = cupy.cuda.get_current_stream


class CuPy(DeviceLibrary):
    """Subclasses of CuPy's arrays, which may export something else than the array."""

    name = "CuPy"
    types = ("cupy.ndarray",)
    lasts = True

    def for_type(self, kind: type) -> Library:
        """Return the library of CuPy's own arrays, or of subclasses."""
        return _EXACT if kind is cupy.ndarray else self

    @staticmethod
    def current_stream(device_id: int) -> int:
        """Return the handle of CuPy's current stream."""
        return _current_stream(device_id).ptr  # type: ignore[no-any-return]

    def from_tensor(self, tensor: Tensor) -> Any:
        """Return an array on the memory of a tensor."""
        if tensor.is_readonly or tensor._has_negative_stride():  # which DLPack does not pass on
            return cupy.asarray(tensor)
        return cupy.from_dlpack(tensor)

    owner: Callable[[Any], Any] = staticmethod(attrgetter("data.mem"))  # type: ignore[assignment]
    """Return CuPy's memory object."""

    begin: Callable[[Any], int] = staticmethod(attrgetter("data.mem.ptr"))  # type: ignore[assignment]
    """Return the address of CuPy's memory object."""

    # Streams.

    def stream(self, handle: StreamHandle) -> Any:
        """Return CuPy's object for a stream."""
        return cupy.cuda.Stream.null if handle.is_default else cupy.cuda.Stream.from_external(handle)

    read_stream = staticmethod(_current_stream)
    """Return the current stream."""

    @staticmethod
    def set_stream(state: Any) -> None:
        """Make a stream current."""
        state.use()

    def stream_setter(self, state: Any) -> Callable[[], object]:
        """Return a function that makes a stream current, unless it is: reading takes 0.05 µs and setting 0.2."""
        use: Callable[[], object] = state.use
        if cupy.cuda.runtime.getDeviceCount() > 1:
            return use  # which also checks that its device is current

        def make_current() -> None:
            if _current_stream(0) is not state:
                use()

        return make_current

    # Memory.

    def private_memory(self, device_id: int) -> Callable[[], AbstractContextManager[Any]]:
        """Return a function whose contexts make CuPy allocate from a new pool."""
        pool = cupy.cuda.MemoryPool()
        return lambda: cupy.cuda.using_allocator(pool.malloc)

    def layout(self, array: Any) -> Layout:
        """Return the layout of an array."""
        return Layout(self, array.shape, array.strides, array.dtype, array.data.device_id)

    address: Callable[[Any], int] = staticmethod(attrgetter("data.ptr"))  # type: ignore[assignment]
    """Return the address of the first element."""

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return an array at an address."""
        return self._placing(layout, address)(owner)

    def aliasing(self, layout: Layout, array: Any) -> Callable[[Any], Any]:
        """Return a function that makes arrays on the memory of another."""
        return self._placing(layout, self.address(array))

    def _placing(self, layout: Layout, address: int) -> Callable[[Any], Any]:
        """Return a function that makes arrays at an address, quickly; each keeps the owner that it is given."""
        ndarray, memory, pointer = cupy.ndarray, cupy.cuda.UnownedMemory, cupy.cuda.MemoryPointer
        _, shape, strides, dtype, device_id = layout
        before, size = self.extent(layout)

        def place(owner: Any) -> Any:
            unowned = memory(address - before, size, owner, device_id)
            return ndarray(shape, dtype, pointer(unowned, before), strides)

        return place

    def links(self, array: Any) -> tuple[Any, ...]:
        """Return the array, its pointer and its memory; slices have pointers of their own to the same memory."""
        return (array, array.data, array.data.mem)

    state: Callable[[Any], Any] = staticmethod(attrgetter("shape", "data"))  # type: ignore[assignment]
    """Return its shape, from which its strides follow, and its pointer: all that can be changed in place."""

    def new(self, layout: Layout, stream: StreamHandle) -> Any:
        """Return a new array."""
        before, size = self.extent(layout)
        pointer = cupy.cuda.alloc(size)
        return cupy.ndarray(
            layout.shape, layout.dtype, pointer + before if before else pointer, layout.strides
        )

    def matching(self, layout: Layout) -> Callable[[Any], bool]:
        """Return a function that tells whether an object is an array of a layout."""
        ndarray = cupy.ndarray
        _, shape, strides, dtype, device_id = layout

        def matches(
            array: Any,
        ) -> bool:  # every frame asks; a tuple of all four would take half as long again
            return (
                type(array) is ndarray
                and array.shape == shape
                and array.strides == strides
                and array.dtype is dtype
                and array.data.device_id == device_id
            )

        return matches


class _Exact(CuPy):
    @staticmethod
    def describe(array: Any, device: tuple[int, int]) -> Description:
        dtype = array.dtype
        element = _elements.get(dtype)
        if element is None:
            element = _elements[dtype] = element_from_name(dtype.name)
        return (array.data.ptr, array.shape, array.strides, element, _device(*device), False)


def use_allocator(allocate: Callable[[int], Any]) -> AbstractContextManager[Any]:
    """Return a context in which CuPy calls a function for memory, on this thread."""
    return cupy.cuda.using_allocator(allocate)  # type: ignore[no-any-return]


def make_allocator(
    allocate: Callable[[int, StreamHandle], Allocation], device_id: int
) -> Callable[[int], Any]:
    """Return a function that CuPy calls for memory, made of one that allocates for a stream.

    CuPy's arrays keep the allocation, as the owner of memory that is not CuPy's. The runtime recognizes it by its
    address.
    """

    def allocate_memory(size: int) -> Any:
        allocation = allocate(size, StreamHandle(_current_stream()))
        memory = cupy.cuda.UnownedMemory(allocation.address, size, allocation, device_id)
        return cupy.cuda.MemoryPointer(memory, 0)

    return allocate_memory


def contiguous_copy(tensor: Tensor, stream: StreamHandle) -> Any:
    """Return a C-contiguous copy of a tensor in device memory, made on a stream."""
    with stream.cupy():
        return cupy.ascontiguousarray(cupy.from_dlpack(tensor))


_memory = sys.modules.get("cupy.cuda.memory")
if _memory is not None:
    NEVER_ALLOCATED.update((_memory.Memory, _memory.PooledMemory))
LIBRARIES = {"cupy": CuPy()}
_EXACT = _Exact()
