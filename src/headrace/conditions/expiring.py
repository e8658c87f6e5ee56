"""ExpiringMessageAvailableCondition: wait for a batch of messages, up to a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime import Message
from headrace.conditions.single_port import SinglePortCondition
from headrace.core.clock import Clock, Duration, nanoseconds
from headrace.core.condition import ConditionType, SchedulingStatusType
from headrace.core.whole_numbers import whole_number

if TYPE_CHECKING:
    from headrace.core.fragment import Fragment
    from headrace.core.protocols import Node, Queue

__all__ = ["ExpiringMessageAvailableCondition"]


class ExpiringMessageAvailableCondition(SinglePortCondition, kind=ConditionType.EXPIRING_MESSAGE_AVAILABLE):
    """Lets an operator run when a batch is complete, or when its first message is old enough.

    Parameters
    ----------
    max_batch_size
        The number of messages with which the operator runs at once.
    max_delay_ns
        The age of the oldest message at which the operator runs with fewer: nanoseconds, float seconds, a str such
        as ``"5ms"`` or a timedelta. The age counts from the timestamp of the message (``emit(...,
        acq_timestamp=...)``), or from its arrival if it has none.
    receiver
        The input; not needed if `IOSpec.condition` creates the condition.
    """

    port_role = "receiver"

    def __init__(
        self,
        fragment: Fragment | None = None,
        max_batch_size: int = 1,
        max_delay_ns: Duration = 0,
        clock: Clock | None = None,
        receiver: str | None = None,
        *,
        name: str = "expiring_message_available_condition",
    ) -> None:
        super().__init__(fragment, receiver, name=name)
        self.max_batch_size = whole_number(max_batch_size, f"condition {name!r}: max_batch_size", 1)
        self.max_delay_ns = nanoseconds(max_delay_ns, f"condition {name!r}: max_delay_ns")
        # Accepted for compatibility: a run has one clock, its scheduler's.
        self.clock = clock
        self._arrivals: list[_Arrivals] = []

    def join(self, node: Node) -> None:
        """Look up the queues of the input."""
        super().join(node)
        self._arrivals = [_Arrivals(queue) for queue in node.receiver(self.port_of(node)).queues]

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when the batch is complete or its oldest message is old enough."""
        waiting = 0
        oldest: int | None = None
        for arrivals in self._arrivals:
            # Called whenever a message arrives, so the time at which a message is first seen is its time of
            # arrival.
            waiting += arrivals.update(timestamp)
            since = arrivals.oldest()
            if since is not None:
                oldest = since if oldest is None else min(oldest, since)
        if waiting >= self.max_batch_size:
            return SchedulingStatusType.READY, None
        if oldest is None:
            return SchedulingStatusType.WAIT, None
        due = oldest + self.max_delay_ns
        if timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due

    def detach(self) -> None:
        """Leave the run, and release the messages that waited."""
        super().detach()
        self._arrivals = []

    def on_execute(self, timestamp: int) -> None:
        """Forget the messages that were received; those that still wait keep their age."""
        for arrivals in self._arrivals:
            arrivals.update(timestamp)


class _Arrivals:
    """The messages that wait in one queue, and when each was first seen there."""

    __slots__ = ("_known", "_queue")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: list[tuple[Any, int]] = []

    def update(self, timestamp: int) -> int:
        """Record which messages have arrived and left since the last time, and return how many wait."""
        waiting = self._queue.snapshot()
        known = self._known
        # Messages arrive at one end and leave at the other, so the known ones that still wait come first.
        gone = next(
            gone
            for gone in range(len(known) + 1)
            if len(known) - gone <= len(waiting)
            and all(old is new for (old, _), new in zip(known[gone:], waiting, strict=False))
        )
        del known[:gone]
        known += [(message, timestamp) for message in waiting[len(known) :]]
        return len(waiting)

    def oldest(self) -> int | None:
        """Return the timestamp of the first message, or the time of its arrival if it has none."""
        if not self._known:
            return None
        message, since = self._known[0]
        if type(message) is Message and message.acq_timestamp is not None:
            return message.acq_timestamp
        return since
