"""Arrays in device memory: their layout, other arrays with the same layout, and pools for captured work.

A CUDA graph works on fixed addresses. So an array that enters a captured segment is copied to memory of the graph,
and one that leaves is copied to new memory. This file describes both: an array *at* an address that is owned by
something else, and a *new* array of the same library and the same layout.

An array is copied as it lies in memory, from its first byte to its last. So one with gaps keeps its gaps, and no
kernel is needed.

The memory of a temporary array is returned when the array is gone; from a library's usual pool it would be given to
somebody else and overwritten by every launch. So each graph has pools of its own, which nobody else allocates from
(:class:`PrivateMemory`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headrace.gpu.allocation import Allocation, keeping_allocations
from headrace.tensor.description import compute_layout
from headrace.tensor.libraries import Library, library_of, private_memories

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle


class Unsupported(Exception):
    """An object that a captured segment cannot be given; the text says why."""


class Extent(NamedTuple):
    """The bytes of an array: how many lie before the address of its first element, and how many there are."""

    before: int
    size: int


class Layout(NamedTuple):
    """What an array looks like: two arrays with the same layout differ only in their address and contents.

    Attributes
    ----------
    kind
        Its library.
    shape, strides
        As in NumPy; strides are in bytes.
    dtype
        The library's own element type.
    device_id
        The device that its memory is on.
    """

    kind: DeviceLibrary
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device_id: int

    @property
    def has_gaps(self) -> bool:
        """Whether there are bytes between its elements that are not its own."""
        return self.kind.extent(self).size > math.prod(self.shape) * self.kind.itemsize(self)


class DeviceLibrary(Library):
    """A library whose arrays in device memory a captured segment can be given.

    Attributes
    ----------
    has_views
        Whether an array may be a part of another.
    lasts
        Whether an array may be sent more than once (`links`).
    """

    has_views: ClassVar[bool] = True
    lasts: ClassVar[bool] = False

    def layout(self, array: Any) -> Layout:
        """Return the layout of an array; raise Unsupported if a captured segment cannot work on it."""
        raise NotImplementedError

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        raise NotImplementedError

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return an array whose first element is at an address; it keeps the owner of the memory alive."""
        raise NotImplementedError

    def new(self, layout: Layout, stream: StreamHandle) -> Any:
        """Return a new array, whose memory is for use on a stream; that stream is current."""
        before, size = self.extent(layout)
        buffer = stream.device.allocate(max(size, 1), stream=stream.stream)
        return self.at(layout, int(buffer.handle) + before, buffer)

    def aliasing(self, layout: Layout, array: Any) -> Callable[[Any], Any]:
        """Return a function that makes arrays on the memory of another, which keep a given owner in its place."""
        at, address = self.at, self.address(array)
        return lambda owner: at(layout, address, owner)

    def links(self, array: Any) -> tuple[Any, ...]:
        """Return an array and what lies between it and the owner of its memory, if it may be sent more than once.

        Whoever uses the array in any way has to refer to one of these objects, and only that. What a receiver can
        change of the array itself is its `state`. Nothing is returned if each message needs an array of its own.
        """
        return ()

    def state(self, array: Any) -> Any:
        """Return what a receiver can change of an array itself, such as its shape."""
        return None

    def matching(self, layout: Layout) -> Callable[[Any], bool]:
        """Return a function that tells, quickly, whether an object is an array of a layout."""
        return lambda data: library_of(type(data)) is self and self.layout(data) == layout

    def itemsize(self, layout: Layout) -> int:
        """Return the size of an element in bytes."""
        return int(layout.dtype.itemsize)

    def extent(self, layout: Layout) -> Extent:
        """Return where the bytes of an array are, seen from its address."""
        _, first, end = compute_layout(layout.shape, layout.strides, 1, self.itemsize(layout))
        return Extent(-first, end - first)

    def numpy_dtype(self, layout: Layout) -> Any:
        """Return NumPy's dtype of the elements, or None if it has none; bytes are compared then."""
        return layout.dtype


def kind_of(data: Any) -> DeviceLibrary | None:
    """Return the library of an array whose layout can be read, or None for anything else."""
    library = library_of(type(data))
    return library if isinstance(library, DeviceLibrary) else None


def layout_of(array: Any) -> Layout:
    """Return the layout of an array."""
    kind = kind_of(array)
    assert kind is not None
    return kind.layout(array)


def span_of(array: Any) -> tuple[int, int]:
    """Return the addresses of the first byte of an array and of the first one behind it."""
    layout = layout_of(array)
    before, size = layout.kind.extent(layout)
    begin = layout.kind.address(array) - before
    return begin, begin + size


class ArrayAt:
    """Memory at an address, as other libraries read it; it keeps the owner of the memory."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        typestr: str,
        owner: object,
        strides: tuple[int, ...] | None = None,
        stream: int | None = None,
    ) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
            "data": (address, False),
            "stream": stream,
            "version": 3,
        }


def new_array(layout: Layout, stream: StreamHandle) -> Any:
    """Return a new array of a layout, whose memory is for use on a stream."""
    kind = layout.kind
    if type(kind).set_stream is Library.set_stream:
        return kind.new(layout, stream)
    previous = kind.read_stream()
    kind.set_stream(kind.stream_state(stream))
    try:
        return kind.new(layout, stream)
    finally:
        kind.set_stream(previous)


# Memory that arrays share.


def groups_of(spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the numbers of the arrays that share memory, also by way of others; the first begins first."""
    groups: list[list[int]] = []
    group: list[int] = []
    end = -1
    for number in sorted(range(len(spans)), key=lambda number: spans[number]):
        first, last = spans[number]
        if first == last:
            groups.append([number])  # it has no bytes to share, wherever it is
        elif first < end:
            group.append(number)
        else:
            group = [number]
            groups.append(group)
        end = max(end, last)
    return groups


def with_shared(numbers: Iterable[int], leaves: Sequence[Any]) -> set[int]:
    """Return the numbers of some arrays of a frame, and of those that share memory with them."""
    some = set(numbers)
    groups = groups_of([span_of(leaf) for leaf in leaves])
    return {number for group in groups if not some.isdisjoint(group) for number in group}


def shared_memory(leaves: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Return which arrays of a frame share memory: the group of each, and where in it it begins; empty if none."""
    spans = [span_of(leaf) for leaf in leaves]
    groups = groups_of(spans)
    if len(groups) == len(spans):
        return ()
    found = [(0, 0)] * len(spans)
    for place, group in enumerate(groups):
        begin = spans[group[0]][0]
        for number in group:
            found[number] = (place if len(group) > 1 else -1, spans[number][0] - begin)
    return tuple(found)


class PrivateMemory:
    """The pools of one graph, one for each library in use; entered while its work is captured.

    Parameters
    ----------
    device_id
        The device.
    runs_cuda
        Whether CUDA's libraries work on that device.
    """

    def __init__(self, device_id: int, runs_cuda: bool) -> None:
        self._allocations: list[Allocation] = []
        self._pools = private_memories(device_id, runs_cuda)
        self._open: list[ExitStack] = []

    def __enter__(self) -> PrivateMemory:
        with ExitStack() as stack:
            stack.enter_context(keeping_allocations(self._allocations))
            for use in self._pools:
                stack.enter_context(use())
            self._open.append(stack.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.pop().close()
