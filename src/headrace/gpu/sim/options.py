"""Options that are given as an options object, as a dict of its fields, or not at all."""

from __future__ import annotations

from typing import Any, TypeVar

_Options = TypeVar("_Options")


def options_of(kind: type[_Options], given: _Options | dict[str, Any] | None, noun: str) -> _Options:
    """Return the options object; the defaults if none is given."""
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    if isinstance(given, dict):
        return kind(**given)
    raise TypeError(f"{noun} options must be {kind.__name__} or a dict of its fields, got {given!r}")
