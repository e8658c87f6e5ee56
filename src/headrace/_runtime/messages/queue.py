"""Queue: the messages waiting at an input.

A queue is a deque, so `emit` and `receive` are an append and a popleft in C. CPython makes both atomic, so neither
end takes a lock. What tells both ends whether they may run is the queue's `gate`.

Only a producer finds a queue full, and only the consumer finds it empty, so races between the two ends are
harmless: while the producer checks for room, room may appear but never vanish. Two cases are different, and take
the queue's own lock:

- Several producers share a queue. `capacity` is then 0, and every `emit` goes through `offer`.
- The policy is POP. A producer that finds the queue full then takes from the consumer's end. Without a lock it
  could drop the new message instead of the oldest (if the consumer took the oldest in between), or leave the queue
  empty for a moment while the consumer checks it. The consumer takes the lock for each `receive`, a producer only
  if the queue is full. The new message is added before the oldest is removed, so a thread that reads the length
  without the lock never sees too few messages; for a moment it may see one too many.

A deque with a `maxlen` would do the same without a lock, but does not report whether it dropped a message.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.gate import ANY, Gate
from headrace.core.errors import QueueFullError
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.room_sharing import RoomLine

__all__ = ["Claim", "Queue", "UnconnectedQueue"]

_POP = IOSpec.QueuePolicy.POP
_REJECT = IOSpec.QueuePolicy.REJECT


class Claim:
    """The room that one producer needs in one queue before it runs.

    `is_promised` and `running` are changed under the engine's lock, and are used only if producers share the queue
    (`room_sharing`). The rest is set before the run begins.

    Attributes
    ----------
    places
        The number of messages it may emit into the queue in one compute.
    line
        The line in which the producer waits for room; None if it has the queue to itself.
    is_promised
        Whether places are kept for it because it waited for them.
    running
        Whether it runs now, with its places reserved.
    """

    __slots__ = ("_by_port", "is_promised", "line", "node", "places", "queue", "running")

    def __init__(self, node: Node, queue: Queue) -> None:
        self.node = node
        self.queue = queue
        self._by_port: dict[str, int] = {}
        self.places = 0
        self.line: RoomLine | None = None
        self.is_promised = False
        self.running = False

    def add(self, port: str, places: int) -> None:
        """Require `places` for one output; the largest of several numbers for one output counts."""
        self._by_port[port] = max(self._by_port.get(port, 0), places)
        # Two outputs into one queue need room for both, limited to the queue's capacity.
        self.places = min(sum(self._by_port.values()), self.queue.limit)


class Queue(deque[Any]):
    """A bounded queue between the producers of one input and its consumer.

    Producers add messages and the consumer takes them, without a lock except in the cases above. `dropped` is
    changed by the thread that adds, under `lock` if there is one. The rest is set before the run begins.

    Attributes
    ----------
    capacity, limit
        The number that `emit` compares the length with, and the number of messages that really fit.
    gate
        What tells both ends whether they may run.
    feeders
        The nodes that emit into the queue.
    claims
        The feeders that wait for room here before they run.
    line
        Where these wait, if several feeders share the queue.
    watchers
        The feeders with an evaluated condition that may depend on the queue.
    undelivered
        The number of messages still waiting when the run ended.
    arrivals
        When the last messages arrived, if a condition asks for it (`note_arrivals`): those that wait, and some that
        have left. Changed under `lock`.
    """

    __slots__ = (
        "_now",
        "arrivals",
        "capacity",
        "claims",
        "dropped",
        "feeders",
        "gate",
        "limit",
        "line",
        "lock",
        "policy",
        "port",
        "undelivered",
        "watchers",
    )

    def __init__(self, consumer: Node | None, port: str, limit: int, policy: Any) -> None:
        super().__init__()
        if consumer is not None:
            self.gate = Gate(self, consumer)
        self.port = port
        self.capacity = self.limit = limit
        self.policy = policy
        self.feeders: list[Node] = []
        self.claims: list[Claim] = []
        self.line: RoomLine | None = None
        self.watchers: list[Node] = []
        self.dropped = 0
        self.undelivered = 0
        self.lock: threading.Lock | None = threading.Lock() if policy is _POP else None
        self.arrivals: deque[int] | None = None
        self._now: Callable[[], int] = int

    # A queue is an object with a place in a graph, so two empty queues are not equal.
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def consumer(self) -> Node:
        """The node that receives the messages."""
        return self.gate.consumer

    @property
    def min_size(self) -> int:
        """The number of messages that the consumer waits for."""
        return self.gate.min_size

    @min_size.setter
    def min_size(self, size: int) -> None:
        self.gate.min_size = size

    @property
    def drops(self) -> bool:
        """Whether a full queue drops messages instead of raising an error."""
        return self.policy is _POP or self.policy is _REJECT

    def claim(self, node: Node, port: str, places: int) -> None:
        """Make a producer wait for `places`, for one of its outputs, before it runs."""
        claim = next((claim for claim in self.claims if claim.node is node), None)
        if claim is None:
            claim = Claim(node, self)
            self.claims.append(claim)
        claim.add(port, places)
        self.gate.producer = node
        self.gate.room = self.limit - claim.places if len(self.claims) == 1 else ANY

    def share(self) -> None:
        """Prepare for several feeders."""
        self.capacity = 0
        if self.lock is None:
            self.lock = threading.Lock()

    def note_arrivals(self, now: Callable[[], int]) -> None:
        """Record when each message arrives, by the time that `now` returns; before the run begins."""
        if self.arrivals is None:
            self.share()  # so that every message comes through `offer`
            self.arrivals = deque(maxlen=self.limit)
        self._now = now

    # The producers' end.

    def offer(self, item: Any) -> None:
        """Add a message that may not fit, following the policy."""
        if self.lock is None:
            self._offer(item)
            return
        with self.lock:
            oldest = self._offer(item)
        # Only here, without the lock: its finalizer may run any code.
        del oldest

    def _offer(self, item: Any) -> Any:
        """Add a message that may not fit, and return the one that was dropped for it."""
        if len(self) < self.limit:
            self.add(item)
            return None
        if self.policy is _POP:
            self.add(item)
            self.dropped += 1
            return self.popleft()
        self.refuse()
        return None

    def add(self, item: Any) -> None:
        """Add a message, and record when, if that is asked for; with the lock held, if there is one."""
        if self.arrivals is not None:
            self.arrivals.append(self._now())
        self.append(item)

    def refuse(self) -> None:
        """Count a message that does not fit as dropped, and raise if the policy is FAULT."""
        self.dropped += 1
        if self.policy is not _REJECT:
            raise QueueFullError(
                f"the queue of input {self.port!r} of operator {self.consumer.name!r} is full "
                f"({self.limit} waiting); declare that input with a larger size=, or with "
                "policy=IOSpec.QueuePolicy.POP or REJECT to drop messages instead"
            )

    # The consumer's end.

    def take(self) -> Any:
        """Take the oldest message, if the policy is POP; raise IndexError if there is none."""
        assert self.lock is not None
        with self.lock:
            return self.popleft()

    def take_all(self) -> list[Any]:
        """Take all waiting messages."""
        if self.policy is not _POP:
            return [self.popleft() for _ in range(len(self))]
        assert self.lock is not None
        with self.lock:
            return [self.popleft() for _ in range(len(self))]

    def discard(self) -> None:
        """Take the oldest message, which nobody receives; raise IndexError if there is none."""
        if self.policy is _POP:
            self.take()
        else:
            self.popleft()

    def oldest_arrival(self) -> int | None:
        """Return when the oldest waiting message arrived, or None if none waits; only after `note_arrivals`."""
        assert self.lock is not None
        with self.lock:
            arrivals = self.arrivals
            assert arrivals is not None
            # Messages arrive at one end and leave at the other, so those that wait arrived last.
            for _ in range(len(arrivals) - len(self)):
                arrivals.popleft()
            return arrivals[0] if arrivals else None

    def snapshot(self) -> tuple[Any, ...]:
        """Return all waiting messages without taking them, while other threads may add messages."""
        while True:
            try:
                return tuple(self)
            except (
                RuntimeError
            ):  # the queue changed: garbage collection can let another thread run in the middle
                continue

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it, or None if there is none."""
        try:
            return self[index]
        except IndexError:  # the other end may have taken it since the length was read
            return None


class UnconnectedQueue(Queue):
    """The queue behind an unconnected output; it drops and counts every message, and has no gate."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, "", 0, _REJECT)

    @property
    def consumer(self) -> Node:
        """None: nothing receives from it."""
        return None  # type: ignore[return-value]
