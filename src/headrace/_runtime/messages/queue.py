"""Queue: the messages waiting at an input.

A queue is a deque, so `emit` and `receive` are an append and a popleft in C. CPython makes both atomic, so neither
end takes a lock. Whether both ends may run is in the queue's `state`, which the engine keeps.

Only a producer finds a queue full, and only the consumer finds it empty, so races between the two ends are
harmless: while the producer checks for room, room may appear but never vanish. Two cases are different, and take
the queue's own lock:

- Several producers share a queue. `capacity` is then 0, and every `emit` goes through `offer`.
- The policy is POP. A producer that finds the queue full then takes from the consumer's end. Without a lock it
  could drop the new message instead of the oldest (if the consumer took the oldest in between), or leave the queue
  empty for a moment while the consumer checks it. The consumer takes the lock for each `receive`, a producer only
  if the queue is full. The new message is added before the oldest is removed, so a thread that reads the length
  without the lock never sees too few messages; for a moment it may see one too many.

A queue whose policy is LATEST is one with POP and a single place, whose consumer also keeps what it took last
(`take_latest`). What waits in the deque is then the message that was not received yet, if there is one.

A deque with a `maxlen` would do the same without a lock, but does not report whether it dropped a message.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from headrace.core.errors import QueueFullError
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_POP = IOSpec.QueuePolicy.POP
_REJECT = IOSpec.QueuePolicy.REJECT
_LATEST = IOSpec.QueuePolicy.LATEST
_NONE = object()


class Batch(list[Any]):
    """Several messages taken at once; a separate type, so that an emitted list is not mistaken for it."""

    __slots__ = ()


class Queue(deque[Any]):
    """A bounded queue between the producers of one input and its consumer.

    Producers add messages and the consumer takes them, without a lock except in the cases above. `dropped` is
    changed by the thread that adds, under `lock` if there is one. The rest is set before the run begins.

    Attributes
    ----------
    capacity, limit
        The number that `emit` compares the length with, and the number of messages that really fit.
    consumer, feeders
        The node that receives from the queue, and those that emit into it.
    is_fixed
        Whether the policy is fixed: a flow leads here. That of an input without one is chosen by its first flow.
    min_size
        The number of messages that the consumer waits for. Its own compute may change it (`resume`).
    state
        What tells both ends whether they may run, for the queues that the engine watches (`queue_state`).
    has_ended
        Whether all that emit into it have ended. Changed under the engine's lock.
    undelivered
        The number of messages still waiting when the run ended.
    arrivals
        When the last messages arrived, if a condition asks for it (`note_arrivals`): those that wait, and some that
        have left. Changed under `lock`.
    held
        The number of messages that a join has absorbed, and neither delivered nor dropped.
    absorbed
        The number of messages that a join has absorbed so far.
    reasons
        How many messages a join dropped, by the reason; these are a part of `dropped`.
    last
        The message that was taken last, if the policy is LATEST. Changed in the consumer's computes.
    """

    __slots__ = (
        *("absorbed", "held", "last", "reasons"),
        *("_now", "arrivals", "capacity", "consumer", "dropped", "feeders", "limit", "lock"),
        *("has_ended", "is_fixed", "min_size", "policy", "port", "state", "undelivered"),
    )

    def __init__(self, consumer: Any, port: str, limit: int, policy: Any) -> None:
        super().__init__()
        self.consumer = consumer
        self.feeders: list[Any] = []
        self.min_size = 1
        self.has_ended = False
        self.state: Any = None
        self.port = port
        self.capacity = self.limit = limit
        self.dropped = 0
        self.held = self.absorbed = 0
        self.reasons: dict[str, int] = {}
        self.undelivered = 0
        self.last: Any = _NONE
        self.lock: threading.Lock | None = None
        self.fix(policy)
        self.arrivals: deque[int] | None = None
        self._now: Callable[[], int] = int

    # A queue is an object with a place in a graph, so two empty queues are not equal.
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def drops(self) -> bool:
        """Whether a full queue drops messages instead of raising an error."""
        return self.policy is not IOSpec.QueuePolicy.FAULT

    def fix(self, policy: Any) -> None:
        """Follow a policy from now on; nothing has been sent here if it was another one."""
        self.policy, self.is_fixed = policy, True
        if self.lock is None and (policy is _POP or policy is _LATEST):
            self.lock = threading.Lock()

    def share(self) -> None:
        """Prepare for several feeders."""
        self.capacity = 0
        if self.lock is None:
            self.lock = threading.Lock()

    def resize(self, limit: int) -> None:
        """Hold another number of messages at most; more that wait already stay."""
        if self.capacity == self.limit:
            self.capacity = limit
        self.limit = limit

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
        if self.policy is _POP or self.policy is _LATEST:
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
        """Take a message, whatever the policy; raise IndexError if there is none."""
        if self.policy is _LATEST:
            return self.take_latest()
        if self.lock is None:
            return self.popleft()
        with self.lock:
            return self.popleft()

    def take_latest(self) -> Any:
        """Take the newest message, or the one that was taken last; raise IndexError if there was none yet."""
        assert self.lock is not None
        with self.lock:
            if len(self):
                before, self.last = self.last, self.popleft()
            elif self.last is _NONE:
                raise IndexError
            else:
                before = None
            latest = self.last
        del before  # without the lock: its finalizer may run any code
        return latest

    @property
    def has_message(self) -> bool:
        """Whether `receive` would find a message."""
        return bool(len(self)) or self.last is not _NONE

    def release(self) -> None:
        """Let go of all messages, because the run is over."""
        self.clear()
        self.last = _NONE

    def discard(self) -> None:
        """Take the oldest message, which nobody receives; raise IndexError if there is none."""
        self.take()

    def drop_oldest(self) -> None:
        """Drop the oldest message, which no later compute is to receive, and count it."""
        with nullcontext() if self.lock is None else self.lock:
            self.dropped += 1
            item = self._take_dropped()
        del item  # without the lock: its finalizer may run any code

    def _take_dropped(self) -> Any:
        return self.popleft()

    def receive_taken(self) -> None:
        """Note that this compute receives what was taken; called after an attempt that is not tried again."""

    # For a join, which takes messages before it knows whether they will be received.

    def expect_join(self, most: int) -> None:
        """Prepare for a join that holds up to `most` messages; before the run begins."""

    def absorb(self, most: int) -> list[tuple[Any, int, int]]:
        """Take up to `most` messages, each with its number, by which the join speaks of it, and when it arrived.

        That is 0 unless `note_arrivals` was called.
        """
        with nullcontext() if self.lock is None else self.lock:
            count, first = min(len(self), most), self.absorbed
            self.held += count
            self.absorbed += count
            arrivals = self.arrivals
            if arrivals is None:
                return [(deque.popleft(self), first + place, 0) for place in range(count)]
            for _ in range(len(arrivals) - len(self)):
                arrivals.popleft()
            return [(deque.popleft(self), first + place, arrivals.popleft()) for place in range(count)]

    def drop(self, reason: str, number: int) -> None:
        """Count a message that was absorbed, and that nobody receives."""
        with nullcontext() if self.lock is None else self.lock:
            self.held -= 1
            self.dropped += 1
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def deliver(self, item: Any, number: int) -> None:
        """Note that a message that was absorbed is received now, in a compute of the consumer."""
        self.held -= 1

    def arrival(self, place: int = 0) -> int | None:
        """Return when a waiting message arrived, by default the oldest; None without one. After `note_arrivals`."""
        assert self.lock is not None
        with self.lock:
            arrivals = self.arrivals
            assert arrivals is not None
            # Messages arrive at one end and leave at the other, so those that wait arrived last.
            for _ in range(len(arrivals) - len(self)):
                arrivals.popleft()
            return arrivals[place] if place < len(arrivals) else None

    def snapshot(self) -> tuple[Any, ...]:
        """Return all waiting messages without taking them, while other threads may add messages."""
        while True:
            try:
                return tuple(self)
            except RuntimeError:  # it changed: garbage collection can let another thread run in the middle
                continue

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it, or None if there is none."""
        try:
            return self[index]
        except IndexError:  # the other end may have taken it since the length was read
            return None


class Collector(Queue):
    """A queue in the place of a real one that collects messages with a key; with capacity 0, `offer` gets each."""

    __slots__ = ("_collected", "_key")

    def __init__(self, key: Any, collected: list[tuple[Any, Any]]) -> None:
        super().__init__(None, "", 0, _REJECT)
        self._key = key
        self._collected = collected

    def offer(self, item: Any) -> None:
        """Keep a message."""
        self._collected.append((self._key, item))


class UnconnectedQueue(Queue):
    """The queue behind an unconnected output; it has no consumer, and drops and counts every message."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, "", 0, _REJECT)
