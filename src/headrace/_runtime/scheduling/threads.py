"""WorkerThread: a thread with a way to wait for its end that Ctrl-C can interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace import waits
from headrace.gpu.current import leave

if TYPE_CHECKING:
    from headrace.core.clock import Clock


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
                leave()  # another thread may be given its number
                self._left = True
                if self._entering.locked():
                    self._entering.release()
                self._leaving.release()

        self.thread = threading.Thread(target=work_and_leave, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until it is attached to the clock."""
        self.thread.start()
        waits.acquire(self._entering)

    def wait(self) -> None:
        """Wait until the thread has ended."""
        if not self._left:
            waits.acquire(self._leaving)
        waits.join(self.thread)
