"""Events: what the viewer's page reports of keys, mouse and window, read from its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace._web.messages import (
    Fields,
    MalformedMessage,
    choice,
    number,
    string,
    whole,
)
from headrace.viewer.keys import Key, KeyAndButtonAction, KeyModifiers, MouseButton, key_of


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


Event: TypeAlias = (
    KeyEvent | CharacterEvent | ButtonEvent | ScrollEvent | CursorEvent | ResizeEvent | CloseEvent
)

_ACTIONS = {"press": KeyAndButtonAction.PRESS, "release": KeyAndButtonAction.RELEASE}
_KEY_ACTIONS = {**_ACTIONS, "repeat": KeyAndButtonAction.REPEAT}
_MODIFIERS = {"shift": 1, "control": 2, "alt": 4, "caps_lock": 8, "num_lock": 16}
_MOST_PIXELS = 1 << 16


def event_of(fields: Fields) -> Event | None:
    """Return the event of a message's fields, as `read_event`."""
    kind = fields.get("type")
    if kind == "close":
        return CloseEvent()
    if kind == "key":
        code = string(fields, "code")
        action = choice(fields, "action", _KEY_ACTIONS)
        key = key_of(code)
        return None if key is None else KeyEvent(key, action, _modifiers(fields))
    if kind == "char":
        return CharacterEvent(whole(fields, "code_point", 1, 0x10FFFF))
    if kind == "button":
        button = MouseButton(whole(fields, "button", 0, 2))
        return ButtonEvent(button, choice(fields, "action", _ACTIONS), _modifiers(fields))
    if kind == "scroll":
        return ScrollEvent(number(fields, "x"), number(fields, "y"))
    if kind == "cursor":
        return CursorEvent(number(fields, "x"), number(fields, "y"), _modifiers(fields))
    if kind == "resize":
        names = ("width", "height", "framebuffer_width", "framebuffer_height")
        return ResizeEvent(*(whole(fields, name, 0, _MOST_PIXELS) for name in names))
    raise MalformedMessage(f"there is no event of the type {kind!r:.40}")


def _modifiers(fields: Fields) -> KeyModifiers:
    bits = whole(fields, "modifiers", 0, 31)
    return KeyModifiers(**{name: bool(bits & bit) for name, bit in _MODIFIERS.items()})
