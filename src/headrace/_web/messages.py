"""Messages: what a page sends, read field by field.

A page is not trusted: every field is checked, and a message with a wrong one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

Fields: TypeAlias = dict[str, Any]
"""The fields of a message, which has a ``"type"``."""

Choice = TypeVar("Choice")

_LARGEST = 1e300  # value of a parameter


class MalformedMessage(ValueError):
    """A message of a page is not one that it may send; `code` is that of the WebSocket's closing."""

    def __init__(self, text: str, code: int = 1007) -> None:
        super().__init__(text)
        self.code = code


def read_message(text: str) -> Fields:
    """Return the fields of a message; raise MalformedMessage unless it is a JSON object."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedMessage("a message must be a JSON object") from None
    if not isinstance(fields, dict):
        raise MalformedMessage("a message must be a JSON object")
    return fields


def read_value(text: str) -> bool | float | str:
    """Return the value of a request that sets one; raise MalformedMessage for all else than a simple JSON value."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedMessage("a value must be JSON: true, false, a number or a string") from None
    if not isinstance(value, (bool, str)):
        number({"value": value}, "value", _LARGEST)
    return value  # type: ignore[no-any-return]


def string(fields: Fields, name: str, most: int = 40) -> str:
    """Return a field that is a string of at most `most` characters."""
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise MalformedMessage(f"{name} must be a string of at most {most} characters")
    return value


def choice(fields: Fields, name: str, choices: Mapping[str, Choice]) -> Choice:
    """Return what a field chooses."""
    value = fields.get(name)
    if not isinstance(value, str) or value not in choices:
        raise MalformedMessage(f"{name} must be one of {', '.join(choices)}")
    return choices[value]


def number(fields: Fields, name: str, most: float = 1e6) -> float:
    """Return a field that is a number from -`most` to `most`."""
    value = fields.get(name)
    # Compared before it is converted, because an int may be too large for a float; false for NaN.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -most <= value <= most:
        raise MalformedMessage(f"{name} must be a number from {-most:g} to {most:g}")
    return float(value)


def whole(fields: Fields, name: str, least: int, most: int) -> int:
    """Return a field that is an int from `least` to `most`."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise MalformedMessage(f"{name} must be an int from {least} to {most}")
    return value
