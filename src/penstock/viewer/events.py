"""Events: what a page reports of keys, mouse and window, read from its messages.

A page is not trusted: every field is checked, and a message that is not one of these is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias

from penstock.viewer.keys import Key, KeyAndButtonAction, KeyModifiers, MouseButton, key_of

__all__ = [
    "ButtonEvent",
    "CharacterEvent",
    "CloseEvent",
    "CursorEvent",
    "Event",
    "KeyEvent",
    "MalformedEvent",
    "ResizeEvent",
    "ScrollEvent",
    "ShownEvent",
    "read_event",
]


class MalformedEvent(ValueError):
    """A message of a page is not an event."""


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """A key was pressed, released or repeated."""

    key: Key
    action: KeyAndButtonAction
    modifiers: KeyModifiers


@dataclass(frozen=True, slots=True)
class CharacterEvent:
    """A character was typed."""

    code_point: int


@dataclass(frozen=True, slots=True)
class ButtonEvent:
    """A mouse button was pressed or released."""

    button: MouseButton
    action: KeyAndButtonAction
    modifiers: KeyModifiers


@dataclass(frozen=True, slots=True)
class ScrollEvent:
    """The wheel was turned."""

    x_offset: float
    y_offset: float


@dataclass(frozen=True, slots=True)
class CursorEvent:
    """The cursor moved, to a place in pixels of the picture."""

    x: float
    y: float
    modifiers: KeyModifiers


@dataclass(frozen=True, slots=True)
class ResizeEvent:
    """The area that shows the picture has another size: in CSS pixels, and in those of the screen."""

    width: int
    height: int
    framebuffer_width: int
    framebuffer_height: int


@dataclass(frozen=True, slots=True)
class CloseEvent:
    """The viewer was closed."""


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """The page has shown a picture and takes another."""


Event: TypeAlias = (
    KeyEvent
    | CharacterEvent
    | ButtonEvent
    | ScrollEvent
    | CursorEvent
    | ResizeEvent
    | CloseEvent
    | ShownEvent
)

_ACTIONS = {"press": KeyAndButtonAction.PRESS, "release": KeyAndButtonAction.RELEASE}
_KEY_ACTIONS = {**_ACTIONS, "repeat": KeyAndButtonAction.REPEAT}
_MODIFIERS = {"shift": 1, "control": 2, "alt": 4, "caps_lock": 8, "num_lock": 16}
_MOST_PIXELS = 1 << 16


def read_event(text: str) -> Event | None:
    """Return the event of a message; None for a key without a name. Raise MalformedEvent for anything else."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedEvent("a message must be a JSON object") from None
    if not isinstance(fields, dict):
        raise MalformedEvent("a message must be a JSON object")
    kind = fields.get("type")
    if kind == "shown":
        return ShownEvent()
    if kind == "close":
        return CloseEvent()
    if kind == "key":
        code = _string(fields, "code")
        action = _choice(fields, "action", _KEY_ACTIONS)
        key = key_of(code)
        return None if key is None else KeyEvent(key, action, _modifiers(fields))
    if kind == "char":
        return CharacterEvent(_whole(fields, "code_point", 1, 0x10FFFF))
    if kind == "button":
        button = MouseButton(_whole(fields, "button", 0, 2))
        return ButtonEvent(button, _choice(fields, "action", _ACTIONS), _modifiers(fields))
    if kind == "scroll":
        return ScrollEvent(_number(fields, "x"), _number(fields, "y"))
    if kind == "cursor":
        return CursorEvent(_number(fields, "x"), _number(fields, "y"), _modifiers(fields))
    if kind == "resize":
        names = ("width", "height", "framebuffer_width", "framebuffer_height")
        return ResizeEvent(*(_whole(fields, name, 0, _MOST_PIXELS) for name in names))
    raise MalformedEvent(f"there is no event of the type {kind!r:.40}")


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > 40:
        raise MalformedEvent(f"{name} must be a short string")
    return value


def _choice(fields: dict[str, Any], name: str, choices: dict[str, Any]) -> Any:
    value = fields.get(name)
    if not isinstance(value, str) or value not in choices:
        raise MalformedEvent(f"{name} must be one of {', '.join(choices)}")
    return choices[value]


def _number(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not isfinite(value)
        or abs(value) > 1e6
    ):
        raise MalformedEvent(f"{name} must be a number")
    return float(value)


def _whole(fields: dict[str, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise MalformedEvent(f"{name} must be an int from {least} to {most}")
    return value


def _modifiers(fields: dict[str, Any]) -> KeyModifiers:
    bits = _whole(fields, "modifiers", 0, 31)
    return KeyModifiers(**{name: bool(bits & bit) for name, bit in _MODIFIERS.items()})
