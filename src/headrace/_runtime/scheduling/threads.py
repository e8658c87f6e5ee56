"""WorkerThread: a thread with a way to wait for its end that Ctrl-C can interrupt.

A signal interrupts a wait for a lock. But one that arrives in the moment before the wait begins, or that the system
delivers to another thread, does not: its handler would run only when the wait is over. So the main thread, on which
handlers run, waits for `_LONGEST` at a time.

This module is not compiled: handlers run between two steps of the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.clock import Clock

__all__ = ["WorkerThread", "acquire_in_parts", "runs_signal_handlers"]

_LONGEST = 1.0  # seconds after which the main thread looks for signals in any case


def runs_signal_handlers() -> bool:
    """Return whether this thread is the main thread."""
    return current_thread() is main_thread()


def acquire_in_parts(lock: threading.Lock, seconds: float | None) -> bool:
    """Acquire a lock (True), or return False when `seconds` have passed; look for signals meanwhile."""
    until = None if seconds is None else monotonic() + seconds
    while True:
        left = _LONGEST if until is None else until - monotonic()
        if lock.acquire(timeout=min(max(left, 0.0), _LONGEST)):
            return True
        if until is not None and left <= _LONGEST:
            return False


class WorkerThread:
    """A thread with a way to wait for its end that can be interrupted by Ctrl-C and repeated.

    `Thread.join` cannot be repeated: in some versions of CPython, an interrupted join marks the thread as ended.
    """

    __slots__ = ("_entering", "_leaving", "_left", "thread")

    def __init__(self, work: Callable[[], None], clock: Clock, name: str) -> None:
        self._left = False
        self._entering = threading.Lock()
        self._entering.acquire()
        self._leaving = threading.Lock()
        self._leaving.acquire()

        def work_and_leave() -> None:
            try:
                with clock.attach():
                    self._entering.release()
                    work()
            finally:
                self._left = True
                if self._entering.locked():
                    self._entering.release()
                self._leaving.release()

        self.thread = threading.Thread(target=work_and_leave, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until it is attached to the clock."""
        self.thread.start()
        self._entering.acquire()

    def wait(self) -> None:
        """Wait until the thread has ended."""
        if not self._left:
            if runs_signal_handlers():
                acquire_in_parts(self._leaving, None)
            else:
                self._leaving.acquire()
        self.thread.join()
