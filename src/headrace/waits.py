"""Waits that Ctrl-C can end.

Python runs the handlers of signals on the main thread, between two of its steps. A signal interrupts a wait for a
lock. But one that arrives in the moment before the wait begins, or that the system delivers to another thread, does
not: its handler would run only when the wait is over, which may be never. So the main thread waits for `_LONGEST`
at a time and looks for signals in between. Other threads run no handlers and wait in one piece.

All of headrace waits through this module, on whichever thread (`tests/test_waiting_rule.py`). A lock that is held
only for a moment is taken with ``with`` as usual.

A handler that raises leaves a lock locked if it does so after ``lock.acquire(blocking=False)`` and before the
``try`` that releases the lock. ``with`` has no such moment, but waits. So a function that tries a lock is
`shielded`: a run holds back there what a handler raises.

Decided against: `signal.set_wakeup_fd`, which belongs to the program, and to one event loop at a time.

This module is not compiled: handlers run between two steps of the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from threading import current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import CodeType, FrameType

_LONGEST = 1.0  # seconds after which the main thread looks for signals in any case

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...


def runs_signal_handlers() -> bool:
    """Return whether this thread is the main thread."""
    return current_thread() is main_thread()


def shielded(function: F) -> F:
    """Let the handlers of a run raise nothing in a function and in what it calls, on the main thread."""
    code = getattr(function, "__code__", None)
    if code is not None:  # what is compiled runs no handlers
        _shielded.add(code)
    return function


def is_shielded(frame: FrameType | None) -> bool:
    """Return whether a frame, or one that called it, is that of a shielded function."""
    while frame is not None:
        if frame.f_code in _shielded:
            return True
        frame = frame.f_back
    return False


_shielded: set[CodeType] = set()


def acquire(lock: _Lock, seconds: float | None = None) -> bool:
    """Acquire a lock or a semaphore (True), or return False when `seconds` have passed."""
    return _in_parts(lambda limit: lock.acquire(timeout=-1 if limit is None else limit), seconds)


def wait(waited_for: threading.Condition | threading.Event, seconds: float | None = None) -> bool:
    """Wait for a notification or an event (True), or until `seconds` have passed (False).

    No notification is lost between two parts of a wait: the lock of the condition is held then.
    """
    return _in_parts(waited_for.wait, seconds)


def wait_for(condition: threading.Condition, predicate: Callable[[], T], seconds: float | None = None) -> T:
    """Wait until a predicate is true, or until `seconds` have passed; return its last result."""
    until = None if seconds is None else monotonic() + seconds
    while not (result := predicate()):
        left = None if until is None else until - monotonic()
        if left is not None and left <= 0:
            break
        wait(condition, left)
    return result


def join(thread: threading.Thread, seconds: float | None = None) -> bool:
    """Wait until a thread has ended (True), or until `seconds` have passed (False)."""

    def has_ended(limit: float | None) -> bool:
        thread.join(limit)
        return not thread.is_alive()

    return _in_parts(has_ended, seconds)


def wait_for_futures(futures: Collection[Future[Any]], seconds: float | None = None) -> bool:
    """Wait until all futures are done (True), or until `seconds` have passed (False).

    `concurrent.futures.wait` holds the locks of the futures at the beginning and at the end of each wait. If a
    signal handler raised there, a future could stay locked, and the thread that is to end it would wait for ever.
    """
    until = None if seconds is None else monotonic() + seconds
    for future in futures:
        end = _ends.get(future)
        if end is None:  # one for each future, however often it is waited for
            end = _End()
            future.add_done_callback(end.come)
            _ends[future] = end
        if not end.wait(None if until is None else until - monotonic()):
            return False
    return True


class _End:
    """The end of a future. Those who wait for it hold no lock that others need, wherever a handler raises."""

    __slots__ = ("_has_come", "_waiting")

    def __init__(self) -> None:
        self._has_come = False
        self._waiting: list[threading.Lock] = []

    def come(self, future: Future[Any]) -> None:
        self._has_come = True
        for lock in tuple(self._waiting):
            lock.release()

    def wait(self, seconds: float | None) -> bool:
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        try:
            return self._has_come or acquire(lock, seconds)
        finally:
            self._waiting.remove(lock)


_ends: WeakKeyDictionary[Future[Any], _End] = WeakKeyDictionary()


def limit(seconds: float | None) -> float | None:
    """Return how long this thread may wait at a time, if it is to wait for `seconds`."""
    if not runs_signal_handlers():
        return seconds
    return _LONGEST if seconds is None else min(seconds, _LONGEST)


def _in_parts(attempt: Callable[[float | None], bool], seconds: float | None) -> bool:
    """Attempt something that waits for as long as it is told, until it succeeds or `seconds` have passed."""
    if seconds is not None:
        seconds = min(max(seconds, 0.0), threading.TIMEOUT_MAX)  # a lock accepts no longer timeout
    if not runs_signal_handlers():
        return attempt(seconds)
    until = None if seconds is None else monotonic() + seconds
    while True:
        left = _LONGEST if until is None else until - monotonic()
        if attempt(min(max(left, 0.0), _LONGEST)):
            return True
        if until is not None and left <= _LONGEST:
            return False
