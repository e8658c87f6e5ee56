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

Where messages arrive from other processes, one of the parked workers waits for them (`MessageWait`) instead of for
its lock: to be told by another thread takes 40 µs, which is more than a message takes. Its permit then comes with a
wake-up of that wait. Before it serves a message it is no longer parked (`WaitingWorkers.leave_parked`), so that
whatever the message announces is left to it. A worker on standby does not wait for messages: it has a nearer
deadline.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from headrace import waits

if TYPE_CHECKING:
    from collections.abc import Callable

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


# Seconds. Beside others, a worker with a nearer deadline leaves messages to them: before it handled one, it would
# wake another worker for its deadline. The workers of a camera woke up 6.8 times for a frame of 4 MiB, and 4 times
# without that.
_SOON = 0.1


class MessageWait(Protocol):
    """Where a worker waits for messages from other processes; it calls `end` afterwards."""

    is_closed: bool
    """Whether no message comes here any more, which ends the wait."""
    shortest: float
    """The seconds of the shortest wait that is not too long. What is left then is a wait for the permit alone."""

    def wait(self, seconds: float | None) -> Any:
        """Return what arrived; nothing if `wake` was called, or the time is over, or it may be."""

    def serve(self, arrived: Any) -> None:
        """Handle what arrived."""

    def end(self) -> None:
        """Let another thread wait here."""

    def wake(self) -> None:
        """End the wait of the thread that waits here; from any thread."""


class Workers(Protocol):
    """The workers of a run, as one of them sees them (`WaitingWorkers`)."""

    find_messages: Callable[[], MessageWait | None] | None

    def leave_parked(self, parker: Parker) -> bool:
        """Count a worker as waking; return False if it was woken just now, and gets a permit."""


class Parker:
    """The place where one worker waits.

    Parameters
    ----------
    ready_queue
        The ready queue that the worker serves.
    handles_signals
        Whether the worker is the main thread.
    waiting
        The workers of the run; without them, it waits for its permit alone.
    has_others
        Whether there are other workers.

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
        "_messages",
        "_permit",
        "_soon",
        "_waiting",
        "deadline",
        "ready_queue",
        "seen",
    )

    def __init__(
        self,
        ready_queue: ReadyQueue,
        handles_signals: bool = False,
        waiting: Workers | None = None,
        has_others: bool = False,
    ) -> None:
        self.ready_queue = ready_queue
        self._waiting = waiting
        self._handles_signals = handles_signals
        self.deadline: int | None = None
        self.seen: Any = None
        self._soon = _SOON if has_others else 0.0
        self._permit = threading.Lock()
        self._permit.acquire()
        self._messages: MessageWait | None = None  # where it waits now

    def park(self, seconds: float | None) -> bool:
        """Wait for a permit or a message (True), or until `seconds` have passed (False)."""
        waiting = self._waiting
        find = None if waiting is None else waiting.find_messages
        messages = None if find is None or (seconds is not None and seconds < self._soon) else find()
        if waiting is None or messages is None:
            return self.wait_for_permit(seconds)
        is_over = False
        try:  # at once: an interrupt would let nobody wait there any more
            self._messages = (
                messages  # before it looks for a permit: one that comes afterwards comes with a wake-up
            )
            until = None if seconds is None else monotonic() + seconds
            while not self.take():
                left = None if until is None else until - monotonic()
                if left is not None and left < messages.shortest:
                    return self.wait_for_permit(left)
                arrived = messages.wait(left)
                if arrived:
                    if not waiting.leave_parked(self):
                        self.wait_for_permit(None)
                    messages.serve(arrived)
                    break
                if messages.is_closed:
                    is_over = True
                    break
        finally:
            self._messages = None
            messages.end()
        return not is_over or self.wait_for_permit(None if until is None else until - monotonic())

    def wait_for_permit(self, seconds: float | None) -> bool:
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
        messages = self._messages
        if messages is not None:
            messages.wake()
