"""Queue: the messages waiting at an input, and what both ends were last told about them.

A queue is a deque, so that `emit` and `receive` are an append and a popleft in C, which CPython makes
atomic: neither end takes a lock. What the schedulers need to know, whether there is enough to run the
consumer and room enough to run the producers, is kept in two flags that are brought up to date after
each `compute` of either end (`Engine.finish`), in one place, under the engine's lock where there are
several threads. Keeping them in `emit` and `receive` instead would put a lock on each.

Only a producer finds a queue full, and only the consumer finds it empty, so the two ends can race only
in ways that do no harm: room may appear while the producer looks, never vanish. Where several producers
share a queue that is no longer so; then `capacity` is 0, every emit goes through `offer`, and that takes
the queue's own lock.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.errors import QueueFullError
from penstock.core.ports import IOSpec

if TYPE_CHECKING:
    from penstock.runtime.node import Node

__all__ = ["Queue"]

_POP = IOSpec.QueuePolicy.POP
_REJECT = IOSpec.QueuePolicy.REJECT


class Queue(deque[Any]):
    """A bounded queue between the producers of one input and its consumer."""

    __slots__ = (
        "affordable",
        "available",
        "capacity",
        "consumer",
        "dropped",
        "feeders",
        "limit",
        "lock",
        "min_free",
        "min_size",
        "policy",
        "port",
        "producers",
        "room",
        "undelivered",
        "watched",
    )

    def __init__(self, consumer: Node, port: str, limit: int, policy: Any) -> None:
        super().__init__()
        self.consumer = consumer
        self.port = port
        # capacity is what emit compares with; limit is how many really fit.
        self.capacity = self.limit = limit
        self.policy = policy
        self.feeders: list[Node] = []
        # The feeders that wait for room here before they run.
        self.producers: list[Node] = []
        self.min_size = 1
        self.min_free = 1
        # With more than this many waiting there is no room for another compute of a producer.
        self.room = limit
        self.available = False
        self.affordable = True
        # Whether a condition that is asked, not counted, depends on this queue.
        self.watched = False
        self.dropped = 0
        # What was still waiting when the run ended.
        self.undelivered = 0
        self.lock: threading.Lock | None = None

    # A queue is an object with a place in a graph: two empty ones are not the same.
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def share(self) -> None:
        """Get ready for several producers."""
        self.capacity = 0
        self.lock = threading.Lock()

    def offer(self, item: Any) -> None:
        """Take a message that may not fit, by the policy."""
        if self.lock is None:
            self._offer(item)
        else:
            with self.lock:
                self._offer(item)

    def _offer(self, item: Any) -> None:
        if len(self) < self.limit:
            self.append(item)
            return
        self.dropped += 1
        if self.policy is _POP:
            try:
                self.popleft()
            except IndexError:
                # The consumer took them all since: then nothing was dropped.
                self.dropped -= 1
            self.append(item)
        elif self.policy is not _REJECT:
            raise QueueFullError(
                f"the queue of input {self.port!r} of operator {self.consumer.name!r} is full "
                f"({self.limit} waiting); declare that input with a larger size=, or with "
                "policy=IOSpec.QueuePolicy.POP or REJECT to drop messages instead"
            )


class Nowhere(Queue):
    """The queue behind an output that is not connected: it counts what it drops."""

    __slots__ = ()

    def __init__(self) -> None:
        # Nothing asks for its consumer: it is in no node's inputs.
        super().__init__(None, "", 0, _REJECT)  # type: ignore[arg-type]
