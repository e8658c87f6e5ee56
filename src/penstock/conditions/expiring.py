"""ExpiringMessageAvailableCondition: wait for a batch, but not for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.clock import Clock, Duration, nanoseconds
from penstock.core.condition import Condition, ConditionType, SchedulingStatusType
from penstock.runtime.message import Message

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.runtime.node import Node
    from penstock.runtime.queue import Queue

__all__ = ["ExpiringMessageAvailableCondition"]


class ExpiringMessageAvailableCondition(Condition, kind=ConditionType.EXPIRING_MESSAGE_AVAILABLE):
    """Lets an operator run when a batch is complete, or when its first message is old enough.

    Parameters
    ----------
    max_batch_size
        Run as soon as so many messages wait.
    max_delay_ns
        Run with fewer once the first is so old: nanoseconds, float seconds, a str such as ``"5ms"`` or a
        timedelta. Its age counts from its timestamp (``emit(..., acq_timestamp=...)``), or from its arrival
        where it has none.
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
        self._queues: tuple[Queue, ...] = ()
        self._first: Any = None
        self._arrived = 0

    @property
    def port_names(self) -> tuple[str, ...]:
        """The input it is about."""
        return (self.port,) if self.port is not None else ()

    def join(self, node: Node) -> None:
        """Find the queue it is about."""
        super().join(node)
        if self.port is None:
            self.port = next(iter(node.input_queues), "")
        self._queues = node.receiver(self.port).queues
        self._first = None
        for queue in self._queues:
            queue.min_size = 0

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give READY when the batch is complete or its time is up."""
        waiting = sum(map(len, self._queues))
        if waiting >= self.max_batch_size:
            return SchedulingStatusType.READY, None
        if not waiting:
            self._first = None
            return SchedulingStatusType.WAIT, None
        oldest = None
        for queue in self._queues:
            if queue:
                since = self._since(queue[0], timestamp)
                oldest = since if oldest is None else min(oldest, since)
        assert oldest is not None
        due = oldest + self.max_delay_ns
        if timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due

    def _since(self, item: Any, timestamp: int) -> int:
        if type(item) is Message and item.acq_timestamp is not None:
            return item.acq_timestamp
        if item is not self._first or self._arrived > timestamp:
            # Asked whenever a message arrives, so the first time it is seen is the time it came.
            self._first, self._arrived = item, timestamp
        return self._arrived

    def on_execute(self, timestamp: int) -> None:
        """Begin the next batch."""
        self._first = None
