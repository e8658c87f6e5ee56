"""A message as a tree: its containers, and the leaves in them.

Containers are dicts, lists, tuples, OrderedDicts, deques, named tuples, dataclasses and TensorMaps. All other
objects are leaves. So are sets, and other subclasses of the built-in containers, which may hold more than their
items. `map` returns a message with other leaves in their places. `once` visits everything that objects lead to,
whatever that means to the caller, and ends on cycles.

Decided against: `optree`, a pytree in C++. For the messages of a pipeline it is no faster, because making
its description of the structure costs more than so few leaves. It sorts the keys of a dict, and a message
has to come back in its own order. Every program would depend on it and import it, and `once`, which
walks instances, closures and cycles, would remain.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, TypeAlias

from headrace.tensor.tensor_map import TensorMap

# A dataclass that is one of these as well has contents beside its fields.
_MORE_THAN_FIELDS = (
    type,
    tuple,
    list,
    dict,
    set,
    frozenset,
    str,
    bytes,
    bytearray,
    int,
    float,
    BaseException,
)
DEEPEST = 32
"""The number of levels of containers in a message."""


IsLeaf: TypeAlias = Callable[[Any], bool]
Visitor: TypeAlias = Callable[[Any, list[Any]], Iterable[Any]]


def leaves(data: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Return the leaves of a message in order; `is_leaf` and what is too deep are as for `map`."""
    found: list[Any] = []
    map(found.append, data, is_leaf)
    return found


def map(  # noqa: A001 (as in other trees)
    function: Callable[[Any], Any], data: Any, is_leaf: IsLeaf | None = None, levels: int = DEEPEST
) -> Any:
    """Return a message with the same containers, and with the function's result in place of each leaf.

    `is_leaf` tells whether an object is a leaf even if it is a container. A container below `levels` others is
    taken for a leaf.
    """
    contents = inside(data, is_leaf) if levels else None
    if contents is None:
        return function(data)
    keys, items = contents
    return build(type(data), keys, [map(function, item, is_leaf, levels - 1) for item in items])


def once(
    items: Iterable[Any],
    visitors: Mapping[type, Visitor],
    found: list[Any],
    most: int,
    skipped: Container[type] = (),
    seen: set[int] | None = None,
) -> None:
    """Visit objects and all that they lead to, each once.

    Parameters
    ----------
    items
        The objects to begin with.
    visitors
        The function for objects of each type, such as a dict with ``__missing__``. It is called with an object and
        `found`, and returns the objects that it leads to.
    found
        A list that the visitors fill. Objects that come after `most` others are added to it themselves.
    most
        The greatest number of objects to visit.
    skipped
        The types of objects that are not visited.
    seen
        The identities of objects that are not visited; those of the visited ones are added.
    """
    seen = set() if seen is None else seen
    queue = deque(items)
    while queue:
        data = queue.popleft()
        kind = type(data)
        if kind in skipped or id(data) in seen:
            continue
        if most == 0:
            found.append(data)
            continue
        most -= 1
        seen.add(id(data))
        queue.extend(visitors[kind](data, found))


def inside(data: Any, is_leaf: IsLeaf | None = None) -> tuple[tuple[Any, ...], Iterable[Any]] | None:
    """Return the keys and the items of a container, or None for a leaf."""
    kind = type(data)
    if is_leaf is not None and is_leaf(data):
        return None
    if kind is list or kind is tuple:
        return (), data
    if kind is dict or kind is TensorMap or (kind is OrderedDict and not vars(data)):
        return tuple(data), list(data.values())
    if kind is deque:
        return (data.maxlen,), list(data)
    # By its type alone: a leaf may object to being looked at.
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return None if getattr(data, "__dict__", None) else ((), data)
    if (
        dataclasses.is_dataclass(kind)
        and not issubclass(kind, _MORE_THAN_FIELDS)
        and not hasattr(kind, "__del__")  # a copy would release again what it owns, as a buffer its memory
    ):
        names = tuple([field.name for field in dataclasses.fields(kind)])
        attributes = getattr(data, "__dict__", ())
        if all(name in names for name in attributes) and all(hasattr(data, name) for name in names):
            return names, [getattr(data, name) for name in names]
    return None


def build(kind: type, keys: tuple[Any, ...], items: list[Any]) -> Any:
    """Return a container of a type, with the given keys or fields and items."""
    if kind is list:
        return items
    if issubclass(kind, tuple):
        return tuple.__new__(kind, items)  # the constructor of a named tuple may take something else
    if kind is deque:
        return deque(items, *keys)
    if kind is OrderedDict:
        return OrderedDict(zip(keys, items, strict=True))
    if issubclass(kind, dict):
        made: Any = kind.__new__(kind)
        dict.update(made, zip(keys, items, strict=True))  # a TensorMap would convert
        return made
    made = object.__new__(kind)
    for name, item in zip(keys, items, strict=True):
        object.__setattr__(made, name, item)  # a frozen dataclass has no other way
    return made
