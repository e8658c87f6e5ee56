"""ReadyQueue: the ready nodes, in the order in which they are taken, and the workers that take them.

The order affects latency. In first-in first-out order, a chain would move every frame by one stage per round, and
the age of a frame would grow with the square of the chain's length. In last-in first-out order, a frame runs
straight to the end, but a cycle would occupy the queue forever. So a ready queue works in sweeps. Nodes are taken
from the end of `now`, and nodes that have just become ready are added there; a node that has already run in this
sweep goes to `later`. Every ready node runs once in every sweep, and each frame proceeds as far as possible.

If several workers serve a queue, its nodes take turns: one computes at a time (`workers`). Nodes that compute
beside them are in another queue, which the same workers serve (`beside`).

Parker: the place where one worker waits without using the CPU.

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
from collections import deque
from typing import TYPE_CHECKING, Any

from headrace import waits

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node


class ReadyQueue:
    """Ready nodes, and the workers that serve them.

    Every field is changed only under the engine's lock, if there is one, except `parked`: any thread may remove a
    worker from it, to wake it.

    Attributes
    ----------
    now, later
        The nodes to take in this sweep and in the next.
    sweep
        The number of this sweep.
    parked
        The workers that wait for something to do. Workers with a deadline come first and are woken last.
    beside
        The queue of the nodes that compute beside those of this queue, which take turns; None if they do not.
    current
        The node whose turn it is, while it computes.
    is_shared
        Whether several workers compute its nodes side by side.
    standby
        The parked worker that watches how long this turn lasts, if there is one.
    """

    __slots__ = ("beside", "current", "is_shared", "later", "now", "parked", "standby", "sweep")

    def __init__(self) -> None:
        self.now: deque[Node] = deque()
        self.later: deque[Node] = deque()
        self.sweep = 0
        self.parked: list[Parker] = []
        self.beside: ReadyQueue | None = None
        self.current: Node | None = None
        self.is_shared = False
        self.standby: Parker | None = None

    def take_turns(self) -> ReadyQueue:
        """Let the nodes take turns from now on; return the queue of those that compute beside them."""
        self.beside = ReadyQueue()
        self.beside.parked = self.parked
        self.beside.is_shared = True
        return self.beside

    @property
    def has_turn(self) -> bool:
        """Whether a node is ready, and none of the others computes."""
        return self.current is None and bool(self.now or self.later)

    @property
    def waits_for_turn(self) -> bool:
        """Whether a node would go on if the one whose turn it is did not compute."""
        current = self.current
        return current is not None and bool(self.now or self.later or current.has_waiting_producers)


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
    seen
        The compute whose turn it was when the worker parked last (`WaitingWorkers`).
    """

    __slots__ = (
        "_handles_signals",
        "_permit",
        "deadline",
        "ready_queue",
        "seen",
    )

    def __init__(
        self,
        ready_queue: ReadyQueue,
        handles_signals: bool = False,
    ) -> None:
        self.ready_queue = ready_queue
        self._handles_signals = handles_signals
        self.deadline: int | None = None
        self.seen: Any = None
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
