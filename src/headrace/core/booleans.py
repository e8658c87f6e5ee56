"""Flags: from a program or a configuration file (`boolean`), and from the environment (`flag`, `is_set`)."""

from __future__ import annotations

import os
from typing import Any

from headrace.brief import brief

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
        raise TypeError(f"{what} must be True or False, not {brief(value)}")
    return bool(value)


def flag(text: str) -> bool:
    """Return a flag of the environment, which is text, as a bool."""
    if text.strip().lower() not in (*_YES, *_NO):
        raise ValueError(f"must be one of {', '.join((*_YES, *_NO))}")
    return text.strip().lower() in _YES


def is_set(variable: str) -> bool:
    """Return a flag of the environment, which is False if it is not there; raise ValueError if it is none."""
    text = os.environ.get(variable, "")
    try:
        return bool(text.strip()) and flag(text)
    except ValueError as error:
        raise ValueError(f"{variable}={text}: {error}") from None
