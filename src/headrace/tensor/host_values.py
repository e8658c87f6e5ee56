"""Values of the host in messages that are captured.

The values of the host in a message, such as a frame number, are no part of a graph. While a frame is recorded, a
`HostValue` stands for each of them. An operator can pass it on, and then the value of each frame takes the same way
past its replay. If an operator does anything else with it, the value would be frozen in the graph. So it counts as
*used*, and from then on the graph belongs to messages with this value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn


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
