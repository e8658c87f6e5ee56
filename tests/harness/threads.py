"""Threads that wait for each other, and threads that take turns more often than they would by themselves."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.limits import PATIENCE


def wait_until(happened: Callable[[], object], what: str) -> None:
    """Wait for what no event announces."""
    for _ in range(int(PATIENCE / 0.002)):
        if happened():
            return
        threading.Event().wait(0.002)
    raise AssertionError(f"{what} did not happen")


def wait_until_blocked(thread: threading.Thread) -> None:
    """Wait until a thread is where it blocks in the wait for a condition.

    A signal handler that raises there leaves the condition as it was. A few steps earlier its lock would be lost.
    """
    code = threading.Condition.wait.__code__

    def is_blocked() -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is None or frame.f_code is not code:
            return False
        return "waiter.acquire(True, timeout)" in linecache.getline(code.co_filename, frame.f_lineno)

    wait_until(is_blocked, "the wait of a thread")


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns at almost every step, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
