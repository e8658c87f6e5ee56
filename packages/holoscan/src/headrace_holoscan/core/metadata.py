"""MetadataDictionary: metadata with the names of the SDK, beside those of any dict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.core import MetadataDictionary as _MetadataDictionary


class MetadataDictionary(_MetadataDictionary):
    """A dict in which setting a name again follows a policy."""

    __slots__ = ()

    def set(self, key: str, value: Any, dtype: Any = None, cast_to_cpp: bool = False) -> None:
        """Set `key` by the policy.

        Parameters
        ----------
        key, value
            The name and the value.
        dtype, cast_to_cpp
            With `cast_to_cpp`, a number, a text or an iterable of them is stored as a plain Python object: a number
            as one of the kind of `dtype`, an iterable as a list.
        """
        super().set(key, _plain(value, dtype) if cast_to_cpp else value)

    def has_key(self, key: str) -> bool:
        """Return whether `key` is set."""
        return key in self

    def erase(self, key: str) -> bool:
        """Remove `key`, and return whether it was set."""
        return dict.pop(self, key, self) is not self

    def insert(self, other: Mapping[str, Any]) -> None:
        """Set the entries of `other` whose names are not set."""
        for key, value in other.items():
            self.setdefault(key, value)

    def merge(self, other: dict[str, Any]) -> None:
        """Move the entries of `other` whose names are not set to this dictionary."""
        for key in [key for key in other if key not in self]:
            self.set(key, other.pop(key))

    def swap(self, other: _MetadataDictionary) -> None:
        """Exchange the entries with those of `other`; the policies stay."""
        mine, theirs = dict(self), dict(other)
        self.clear()
        other.clear()
        self.update(theirs)
        other.update(mine)

    def type_dict(self) -> dict[str, str]:
        """Return the name of the type of each value."""
        return {key: type(value).__name__ for key, value in self.items()}

    def size(self) -> int:
        """Return the number of entries."""
        return len(self)


def _plain(value: Any, dtype: Any) -> Any:
    """Return a value as plain Python objects: lists of numbers and texts."""
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return [_plain(item, dtype) for item in value]
    kinds = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
    kind = None if dtype is None else kinds.get(dtype.kind)
    return value if kind is None else kind(value)
