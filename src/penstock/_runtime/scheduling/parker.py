"""Parker: the place where one worker waits without using the CPU.

It is a binary semaphore: `unpark` gives a permit, `park` takes it or waits for it. A permit that comes first is
kept, so the order of the two calls does not matter. Whoever unparks a worker takes it off its ready queue's
`parked` list first, so a permit is given at most once for each time a worker parks (`waiting` has the rules).

A `threading.Lock` is enough for that and costs a third of a `threading.Event`: it may be released by a thread
other than the one that acquired it, and waiting for it can be interrupted by Ctrl-C.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._runtime.scheduling.ready_queue import ReadyQueue

__all__ = ["Parker"]


class Parker:
    """Where one worker waits.

    Attributes
    ----------
    ready_queue
        The ready queue that the worker serves.
    deadline
        The time, on the run's clock, at which the worker wakes up by itself; None where only `unpark` ends its
        wait. Written by its own worker, under the engine's lock, before the worker is listed as parked.
    """

    __slots__ = ("_permit", "deadline", "ready_queue")

    def __init__(self, ready_queue: ReadyQueue) -> None:
        self.ready_queue = ready_queue
        self.deadline: int | None = None
        self._permit = threading.Lock()
        self._permit.acquire()

    def park(self, seconds: float | None) -> bool:
        """Wait for a permit (True), or until so many seconds have passed (False)."""
        if seconds is None:
            return self._permit.acquire()
        # A lock takes no longer a timeout than this, and a clock may ask for one.
        return self._permit.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def take(self) -> bool:
        """Take the permit if there is one; for clocks in whose own time a worker waits."""
        return self._permit.acquire(blocking=False)

    def unpark(self) -> None:
        """Release the permit; may be called from any thread."""
        self._permit.release()
