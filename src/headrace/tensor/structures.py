"""Messages as trees: the arrays in them, the values of the host beside these, and the containers around both.

The structure of a message is hashable: its containers, their keys, the layout of each array, and the types of the
values of the host. What a program may test by identity (None, booleans, members of an enumeration) belongs to the
structure. A container without arrays is one value of the host, however long it is.

Values of the host in messages that are captured.

The values of the host in a message, such as a frame number, are no part of a graph. While a frame is recorded, a
`HostValue` stands for each of them. An operator can pass it on, and then the value of each frame takes the same way
past its replay. If an operator does anything else with it, the value would be frozen in the graph. So it counts as
*used*, and from then on the graph belongs to messages with this value.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from headrace.tensor import tree
from headrace.tensor.device_arrays import Layout, Unsupported, kind_of
from headrace.tensor.libraries import library_of_module

Structure: TypeAlias = Hashable
Leaves: TypeAlias = "list[Any]"

_SINGLE = (bool, type(None))
_PLAIN = (int, float, complex, str, bytes)
_TOO_DEEP = f"a container that contains itself, or more than {tree.DEEPEST} within each other"


class _Container(tuple[Any, ...]):
    """A container in a structure: its type, its keys, and the structures of its items."""

    __slots__ = ()


class _Constant(tuple[Any, ...]):
    """A value in a structure: its type and itself."""

    __slots__ = ()


class _Host(tuple[Any, ...]):
    """The place of a value of the host in a structure: its type."""

    __slots__ = ()


def take_apart(data: Any, arrays: Leaves, values: Leaves, keeps_whole: bool = True) -> Structure:
    """Return the structure of a message, and add its arrays and its values of the host to two lists.

    Without `keeps_whole`, containers without arrays are taken apart as well, and each `rebuild` makes new ones.
    """
    return _take_apart(data, arrays, values, keeps_whole, tree.DEEPEST)


def _take_apart(data: Any, arrays: Leaves, values: Leaves, keeps_whole: bool, levels: int) -> Structure:
    kind = kind_of(data)
    if kind is not None:
        try:
            layout = kind.layout(data)
        except Unsupported:  # it is in memory of the host, say
            values.append(data)
            return _Host((type(data),))
        arrays.append(data)
        return layout
    if type(data) in _SINGLE or isinstance(data, enum.Enum):
        return _Constant((type(data), data))
    items = tree.inside(data)
    if items is None:
        values.append(data)
        return _Host((type(data),))
    if not levels:
        raise Unsupported(_TOO_DEEP)
    keys, parts = items
    first_array, first_value = len(arrays), len(values)
    structures = [_take_apart(part, arrays, values, keeps_whole, levels - 1) for part in parts]
    if (
        keeps_whole and len(arrays) == first_array
    ):  # a container without arrays is one value, however long it is
        del values[first_value:]
        values.append(data)
        return _Host((type(data),))
    return _Container((type(data), keys, *structures))


def rebuild(structure: Structure, arrays: Iterator[Any], values: Iterator[Any]) -> Any:
    """Return a message of a structure, with other arrays and values in their places."""
    if type(structure) is Layout:
        return next(arrays)
    if type(structure) is _Host:
        return next(values)
    assert isinstance(structure, tuple)
    if type(structure) is _Constant:
        return structure[1]
    kind, keys, *items = structure
    parts = [rebuild(item, arrays, values) for item in items]
    return tree.build(kind, keys, parts)


def layouts_of(structure: Structure) -> list[Layout]:
    """Return the layouts of the arrays, in their order."""
    if type(structure) is Layout:
        return [structure]
    items = structure[2:] if type(structure) is _Container else ()
    return [layout for item in items for layout in layouts_of(item)]


def key_of_value(value: Any, levels: int = tree.DEEPEST) -> Hashable:
    """Return what a value is compared by; raise Unsupported if it cannot be compared reliably.

    The levels are counted, since a walk that ends at the interpreter's limit leaves finalizers no room to run.
    """
    kind: Any = type(value)
    if kind in (float, complex):
        return kind, repr(value)  # 0.0 and -0.0 are equal, and nan is not equal to itself
    if kind in _PLAIN or kind in _SINGLE or isinstance(value, enum.Enum):
        return kind, value
    items = tree.inside(value)
    if items is None:
        raise Unsupported(_why(value))
    if not levels:
        raise Unsupported(_TOO_DEEP)
    return kind, items[0], *[key_of_value(item, levels - 1) for item in items[1]]


class Same:
    """An object that is compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and self.value is other.value


