"""ExpiringMessageAvailableCondition: wait for a batch, but not for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._runtime import Message
from penstock.core.clock import Clock, Duration, nanoseconds
from penstock.core.condition import Condition, ConditionType, SchedulingStatusType
from penstock.core.errors import GraphError

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.protocols import Node, Queue

__all__ = ["ExpiringMessageAvailableCondition"]


class ExpiringMessageAvailableCondition(Condition, kind=ConditionType.EXPIRING_MESSAGE_AVAILABLE):
    """Lets an operator run when a batch is complete, or when its first message is old enough.

    Parameters
    ----------
    max_batch_size
        Run as soon as so many messages wait.
    max_delay_ns
        Run with fewer once the first of any connection is so old: nanoseconds, float seconds, a str such as
        ``"5ms"`` or a timedelta. Its age counts from its timestamp (``emit(..., acq_timestamp=...)``), or from
        its arrival where it has none.
    receiver
        The input port; not needed where the port's own `condition` makes it.
    """

    polled = False
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
        super().__init__(fragment, name=name)
        if max_batch_size < 1:
            raise ValueError(f"condition {name!r}: max_batch_size must be at least 1, not {max_batch_size}")
        self.max_batch_size = max_batch_size
        self.max_delay_ns = nanoseconds(max_delay_ns, f"condition {name!r}: max_delay_ns")
        # Taken for compatibility: a run has one clock, its scheduler's.
        self.clock = clock
        self.port = receiver
        self._arrivals: list[_Arrivals] = []

    @property
    def port_names(self) -> tuple[str, ...]:
        """The input it is about."""
        return (self.port,) if self.port is not None else ()

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return the input it names, or the only one there is."""
        if self.port is None and len(node.input_queues) != 1:
            raise GraphError(
                f"condition {self.name!r} of operator {node.name!r} must name its input: receiver=... "
                f"(one of {', '.join(map(repr, node.input_queues)) or 'none'})"
            )
        return self.port_names or tuple(node.input_queues)

    def join(self, node: Node) -> None:
        """Find the queues it is about."""
        super().join(node)
        (port,) = self.ports_of(node)
        self._arrivals = [_Arrivals(queue) for queue in node.receiver(port).queues]

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give READY when the batch is complete or its time is up."""
        waiting = 0
        oldest: int | None = None
        for arrivals in self._arrivals:
            # Asked whenever a message arrives, so the first time one is seen is the time it came.
            waiting += arrivals.note(timestamp)
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
        """Leave the run, and let go of what waited."""
        super().detach()
        self._arrivals = []

    def on_execute(self, timestamp: int) -> None:
        """Take note of what was received; what is left over keeps its age."""
        for arrivals in self._arrivals:
            arrivals.note(timestamp)


class _Arrivals:
    """The messages that wait in one queue, and when each was first seen there."""

    __slots__ = ("_known", "_queue")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: list[tuple[Any, int]] = []

    def note(self, timestamp: int) -> int:
        """Take note of what has come and gone since the last time, and return how many wait."""
        waiting = self._queue.snapshot()
        known = self._known
        # Messages come at one end and go at the other, so what is left of the known ones comes first.
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
        """Return since when the first message waits, by its own timestamp where it has one."""
        if not self._known:
            return None
        message, since = self._known[0]
        if type(message) is Message and message.acq_timestamp is not None:
            return message.acq_timestamp
        return since
