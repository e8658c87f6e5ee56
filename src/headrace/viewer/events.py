"""Events: what the viewer's page reports of keys, mouse and window, and the program's function for them.

The function is called on a thread of its own. A slow one delays only later events. Of cursor positions that wait,
the last is kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from headrace import waits
from headrace._web.messages import Fields, MalformedMessage, choice, number, string, whole

Event: TypeAlias = dict[str, Any]
"""An event, as `HolovizOp` describes it."""

_MOST_WAITING = 1000


class Events:
    """Calls the function of a program, in the order of the events.

    Parameters
    ----------
    function
        The function; None if the program has none.
    on_close
        Called when the viewer is closed, around the call of the function for that.
    name
        The name of the viewer, for the thread.
    """

    def __init__(
        self,
        function: Callable[[Event], object] | None,
        on_close: Callable[[Callable[[], None]], None],
        name: str,
    ) -> None:
        self._function, self._on_close = function, on_close
        self._changed = threading.Condition()
        self._waiting: deque[Event] = deque()
        self._is_closing = False
        self.error: Exception | None = None
        """The first exception of the function, with a note that names the event."""
        self._thread = threading.Thread(target=self._work, name=f"headrace-events {name}", daemon=True)
        self._thread.start()

    def add(self, event: Event) -> None:
        """Queue an event, for which the function is called soon; may be called from any thread."""
        with self._changed:
            if event["type"] == "cursor" and self._waiting and self._waiting[-1]["type"] == "cursor":
                self._waiting[-1] = event
            elif len(self._waiting) < _MOST_WAITING or event["type"] == "close":
                self._waiting.append(event)
            self._changed.notify()

    def close(self) -> None:
        """Call the function no more, and end the thread."""
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
            if event["type"] == "close":
                self._on_close(partial(self._call, event))
            else:
                self._call(event)

    def _call(self, event: Event) -> None:
        if self._function is not None:
            try:
                self._function(event)
            except Exception as error:
                error.add_note(f"raised in on_event of a viewer, for the event {event['type']!r}")
                self.error = self.error or error


# What a page sends.

_MOST_PIXELS = 1 << 16
_BUTTONS = ("left", "middle", "right")
_MODIFIERS = {"shift": 1, "control": 2, "alt": 4, "caps_lock": 8, "num_lock": 16}
_PRESSES = {action: action for action in ("press", "release")}
_KEY_ACTIONS = {**_PRESSES, "repeat": "repeat"}


def event_of(fields: Fields) -> Event:
    """Return the event that a message of a page means."""
    kind = fields.get("type")
    match kind:
        case "key":
            values: Event = {
                "code": string(fields, "code"),
                "action": choice(fields, "action", _KEY_ACTIONS),
                "modifiers": _modifiers(fields),
            }
        case "char":
            values = {"text": chr(whole(fields, "code_point", 1, 0x10FFFF))}
        case "button":
            values = {
                "button": _BUTTONS[whole(fields, "button", 0, 2)],
                "action": choice(fields, "action", _PRESSES),
                "modifiers": _modifiers(fields),
            }
        case "scroll" | "cursor":
            values = {axis: number(fields, axis) for axis in ("x", "y")}
        case "resize":
            sides = ("width", "height", "framebuffer_width", "framebuffer_height")
            values = {side: whole(fields, side, 0, _MOST_PIXELS) for side in sides}
        case "close":
            values = {}
        case _:
            raise MalformedMessage(f"there is no event of the type {kind!r:.40}")
    return {"type": kind, **values}


def _modifiers(fields: Fields) -> tuple[str, ...]:
    bits = whole(fields, "modifiers", 0, 31)
    return tuple(name for name, bit in _MODIFIERS.items() if bits & bit)
