"""Callbacks: functions of the program that are called for keys, mouse and window, on a thread of their own.

A slow callback delays only later callbacks. Of cursor positions that wait, the last is kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import waits
from headrace.viewer.events import (
    ButtonEvent,
    CharacterEvent,
    CloseEvent,
    CursorEvent,
    Event,
    KeyEvent,
    ResizeEvent,
    ScrollEvent,
)

CALLBACKS = (
    "key_callback",
    "unicode_char_callback",
    "mouse_button_callback",
    "scroll_callback",
    "cursor_pos_callback",
    "framebuffer_size_callback",
    "window_size_callback",
    "window_close_callback",
)
_MOST_WAITING = 1000


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
        self._functions = {key: function for key, function in functions.items() if function is not None}
        self._on_close = on_close
        self._changed = threading.Condition()
        self._waiting: deque[Event] = deque()
        self._is_closing = False
        self.error: Exception | None = None
        """The first exception of a callback, with a note that names it."""
        self._thread = threading.Thread(target=self._work, name=f"headrace-callbacks {name}", daemon=True)
        self._thread.start()

    def add(self, event: Event) -> None:
        """Queue an event, whose callback is called soon; may be called from any thread."""
        with self._changed:
            if (
                isinstance(event, CursorEvent)
                and self._waiting
                and isinstance(self._waiting[-1], CursorEvent)
            ):
                self._waiting[-1] = event
            elif len(self._waiting) < _MOST_WAITING or isinstance(event, CloseEvent):
                self._waiting.append(event)
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
                event = self._waiting.popleft()
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case KeyEvent(key, action, modifiers):
                self._call("key_callback", key, action, modifiers)
            case CharacterEvent(code_point):
                self._call("unicode_char_callback", code_point)
            case ButtonEvent(button, action, modifiers):
                self._call("mouse_button_callback", button, action, modifiers)
            case ScrollEvent(x, y):
                self._call("scroll_callback", x, y)
            case CursorEvent(x, y):
                self._call("cursor_pos_callback", x, y)
            case ResizeEvent(width, height, framebuffer_width, framebuffer_height):
                self._call("framebuffer_size_callback", framebuffer_width, framebuffer_height)
                self._call("window_size_callback", width, height)
            case CloseEvent():
                self._on_close(lambda: self._call("window_close_callback"))

    def _call(self, name: str, *arguments: Any) -> None:
        function = self._functions.get(name)
        if function is None:
            return
        try:
            function(*arguments)
        except Exception as error:
            error.add_note(f"raised in the {name} of a viewer")
            self.error = self.error or error
