"""Callbacks: what the viewer's page reports of keys, mouse and window, and the program's functions for it.

The functions are called on a thread of their own. A slow one delays only later ones. Of cursor positions that wait,
the last is kept.
"""

from __future__ import annotations

import enum
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from headrace import waits
from headrace._web.messages import Fields, MalformedMessage, choice, number, string, whole

Calls: TypeAlias = dict[str, tuple[Any, ...]]
"""The arguments of callbacks, by their names."""

_MOST_WAITING = 1000

CURSOR, CLOSE = "cursor_pos_callback", "window_close_callback"
CALLBACKS = (
    *("key_callback", "unicode_char_callback", "mouse_button_callback", "scroll_callback", CURSOR),
    *("framebuffer_size_callback", "window_size_callback", CLOSE),
)
"""The names of the callbacks."""


class Callbacks:
    """Calls the functions of a program, in the order of the events.

    Parameters
    ----------
    functions
        The functions by name, of those in `CALLBACKS`; None for those that the program does not have.
    on_close
        Called when the viewer is closed, around the program's own function for that.
    name
        The name of the viewer, for the thread.
    """

    def __init__(
        self,
        functions: dict[str, Callable[..., object] | None],
        on_close: Callable[[Callable[[], None]], None],
        name: str,
    ) -> None:
        self._functions, self._on_close = functions, on_close
        self._changed = threading.Condition()
        self._waiting: deque[Calls] = deque()
        self._is_closing = False
        self.error: Exception | None = None
        """The first exception of a callback, with a note that names it."""
        self._thread = threading.Thread(target=self._work, name=f"headrace-callbacks {name}", daemon=True)
        self._thread.start()

    def add(self, calls: Calls) -> None:
        """Queue what an event means, which is called soon; may be called from any thread."""
        with self._changed:
            if CURSOR in calls and self._waiting and CURSOR in self._waiting[-1]:
                self._waiting[-1] = calls
            elif len(self._waiting) < _MOST_WAITING or CLOSE in calls:
                self._waiting.append(calls)
            self._changed.notify()

    def close(self) -> None:
        """Call no more functions, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            waits.join(self._thread)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closing:
                    waits.wait(self._changed)
                if self._is_closing:
                    return
                calls = self._waiting.popleft()
            if CLOSE in calls:
                self._on_close(partial(self._call, calls))
            else:
                self._call(calls)

    def _call(self, calls: Calls) -> None:
        for name, arguments in calls.items():
            function = self._functions[name]
            if function is not None:
                try:
                    function(*arguments)
                except Exception as error:
                    error.add_note(f"raised in the {name} of a viewer")
                    self.error = self.error or error


# Keys and mouse buttons, and how a browser names them.


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


# What a page sends.

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
