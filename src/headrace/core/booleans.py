"""Flags: from a program or a configuration file (`boolean`), and from the environment (`flag`)."""

from __future__ import annotations

from typing import Any

_YES = ("1", "true", "on", "yes")
_NO = ("0", "false", "off", "no")


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


def flag(text: str) -> bool:
    """Return a flag of the environment, which is text, as a bool."""
    if text.strip().lower() not in (*_YES, *_NO):
        raise ValueError(f"must be one of {', '.join((*_YES, *_NO))}")
    return text.strip().lower() in _YES
