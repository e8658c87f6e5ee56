"""Options given as an options object, as a dict of its fields, or not at all."""

from typing import Any, TypeVar

_Options = TypeVar("_Options")


def options_of(kind: type[_Options], given: "_Options | dict[str, Any] | None", noun: str) -> _Options:
    """Return the options object that was meant."""
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    if isinstance(given, dict):
        return kind(**given)
    raise TypeError(f"{noun} options must be {kind.__name__} or a dict of its fields, got {given!r}")
