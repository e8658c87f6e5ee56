"""Events: what the viewer's page reports of keys, mouse and window, as the callbacks that it means."""

from __future__ import annotations

from typing import Any, TypeAlias

from headrace._web.messages import Fields, MalformedMessage, choice, number, string, whole
from headrace.viewer.keys import KeyAndButtonAction, KeyModifiers, MouseButton, key_of

Calls: TypeAlias = dict[str, tuple[Any, ...]]
"""The arguments of callbacks, by their names."""

CURSOR, CLOSE = "cursor_pos_callback", "window_close_callback"
CALLBACKS = (
    *("key_callback", "unicode_char_callback", "mouse_button_callback", "scroll_callback", CURSOR),
    *("framebuffer_size_callback", "window_size_callback", CLOSE),
)
"""The names of the callbacks."""

_ACTIONS = {action.name.lower(): action for action in (KeyAndButtonAction.PRESS, KeyAndButtonAction.RELEASE)}
_KEY_ACTIONS = {**_ACTIONS, "repeat": KeyAndButtonAction.REPEAT}
_MODIFIERS = {"shift": 1, "control": 2, "alt": 4, "caps_lock": 8, "num_lock": 16}
_MOST_PIXELS = 1 << 16


def calls_of(fields: Fields) -> Calls:
    """Return the callbacks that a message means; none for a key without a name."""
    match fields.get("type"):
        case "key":
            key, action = key_of(string(fields, "code")), choice(fields, "action", _KEY_ACTIONS)
            return {} if key is None else {"key_callback": (key, action, _modifiers(fields))}
        case "char":
            return {"unicode_char_callback": (whole(fields, "code_point", 1, 0x10FFFF),)}
        case "button":
            button = MouseButton(whole(fields, "button", 0, 2))
            return {"mouse_button_callback": (button, choice(fields, "action", _ACTIONS), _modifiers(fields))}
        case "scroll":
            return {"scroll_callback": (number(fields, "x"), number(fields, "y"))}
        case "cursor":
            return {CURSOR: (number(fields, "x"), number(fields, "y"))}
        case "resize":
            return {
                callback: tuple(whole(fields, prefix + side, 0, _MOST_PIXELS) for side in ("width", "height"))
                for callback, prefix in (
                    ("framebuffer_size_callback", "framebuffer_"),
                    ("window_size_callback", ""),
                )
            }
        case "close":
            return {CLOSE: ()}
    raise MalformedMessage(f"there is no event of the type {fields.get('type')!r:.40}")


def _modifiers(fields: Fields) -> KeyModifiers:
    bits = whole(fields, "modifiers", 0, 31)
    return KeyModifiers(**{name: bool(bits & bit) for name, bit in _MODIFIERS.items()})
