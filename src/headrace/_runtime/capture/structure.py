"""What a message looks like: its arrays, and the containers and values around them.

A recording belongs to messages of one signature: the layout of each array, and the value of everything else. The
arrays of a message are its leaves, in the order in which they are found; `rebuild` puts others in their places.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeAlias

from headrace._runtime.capture.device_arrays import Layout, Unsupported, kind_of
from headrace.tensor import TensorMap

__all__ = ["Leaves", "Signature", "differing_values", "flatten", "layouts_of", "rebuild"]

Signature: TypeAlias = Hashable
Leaves: TypeAlias = "list[Any]"

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class _Container(tuple[Any, ...]):
    """A container in a signature: its type, its keys, and the signatures of its items."""

    __slots__ = ()


class _Value(tuple[Any, ...]):
    """A value in a signature: its type and itself."""

    __slots__ = ()


def flatten(data: Any, leaves: Leaves) -> Signature:
    """Return the signature of an object, and add its arrays to a list; raise Unsupported for other objects."""
    try:
        return _flatten(data, leaves)
    except RecursionError:
        raise Unsupported("a container that contains itself, or too many within each other") from None


def _flatten(data: Any, leaves: Leaves) -> Signature:
    kind = kind_of(data)
    if kind is not None:
        leaves.append(data)
        return kind.layout(data)
    if type(data) in _PLAIN:
        if type(data) is float or type(data) is complex:
            return _Value((type(data), repr(data)))  # 0.0 and -0.0 are equal, and nan is not equal to itself
        return _Value((type(data), data))
    if type(data) is dict or type(data) is TensorMap:
        if not all(type(key) is str or type(key) is int for key in data):
            raise Unsupported("a dict whose keys are neither text nor numbers")
        return _Container(
            (type(data), tuple(data), *[_flatten(item, leaves) for item in list(data.values())])
        )
    if type(data) is tuple or type(data) is list or _is_named_tuple(data):
        if getattr(data, "__dict__", None):
            raise Unsupported(f"a named tuple with attributes of its own, of type {type(data).__name__!r}")
        return _Container((type(data), len(data), *[_flatten(item, leaves) for item in data]))
    if isinstance(data, enum.Enum):
        return _Value((type(data), data))
    raise Unsupported(_why(data))


def rebuild(signature: Signature, leaves: Iterator[Any]) -> Any:
    """Return an object of a signature with other arrays in it."""
    if type(signature) is Layout:
        return next(leaves)
    assert isinstance(signature, tuple)
    if type(signature) is _Value:
        kind, value = signature
        return kind(value) if kind is float or kind is complex else value
    kind, keys, *items = signature
    parts = [rebuild(item, leaves) for item in items]
    if kind is dict:
        return dict(zip(keys, parts, strict=True))
    if kind is TensorMap:
        made = TensorMap.__new__(TensorMap)
        for key, part in zip(keys, parts, strict=True):
            dict.__setitem__(made, key, part)
        return made
    if kind is list:
        return parts
    return tuple.__new__(kind, parts)  # the constructor of a named tuple may take something else


def layouts_of(signature: Signature) -> list[Layout]:
    """Return the layouts of the arrays, in their order."""
    if type(signature) is Layout:
        return [signature]
    found: list[Layout] = []
    if type(signature) is _Container:
        for item in signature[2:]:
            found += layouts_of(item)
    return found


def differing_values(one: Signature, other: Signature) -> bool:
    """Return whether two signatures differ in values alone, and not in the layout of an array."""
    return one != other and _without_values(one) == _without_values(other)


def _without_values(signature: Signature) -> Any:
    if type(signature) is _Value:
        return signature[0]
    if type(signature) is _Container:
        return (signature[0], *[_without_values(item) for item in signature[2:]])
    if type(signature) is tuple:  # of several inputs
        return tuple([_without_values(item) for item in signature])
    return signature


def _is_named_tuple(data: Any) -> bool:
    return isinstance(data, tuple) and hasattr(type(data), "_fields")


def _why(data: Any) -> str:
    kind = type(data)
    module = kind.__module__.partition(".")[0]
    for names, why in _REASONS:
        if names(module, kind.__name__):
            return why
    return (
        f"an object of type {kind.__name__!r}, and a recording knows arrays in device memory, numbers, text, and "
        "tuples, lists and dicts of these"
    )


_Names: TypeAlias = Callable[[str, str], bool]
_REASONS: tuple[tuple[_Names, str], ...] = (
    (
        lambda module, name: module in ("jax", "jaxlib"),
        "an array of JAX, which works on streams of its own, so that nothing of it would be recorded",
    ),
    (
        lambda module, name: module == "numpy" and name == "ndarray",
        (
            "an array in memory of the host, whose contents would stay what they were when the segment was "
            "recorded; copy it to the device before the segment"
        ),
    ),
    (
        lambda module, name: module == "numpy",
        (
            "a NumPy scalar, whose value would stay what it was when the segment was recorded; send an array on "
            "the device, or use a knob"
        ),
    ),
)
