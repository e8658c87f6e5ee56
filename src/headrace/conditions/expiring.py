"""ExpiringMessageAvailableCondition: wait for a batch of messages, up to a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace._runtime import Envelope
from headrace.conditions.port_condition import PortCondition
from headrace.core.clock import Clock
from headrace.core.condition_types import SchedulingStatusType
from headrace.core.values import Duration, nanoseconds, whole_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.node import Node, Queue


class MissingTimestampError(ValueError):
    """A message has no timestamp that its age could be counted from."""


class ExpiringMessageAvailableCondition(PortCondition):
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
    counts_from_arrival: ClassVar[bool] = True
    """Whether the age of a message without a timestamp counts from its arrival; else it is an error."""

    def __init__(
        self,
        fragment: Composition | None = None,
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

    def join(self, node: Node) -> None:
        """Look up the queues of the input, which record from now on when messages arrive."""
        super().join(node)
        for queue in self._queues:
            queue.note_arrivals(node.engine.clock.timestamp)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when the batch is complete or its oldest message is old enough; NEVER when none can come."""
        # A full queue that drops its oldest message has one too many for a moment.
        waiting = sum(min(len(queue), queue.limit) for queue in self._queues)
        if waiting >= self.max_batch_size:
            return SchedulingStatusType.READY, None
        times = [since for queue in self._queues if (since := self._since(queue)) is not None]
        oldest = min(times, default=None)
        if oldest is None:
            is_over = bool(self._queues) and all(queue.has_ended for queue in self._queues)
            return (SchedulingStatusType.NEVER if is_over else SchedulingStatusType.WAIT), None
        due = oldest + self.max_delay_ns
        if timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due

    def _since(self, queue: Queue) -> int | None:
        """Return when the age of the oldest message begins; None without a message."""
        message = queue.peek()
        if type(message) is Envelope and message.acq_timestamp is not None:
            return message.acq_timestamp
        if len(queue) and not self.counts_from_arrival:
            raise MissingTimestampError(
                f"condition {self.name!r}: a message of input {queue.port!r} carries no timestamp: emit it with "
                "acq_timestamp=..."
            )
        return queue.arrival()
