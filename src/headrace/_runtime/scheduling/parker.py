"""Parker: the place where one worker waits without using the CPU.

It is a binary semaphore: `unpark` releases a permit, `park` takes it or waits for it. A permit that is released
first is kept, so the order of the two calls does not matter. A thread that unparks a worker first removes it from
its ready queue's `parked` list, so a worker gets at most one permit for each time it parks (`waiting` has the
rules).

A `threading.Lock` is enough for this and costs a third of a `threading.Event`: any thread may release it, and
Ctrl-C can interrupt a wait for it. On the main thread no wait is long, so that no signal is missed
(`headrace.waits`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace import waits

if TYPE_CHECKING:
    from headrace._runtime.scheduling.ready_queue import ReadyQueue


class Parker:
    """The place where one worker waits.

    Parameters
    ----------
    ready_queue
        The ready queue that the worker serves.
    handles_signals
        Whether the worker is the main thread.

    Attributes
    ----------
    ready_queue
        The ready queue that the worker serves.
    deadline
        The time, on the run's clock, at which the worker wakes up by itself; None if only `unpark` ends its wait.
        The worker sets it, under the engine's lock, before it is listed as parked.
    """

    __slots__ = ("_handles_signals", "_permit", "deadline", "ready_queue")

    def __init__(self, ready_queue: ReadyQueue, handles_signals: bool = False) -> None:
        self.ready_queue = ready_queue
        self._handles_signals = handles_signals
        self.deadline: int | None = None
        self._permit = threading.Lock()
        self._permit.acquire()

    def park(self, seconds: float | None) -> bool:
        """Wait for a permit (True), or until `seconds` have passed (False)."""
        if self._handles_signals:
            return waits.acquire(self._permit, seconds)
        if seconds is None:
            return self._permit.acquire()
        # A lock accepts no longer timeout, but a clock may request one.
        return self._permit.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def take(self) -> bool:
        """Take the permit if there is one; for clocks that let a worker wait in their own time."""
        return self._permit.acquire(blocking=False)

    def unpark(self) -> None:
        """Release the permit; may be called from any thread."""
        self._permit.release()
