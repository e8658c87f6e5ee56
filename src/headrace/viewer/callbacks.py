"""Callbacks: functions of the program that are called for keys, mouse and window, on a thread of their own.

A slow callback delays only later callbacks. Of cursor positions that wait, the last is kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

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

CALLBACKS: dict[str, tuple[type, tuple[str, ...]]] = {
    "key_callback": (KeyEvent, ("key", "action", "modifiers")),
    "unicode_char_callback": (CharacterEvent, ("code_point",)),
    "mouse_button_callback": (ButtonEvent, ("button", "action", "modifiers")),
    "scroll_callback": (ScrollEvent, ("x_offset", "y_offset")),
    "cursor_pos_callback": (CursorEvent, ("x", "y")),
    "framebuffer_size_callback": (ResizeEvent, ("framebuffer_width", "framebuffer_height")),
    "window_size_callback": (ResizeEvent, ("width", "height")),
    "window_close_callback": (CloseEvent, ()),
}
"""The callbacks: the event of each, and the fields that it is called with."""

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
            if isinstance(event, CloseEvent):
                self._on_close(partial(self._call, event))
            else:
                self._call(event)

    def _call(self, event: Event) -> None:
        for name, function in self._functions.items():
            kind, fields = CALLBACKS[name]
            if isinstance(event, kind):
                try:
                    function(*(getattr(event, field) for field in fields))
                except Exception as error:
                    error.add_note(f"raised in the {name} of a viewer")
                    self.error = self.error or error
