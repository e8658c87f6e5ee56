"""Channel: a bounded buffer between a run and a program, whose waits suit threads and tasks of asyncio alike.

Whoever must wait registers a future under the lock, and every change completes all of them. A thread waits for
its future through `waits`, so that Ctrl-C ends the wait; a task awaits it. Whoever wakes up attempts again, so a
wait that is cancelled or times out has taken nothing and lost nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from headrace import waits

T = TypeVar("T")

PENDING: Final = object()
"""What an attempt returns that has to wait."""


class Channel(Generic[T]):
    """A bounded buffer; `attempt` functions run under its lock and return PENDING to wait for a change."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: deque[T] = deque()
        self.is_closed = False
        self._lock = threading.Lock()
        self._waiting: list[Future[None]] = []

    @property
    def is_full(self) -> bool:
        """Whether there is no room."""
        return len(self.items) >= self.size

    def change(self, action: Callable[[], Any]) -> Any:
        """Call a function under the lock, wake everyone who waits, and return its result."""
        with self._lock:
            result = action()
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(None)
        return result

    def wait(self, attempt: Callable[[], Any], timeout: float | None = None) -> Any:
        """Attempt until the result is not PENDING, and return it; raise TimeoutError after `timeout` seconds."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            result, changed = self._attempt(attempt)
            if changed is None:
                return result
            try:
                in_time = waits.wait_for_futures((changed,), None if until is None else until - monotonic())
            except BaseException:
                self._forget(changed)
                raise
            if not in_time:
                self._forget(changed)
                raise TimeoutError

    async def wait_async(self, attempt: Callable[[], Any]) -> Any:
        """Attempt until the result is not PENDING, and return it; a task of asyncio awaits the changes."""
        from asyncio import wrap_future

        while True:
            result, changed = self._attempt(attempt)
            if changed is None:
                return result
            try:
                await wrap_future(changed)
            finally:
                self._forget(changed)

    def _attempt(self, attempt: Callable[[], Any]) -> tuple[Any, Future[None] | None]:
        with self._lock:
            result = attempt()
            if result is not PENDING:
                return result, None
            changed: Future[None] = Future()
            self._waiting.append(changed)
            return None, changed

    def _forget(self, changed: Future[None]) -> None:
        with self._lock:
            if changed in self._waiting:
                self._waiting.remove(changed)
