"""Holoviz's callbacks: the events of the viewer's page as the SDK's functions are told them, with GLFW's keys."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALLBACKS = (
    *("key_callback", "unicode_char_callback", "mouse_button_callback", "scroll_callback"),
    *("cursor_pos_callback", "framebuffer_size_callback", "window_size_callback", "window_close_callback"),
)
"""The names of the callbacks."""


class Key(enum.IntEnum):
    """A key, by its place on the keyboard; the numbers are those of GLFW."""

    SPACE, APOSTROPHE = 32, 39
    COMMA, MINUS, PERIOD, SLASH = range(44, 48)
    ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT, NINE = range(48, 58)
    SEMICOLON, EQUAL = 59, 61
    A, B, C, D, E, F, G, H, I, J, K, L, M = range(65, 78)  # noqa: E741
    N, O, P, Q, R, S, T, U, V, W, X, Y, Z = range(78, 91)  # noqa: E741
    LEFT_BRACKET, BACKSLASH, RIGHT_BRACKET = range(91, 94)
    GRAVE_ACCENT = 96
    ESCAPE, ENTER, TAB, BACKSPACE, INSERT, DELETE = range(256, 262)
    RIGHT, LEFT, DOWN, UP, PAGE_UP, PAGE_DOWN, HOME, END = range(262, 270)
    CAPS_LOCK, SCROLL_LOCK, NUM_LOCK, PRINT_SCREEN, PAUSE = range(280, 285)
    F1, F2, F3, F4, F5, F6, F7, F8, F9, F10, F11, F12 = range(290, 302)
    F13, F14, F15, F16, F17, F18, F19, F20, F21, F22, F23, F24, F25 = range(302, 315)
    KP_0, KP_1, KP_2, KP_3, KP_4, KP_5, KP_6, KP_7, KP_8, KP_9 = range(320, 330)
    KP_DECIMAL, KP_DIVIDE, KP_MULTIPLY, KP_SUBTRACT, KP_ADD, KP_ENTER, KP_EQUAL = range(330, 337)
    LEFT_SHIFT, LEFT_CONTROL, LEFT_ALT, LEFT_SUPER = range(340, 344)
    RIGHT_SHIFT, RIGHT_CONTROL, RIGHT_ALT, RIGHT_SUPER, MENU = range(344, 349)


class KeyAndButtonAction(enum.Enum):
    """An event of a key or a mouse button."""

    PRESS = 0
    RELEASE = 1
    REPEAT = 2


class MouseButton(enum.Enum):
    """A mouse button."""

    LEFT = 0
    MIDDLE = 1
    RIGHT = 2


@dataclass(frozen=True, slots=True)
class KeyModifiers:
    """The modifier keys that were held, and the locks that were on."""

    shift: bool = False
    control: bool = False
    alt: bool = False
    caps_lock: bool = False
    num_lock: bool = False


# The names that a browser has for keys (KeyboardEvent.code), where they are others than ours.
_CODES = {
    "Quote": "APOSTROPHE",
    "BracketLeft": "LEFT_BRACKET",
    "BracketRight": "RIGHT_BRACKET",
    "Backquote": "GRAVE_ACCENT",
    "ContextMenu": "MENU",
    **{f"Arrow{way}": way.upper() for way in ("Left", "Right", "Up", "Down")},
    **{
        f"{key}{side}": f"{side.upper()}_{name}"
        for key, name in (("Shift", "SHIFT"), ("Control", "CONTROL"), ("Alt", "ALT"), ("Meta", "SUPER"))
        for side in ("Left", "Right")
    },
    **{f"Digit{digit}": Key(ord("0") + digit).name for digit in range(10)},
}


def key_of(code: str) -> Key | None:
    """Return the key that a browser names, or None for one that callbacks have no name for."""
    # Other names follow a rule: "PageUp" is PAGE_UP, "NumpadAdd" is KP_ADD, "KeyA" is A.
    words = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", code).upper()
    name = _CODES.get(code) or words.replace("NUMPAD_", "KP_").removeprefix("KEY_")
    return Key.__members__.get(name)


def calls_of(event: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of the callbacks that an event means; none for a key without a name."""
    match event["type"]:
        case "key":
            key = key_of(event["code"])
            return {} if key is None else {"key_callback": (key, *_press(event))}
        case "char":
            return {"unicode_char_callback": (ord(event["text"]),)}
        case "button":
            return {"mouse_button_callback": (MouseButton[event["button"].upper()], *_press(event))}
        case "scroll":
            return {"scroll_callback": (event["x"], event["y"])}
        case "cursor":
            return {"cursor_pos_callback": (event["x"], event["y"])}
        case "resize":
            return {
                "framebuffer_size_callback": (event["framebuffer_width"], event["framebuffer_height"]),
                "window_size_callback": (event["width"], event["height"]),
            }
        case "close":
            return {"window_close_callback": ()}
    return {}


def _press(event: Mapping[str, Any]) -> tuple[KeyAndButtonAction, KeyModifiers]:
    return KeyAndButtonAction[event["action"].upper()], KeyModifiers(
        **dict.fromkeys(event["modifiers"], True)
    )
