"""Keys and mouse buttons, as callbacks are given them, and how a browser names them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Key", "KeyAndButtonAction", "KeyModifiers", "MouseButton", "key_of"]


class Key(enum.IntEnum):
    """A key, by its place on the keyboard; the numbers are those of GLFW."""

    SPACE = 32
    APOSTROPHE = 39
    COMMA = 44
    MINUS = 45
    PERIOD = 46
    SLASH = 47
    ZERO = 48
    ONE = 49
    TWO = 50
    THREE = 51
    FOUR = 52
    FIVE = 53
    SIX = 54
    SEVEN = 55
    EIGHT = 56
    NINE = 57
    SEMICOLON = 59
    EQUAL = 61
    A = 65
    B = 66
    C = 67
    D = 68
    E = 69
    F = 70
    G = 71
    H = 72
    I = 73  # noqa: E741
    J = 74
    K = 75
    L = 76
    M = 77
    N = 78
    O = 79  # noqa: E741
    P = 80
    Q = 81
    R = 82
    S = 83
    T = 84
    U = 85
    V = 86
    W = 87
    X = 88
    Y = 89
    Z = 90
    LEFT_BRACKET = 91
    BACKSLASH = 92
    RIGHT_BRACKET = 93
    GRAVE_ACCENT = 96
    ESCAPE = 256
    ENTER = 257
    TAB = 258
    BACKSPACE = 259
    INSERT = 260
    DELETE = 261
    RIGHT = 262
    LEFT = 263
    DOWN = 264
    UP = 265
    PAGE_UP = 266
    PAGE_DOWN = 267
    HOME = 268
    END = 269
    CAPS_LOCK = 280
    SCROLL_LOCK = 281
    NUM_LOCK = 282
    PRINT_SCREEN = 283
    PAUSE = 284
    F1 = 290
    F2 = 291
    F3 = 292
    F4 = 293
    F5 = 294
    F6 = 295
    F7 = 296
    F8 = 297
    F9 = 298
    F10 = 299
    F11 = 300
    F12 = 301
    F13 = 302
    F14 = 303
    F15 = 304
    F16 = 305
    F17 = 306
    F18 = 307
    F19 = 308
    F20 = 309
    F21 = 310
    F22 = 311
    F23 = 312
    F24 = 313
    F25 = 314
    KP_0 = 320
    KP_1 = 321
    KP_2 = 322
    KP_3 = 323
    KP_4 = 324
    KP_5 = 325
    KP_6 = 326
    KP_7 = 327
    KP_8 = 328
    KP_9 = 329
    KP_DECIMAL = 330
    KP_DIVIDE = 331
    KP_MULTIPLY = 332
    KP_SUBTRACT = 333
    KP_ADD = 334
    KP_ENTER = 335
    KP_EQUAL = 336
    LEFT_SHIFT = 340
    LEFT_CONTROL = 341
    LEFT_ALT = 342
    LEFT_SUPER = 343
    RIGHT_SHIFT = 344
    RIGHT_CONTROL = 345
    RIGHT_ALT = 346
    RIGHT_SUPER = 347
    MENU = 348


class KeyAndButtonAction(enum.Enum):
    """What happened to a key or a mouse button."""

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


# The names that a browser has for keys (KeyboardEvent.code), other than letters, digits and F keys.
_CODES = {
    "Space": "SPACE",
    "Quote": "APOSTROPHE",
    "Comma": "COMMA",
    "Minus": "MINUS",
    "Period": "PERIOD",
    "Slash": "SLASH",
    "Semicolon": "SEMICOLON",
    "Equal": "EQUAL",
    "BracketLeft": "LEFT_BRACKET",
    "Backslash": "BACKSLASH",
    "BracketRight": "RIGHT_BRACKET",
    "Backquote": "GRAVE_ACCENT",
    "Escape": "ESCAPE",
    "Enter": "ENTER",
    "Tab": "TAB",
    "Backspace": "BACKSPACE",
    "Insert": "INSERT",
    "Delete": "DELETE",
    "ArrowRight": "RIGHT",
    "ArrowLeft": "LEFT",
    "ArrowDown": "DOWN",
    "ArrowUp": "UP",
    "PageUp": "PAGE_UP",
    "PageDown": "PAGE_DOWN",
    "Home": "HOME",
    "End": "END",
    "CapsLock": "CAPS_LOCK",
    "ScrollLock": "SCROLL_LOCK",
    "NumLock": "NUM_LOCK",
    "PrintScreen": "PRINT_SCREEN",
    "Pause": "PAUSE",
    "NumpadDecimal": "KP_DECIMAL",
    "NumpadDivide": "KP_DIVIDE",
    "NumpadMultiply": "KP_MULTIPLY",
    "NumpadSubtract": "KP_SUBTRACT",
    "NumpadAdd": "KP_ADD",
    "NumpadEnter": "KP_ENTER",
    "NumpadEqual": "KP_EQUAL",
    "ShiftLeft": "LEFT_SHIFT",
    "ControlLeft": "LEFT_CONTROL",
    "AltLeft": "LEFT_ALT",
    "MetaLeft": "LEFT_SUPER",
    "ShiftRight": "RIGHT_SHIFT",
    "ControlRight": "RIGHT_CONTROL",
    "AltRight": "RIGHT_ALT",
    "MetaRight": "RIGHT_SUPER",
    "ContextMenu": "MENU",
}
_CODES.update((f"Key{letter}", letter) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CODES.update((f"F{number}", f"F{number}") for number in range(1, 26))
_CODES.update((f"Numpad{digit}", f"KP_{digit}") for digit in range(10))
_CODES.update((f"Digit{digit}", Key(ord("0") + digit).name) for digit in range(10))


def key_of(code: str) -> Key | None:
    """Return the key that a browser names, or None for one that callbacks have no name for."""
    name = _CODES.get(code)
    return None if name is None else Key[name]
