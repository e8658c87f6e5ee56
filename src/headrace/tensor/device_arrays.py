"""The arrays in messages, whatever library they are of: what they look like, and new ones that look the same.

A recorded graph works on fixed addresses. So an array that enters a segment is copied to memory of the recording,
and one that leaves is copied to new memory. This file makes both: an array *at* an address that is owned by
something else, and a *new* array of the same library and the same layout.

An array is copied as it lies in memory, from its first byte to its last. So one with gaps keeps its gaps, and no
kernel is needed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from headrace import gpu
from headrace.tensor import DLDevice, DLDeviceType, Tensor, as_tensor
from headrace.tensor.types import DLDataType

__all__ = [
    "ArrayKind",
    "Extent",
    "Layout",
    "NewArrays",
    "Unsupported",
    "groups_of",
    "kind_of",
    "layout_of",
    "shared_memory",
    "span_of",
    "with_shared",
]

_MOST_SPARE, _SPARE_BYTES = 2, 1 << 20


class Unsupported(Exception):
    """An object that cannot be given to a recording; the text says why."""


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

    kind: ArrayKind
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device_id: int

    @property
    def has_gaps(self) -> bool:
        """Whether there are bytes between its elements that are not its own."""
        return self.kind.extent(self).size > math.prod(self.shape) * self.kind.itemsize(self)


class Extent(NamedTuple):
    """The bytes of an array: how many lie before the address of its first element, and how many there are."""

    before: int
    size: int


class ArrayKind:
    """The arrays of one library.

    Attributes
    ----------
    name
        Its name, for messages.
    has_views
        Whether an array may be a part of another.
    keeps_memory
        Whether memory stays allocated as long as an array on it exists; otherwise a program may free it.
    """

    name = ""
    has_views = True
    keeps_memory = False

    def layout(self, array: Any) -> Layout:
        """Return the layout of an array; raise Unsupported if a recording cannot work on it."""
        raise NotImplementedError

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        raise NotImplementedError

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return an array whose first element is at an address; it keeps the owner of the memory alive."""
        raise NotImplementedError

    def aliasing(self, layout: Layout, array: Any) -> Callable[[Any], Any]:
        """Return a function that makes arrays on the memory of another, which keep a given owner in its place."""
        at, address = self.at, self.address(array)
        return lambda owner: at(layout, address, owner)

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        """Return a new array, whose memory is for use on a stream; that stream is current."""
        raise NotImplementedError

    def current(self, stream: gpu.StreamHandle) -> Any:
        """Return a context manager in which the library allocates for a stream; None if that is not needed."""
        return None

    def matching(self, layout: Layout) -> Callable[[Any], bool]:
        """Return a function that tells, quickly, whether an object is an array of a layout."""
        of = self.layout

        def matches(data: Any) -> bool:
            return kind_of(data) is self and of(data) == layout

        return matches

    def making(self, layout: Layout, stream: gpu.StreamHandle) -> Callable[[], Any]:
        """Return a function that makes new arrays of a layout, quickly; what `current` returns is entered."""
        new = self.new
        return lambda: new(layout, stream)

    def itemsize(self, layout: Layout) -> int:
        """Return the size of an element in bytes."""
        return int(layout.dtype.itemsize)

    def numpy_dtype(self, layout: Layout) -> Any:
        """Return NumPy's dtype of the elements, or None if it has none; bytes are compared then."""
        return layout.dtype

    def extent(self, layout: Layout) -> Extent:
        """Return where the bytes of an array are, seen from its address."""
        if 0 in layout.shape:
            return Extent(0, 0)
        steps = [(length - 1) * stride for length, stride in zip(layout.shape, layout.strides, strict=True)]
        before = -sum(step for step in steps if step < 0)
        return Extent(before, before + sum(step for step in steps if step > 0) + self.itemsize(layout))


def kind_of(data: Any) -> ArrayKind | None:
    """Return the kind of an array, or None for anything else."""
    kind = _kinds.get(type(data))
    if kind is None:
        if type(data) in _others:
            return None
        kind = _find_kind(type(data))
        if kind is None:
            if len(_others) < 10_000:
                _others.add(type(data))
        else:
            _kinds[type(data)] = kind
    return kind


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


