"""boolean: check a flag from a program or a configuration file."""

from __future__ import annotations

from typing import Any

__all__ = ["boolean"]


def boolean(value: Any, what: str) -> bool:
    """Return a flag as a bool; raise for text, since ``bool("no")`` is True, and for other objects.

    Parameters
    ----------
    value
        True or False, of any library, or 1 or 0.
    what
        The name of the flag, for the error.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str | bytes) or not any(value == flag for flag in (True, False)):
        raise TypeError(f"{what} must be True or False, not {value!r}")
    return bool(value)
