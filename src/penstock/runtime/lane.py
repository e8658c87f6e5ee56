"""Lane: the nodes that are ready, in the order they are taken, and the workers that take them.

Order matters for latency. Taken first-in first-out, a chain would move every frame by one stage per
round and a frame would be as old as the chain is long, squared. Taken last-in first-out, a frame runs
straight to the end, but a cycle would keep the lane to itself for ever. So a lane works in sweeps: `now`
is taken from its end, which is where what was just made ready is put, and a node that has already run in
this sweep goes to `later`. Every ready node runs once in every sweep, and frames go deep first.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.node import Node

__all__ = ["Lane", "Seat"]


class Seat:
    """A place where one worker sleeps; `wake` may be called once for each sleep, from any thread."""

    __slots__ = ("_token", "lane")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._token = threading.Lock()
        self._token.acquire()

    def sleep(self, seconds: float | None) -> bool:
        """Sleep until woken (True) or until so many seconds have passed (False)."""
        if seconds is None:
            return self._token.acquire()
        # The longest timeout a lock takes is less than what a clock may ask for.
        return self._token.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def take_wake_up(self) -> bool:
        """Take a wake-up if there is one; for clocks in whose own time a worker sleeps."""
        return self._token.acquire(blocking=False)

    def wake(self) -> None:
        """End the sleep, or the next one."""
        self._token.release()


class Lane:
    """Ready nodes and the sleeping workers that would take them."""

    __slots__ = ("asleep", "later", "now", "quick", "standby", "sweep")

    def __init__(self) -> None:
        self.now: deque[Node] = deque()
        self.later: deque[Node] = deque()
        self.sweep = 0
        self.asleep: list[Seat] = []
        # The node that a worker is running now and that is expected to be done in a moment, if any: until then
        # other workers leave the lane to it.
        self.quick: Node | None = None
        # The worker that watches over the one that runs it.
        self.standby: Seat | None = None

    def call_standby(self) -> None:
        """Have a sleeping worker watch over this lane."""
        try:
            seat = self.asleep.pop()
        except IndexError:
            return
        self.standby = seat
        seat.wake()

    def wake(self) -> bool:
        """Wake one sleeping worker and say whether there was one; may be called from any thread."""
        try:
            seat = self.asleep.pop()
        except IndexError:
            return False
        seat.wake()
        return True
