"""Threads that wait for each other, and threads that take turns more often than they would by themselves."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The seconds that a test waits for what must happen, in another thread or process, before it fails. No test is
# about how long something takes: a machine may be busy with other work, and a thread may not run for seconds.
PATIENCE = 240.0


def wait_until(happened: Callable[[], object], what: str) -> None:
    """Wait for what no event announces."""
    for _ in range(int(PATIENCE / 0.002)):
        if happened():
            return
        threading.Event().wait(0.002)
    raise AssertionError(f"{what} did not happen")


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns at almost every step, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
