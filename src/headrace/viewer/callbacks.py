"""Callbacks: functions of the program that are called for keys, mouse and window, on a thread of their own.

A slow callback delays only later callbacks. Of cursor positions that wait, the last is kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from headrace import waits
from headrace.viewer.events import CLOSE, CURSOR, Calls

_MOST_WAITING = 1000


class Callbacks:
    """Calls the functions of a program, in the order of the events.

    Parameters
    ----------
    functions
        The functions by name, of those in `events.CALLBACKS`; None for those that the program does not have.
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