class NewArrays:
    """New arrays of one layout, small ones two at a time.

    Making an array for a stream means to make that stream current in its library and to go back, which costs as
    much as the rest. More than two at a time would make some frames take much longer than others. The first are
    made at once: if the memory is too little for them, that shows while the segment is recorded.
    """

    __slots__ = ("_batch", "_current", "_make", "spare")

    def __init__(self, layout: Layout, stream: gpu.StreamHandle) -> None:
        kind = layout.kind
        self._current = kind.current(stream) or nullcontext()
        with self._current:
            self._make = kind.making(layout, stream)
        self._batch = max(1, min(_MOST_SPARE, _SPARE_BYTES // max(kind.extent(layout).size, 1)))
        self.spare: list[Any] = []
        self._fill()

    def take(self) -> Any:
        """Return a new array."""
        if not self.spare:
            self._fill()
        return self.spare.pop()

    def _fill(self) -> None:
        with self._current:
            for _ in range(self._batch):
                self.spare.append(self._make())


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


# The libraries.


class _CuPy(ArrayKind):
    name = "CuPy"
    keeps_memory = True

    def layout(self, array: Any) -> Layout:
        return Layout(self, array.shape, array.strides, array.dtype, array.data.device_id)

    def address(self, array: Any) -> int:
        return array.data.ptr  # type: ignore[no-any-return]

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        return self._placing(layout, address)(owner)

    def aliasing(self, layout: Layout, array: Any) -> Callable[[Any], Any]:
        return self._placing(layout, self.address(array))

    def _placing(self, layout: Layout, address: int) -> Callable[[Any], Any]:
        """Return a function that makes arrays at an address, quickly; each keeps the owner that it is given."""
        cupy = sys.modules["cupy"]
        ndarray, memory, pointer = cupy.ndarray, cupy.cuda.UnownedMemory, cupy.cuda.MemoryPointer
        _, shape, strides, dtype, device_id = layout
        before, size = self.extent(layout)

        def place(owner: Any) -> Any:
            unowned = memory(address - before, size, owner, device_id)
            return ndarray(shape, dtype, pointer(unowned, before), strides)

        return place

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        cupy = sys.modules["cupy"]
        before, size = self.extent(layout)
        pointer = cupy.cuda.alloc(size)
        if before:
            pointer = pointer + before
        return cupy.ndarray(layout.shape, layout.dtype, pointer, layout.strides)

    def current(self, stream: gpu.StreamHandle) -> Any:
        return stream.cupy()

    def matching(self, layout: Layout) -> Callable[[Any], bool]:
        ndarray = sys.modules["cupy"].ndarray
        _, shape, strides, dtype, device_id = layout

        def matches(data: Any) -> bool:
            return (
                type(data) is ndarray
                and data.shape == shape
                and data.strides == strides
                and data.dtype is dtype
                and data.data.device_id == device_id
            )

        return matches

    def making(self, layout: Layout, stream: gpu.StreamHandle) -> Callable[[], Any]:
        cupy = sys.modules["cupy"]
        ndarray, alloc = cupy.ndarray, cupy.cuda.alloc
        _, shape, strides, dtype, _ = layout
        size = self.extent(layout).size
        if strides != ndarray(shape, dtype, alloc(size)).strides:
            return super().making(layout, stream)
        return lambda: ndarray(shape, dtype, alloc(size))


class _Torch(ArrayKind):
    name = "PyTorch"
    keeps_memory = True

    def current(self, stream: gpu.StreamHandle) -> Any:
        return sys.modules["torch"].cuda.stream(stream.torch())

    def layout(self, array: Any) -> Layout:
        if array.device.type != "cuda":
            raise Unsupported(f"a PyTorch tensor on {array.device}, and a recording reads device memory")
        if array.requires_grad:
            raise Unsupported("a PyTorch tensor that records gradients; use torch.no_grad() or detach()")
        if array.layout is not sys.modules["torch"].strided:
            raise Unsupported(f"a PyTorch tensor of the layout {array.layout}")
        itemsize = array.element_size()
        strides = tuple([stride * itemsize for stride in array.stride()])
        return Layout(self, tuple(array.shape), strides, array.dtype, array.device.index)

    def address(self, array: Any) -> int:
        return array.data_ptr()  # type: ignore[no-any-return]

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        torch = sys.modules["torch"]
        size = self.extent(layout).size
        # As bytes first, since the interface has no name for some of PyTorch's types.
        holder = _BytesAt(address, size, owner)
        data = torch.as_tensor(holder, device=torch.device("cuda", layout.device_id)).view(layout.dtype)
        itemsize = self.itemsize(layout)
        return data.as_strided(layout.shape, [stride // itemsize for stride in layout.strides])

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        torch = sys.modules["torch"]
        itemsize = self.itemsize(layout)
        strides = [stride // itemsize for stride in layout.strides]
        device = torch.device("cuda", layout.device_id)
        return torch.empty_strided(layout.shape, strides, dtype=layout.dtype, device=device)

    def numpy_dtype(self, layout: Layout) -> Any:
        torch = sys.modules["torch"]
        try:
            return torch.empty(0, dtype=layout.dtype).numpy().dtype
        except TypeError:  # bfloat16 and smaller floats
            return None


class _Numba(ArrayKind):
    name = "Numba"

    def layout(self, array: Any) -> Layout:
        return Layout(self, tuple(array.shape), tuple(array.strides), array.dtype, 0)

    def address(self, array: Any) -> int:
        return int(array.__cuda_array_interface__["data"][0])

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        from numba import cuda

        interface = {
            "shape": layout.shape,
            "strides": layout.strides,
            "typestr": layout.dtype.str,
            "data": (address, False),
            "version": 3,
        }
        return cuda.as_cuda_array(_Interface(interface, owner), sync=False)

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        before, size = self.extent(layout)
        buffer = stream.device.allocate(max(size, 1), stream=stream.stream)
        return self.at(layout, int(buffer.handle) + before, buffer)


class _TensorDtype(NamedTuple):
    """The element type of a tensor, and whether the tensor is read-only."""

    element: DLDataType
    is_readonly: bool
    itemsize: int


class _Tensor(ArrayKind):
    name = "headrace"

    def layout(self, array: Any) -> Layout:
        device = array.device
        if not device.is_cuda or device.is_host:
            raise Unsupported(
                f"a tensor in memory of the host ({device}), and a recording reads device memory"
            )
        element = array.dl_dtype
        dtype = _TensorDtype(element, array.is_readonly, element.itemsize)
        return Layout(self, array.shape, array.strides, dtype, device.device_id)

    def address(self, array: Any) -> int:
        return array.data  # type: ignore[no-any-return]

    def numpy_dtype(self, layout: Layout) -> Any:
        try:
            return layout.dtype.element.numpy()
        except Exception:  # a type that needs another package
            return None

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        exporter = None
        if gpu.backend() == "cuda":
            exporter = as_tensor(_interface_of(layout, address, owner))._exporter
        where = DLDevice(DLDeviceType.CUDA, layout.device_id)
        dtype = layout.dtype
        described = (address, layout.shape, layout.strides, dtype.element, where, dtype.is_readonly)
        return Tensor._create(described, owner, exporter, None)

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        before, size = self.extent(layout)
        buffer = stream.device.allocate(max(size, 1), stream=stream.stream)
        return self.at(layout, int(buffer.handle) + before, buffer)


class _Buffer(ArrayKind):
    """The buffers of cuda.core, or of a simulated device: bytes without a shape."""

    name = "cuda.core"
    has_views = False

    def layout(self, array: Any) -> Layout:
        if not array.is_device_accessible or array.is_host_accessible:
            raise Unsupported("a buffer in memory of the host, and a recording reads device memory")
        return Layout(self, (array.size,), (1,), _BYTE, array.device_id)

    def address(self, array: Any) -> int:
        return int(array.handle)

    def numpy_dtype(self, layout: Layout) -> Any:
        return None

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        (size,) = layout.shape
        if gpu.backend() == "sim":
            return owner._view(size, owner, address - int(owner.handle))
        return gpu.Buffer.from_handle(address, size, owner=owner)

    def aliasing(self, layout: Layout, array: Any) -> Callable[[Any], Any]:
        if gpu.backend() == "sim":
            return partial(array._view, layout.shape[0])
        return super().aliasing(layout, array)

    def new(self, layout: Layout, stream: gpu.StreamHandle) -> Any:
        return stream.device.allocate(layout.shape[0], stream=stream.stream)


class _Byte(NamedTuple):
    itemsize: int


_BYTE = _Byte(1)


class _BytesAt:
    """Bytes at an address, as PyTorch takes them; it keeps this object alive."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


class _Interface:
    """An array at an address, described by the CUDA array interface."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = interface


def _interface_of(layout: Layout, address: int, owner: Any) -> _Interface:
    element = layout.dtype.element
    typestr = element.typestr
    if typestr is None:
        raise Unsupported(f"a tensor of {element.name}, which only DLPack can describe")
    interface = {
        "shape": layout.shape,
        "strides": layout.strides,
        "typestr": typestr,
        "data": (address, layout.dtype.is_readonly),
        "version": 3,
    }
    return _Interface(interface, owner)


def _is_buffer(kind: type) -> bool:
    return kind.__name__ == "Buffer" and kind.__module__.startswith(("cuda.core", "headrace.gpu.sim"))


_PARTS: tuple[tuple[Callable[[type, set[str]], bool], ArrayKind], ...] = (
    (lambda kind, names: kind is Tensor, _Tensor()),
    (lambda kind, names: "cupy.ndarray" in names, _CuPy()),
    (lambda kind, names: "torch.Tensor" in names, _Torch()),
    (lambda kind, names: "numba.DeviceNDArray" in names, _Numba()),
    (lambda kind, names: _is_buffer(kind), _Buffer()),
)


def _find_kind(kind: type) -> ArrayKind | None:
    names = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__}
    names = {name.replace("numba_cuda.", "numba.") for name in names}
    for is_of, found in _PARTS:
        if is_of(kind, names):
            return found
    return None


_kinds: dict[type, ArrayKind] = {}
_others: set[type] = set()