def key_of_object(value: Any) -> Hashable:
    """Return what an object is compared by: its value, or its identity where values cannot be compared."""
    try:
        return key_of_value(value)
    except Unsupported:
        return Same(value)


def _why(data: Any) -> str:
    library = library_of_module(type(data).__module__)
    if library.uncapturable is not None:
        return library.uncapturable
    if kind_of(data) is not None:
        return f"an array of {library.name} that a graph cannot read; send one in memory of the device"
    return f"an object of type {type(data).__name__!r}, which cannot be compared from frame to frame"


class HostValueUsed(Exception):
    """A value of the host was used while a frame was recorded."""


class HostValue:
    """Stands for a value of the host while a frame is recorded: it can be passed on, and nothing else.

    Parameters
    ----------
    value, number
        The value, and its place among those of the frame. Its type belongs to the structure, so an operator may ask
        for it (`isinstance`).
    uses
        Gets the number if the value is used; a program may catch the error.
    """

    __slots__ = ("_kind", "_number", "_uses")

    def __init__(self, value: Any, number: int, uses: set[int]) -> None:
        self._kind = type(value)
        self._number = number
        self._uses = uses

    @staticmethod
    def number_of(value: HostValue) -> int:
        """Return the place of the value that one stands for."""
        return value._number

    def _use(self, *_: Any, **__: Any) -> NoReturn:
        self._uses.add(self._number)
        raise HostValueUsed

    __class__ = property(lambda self: self._kind)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # a protocol, such as that of arrays, which no value of the host has
            raise AttributeError(name)
        self._use()

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _use
    __int__ = __float__ = __complex__ = __index__ = __round__ = _use
    __abs__ = __neg__ = __pos__ = __invert__ = _use
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __divmod__ = _use
    __pow__ = __matmul__ = _use
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _use
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __rand__ = __ror__ = __rxor__ = _use
    __str__ = __repr__ = __format__ = __bytes__ = __fspath__ = __array__ = __copy__ = __deepcopy__ = _use
    __reduce_ex__ = __simulated_memory__ = _use  # a simulated kernel would use it when it runs


# What a program may ask for without a use: `callable(value)`, `isinstance(value, Iterable)`.
_PROTOCOLS = (
    *("__call__", "__len__", "__iter__", "__next__", "__contains__", "__getitem__", "__setitem__"),
    *("__delitem__", "__enter__", "__exit__", "__reversed__", "__bool__", "__hash__"),
)


def stand_in(value: Any, number: int, uses: set[int]) -> HostValue:
    """Return what stands for a value while a frame is recorded; it has the protocols of the value."""
    kind: Any = type(value)
    return _stand_in_type(kind)(value, number, uses)


@lru_cache(maxsize=256)
def _stand_in_type(kind: type) -> type[HostValue]:
    members = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    own = [name for name in _PROTOCOLS if members.get(name) is not None]
    made = type(
        "HostValue", (HostValue,), {"__slots__": (), "__hash__": None, **dict.fromkeys(own, HostValue._use)}
    )
    for pattern in (Sequence, Mapping):  # `match` looks at the type itself
        if issubclass(kind, pattern) and not issubclass(kind, (str, bytes, bytearray)):
            pattern.register(made)
    return made


def is_host_value(value: Any) -> bool:
    """Return whether something stands for a value; its `__class__` is that of the value."""
    return issubclass(type(value), HostValue)
