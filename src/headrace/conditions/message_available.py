"""MessageAvailableCondition: run when enough messages wait at an input. The default of every input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conditions.port_condition import PortCondition
from headrace.core.condition_types import SchedulingStatusType
from headrace.core.errors import GraphError
from headrace.core.values import whole_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.node import Node


class MessageAvailableCondition(PortCondition):
    """Lets an operator run when at least `min_size` messages wait at an input.

    Parameters
    ----------
    min_size
        The number of messages; on an ``ANY_SIZE`` input, the number for each connection.
    front_stage_max_size
        The largest number of waiting messages with which the operator runs; no bound unless given.
    receiver
        The input; not needed if `IOSpec.condition` creates the condition.
    """

    port_role = "receiver"

    def __init__(
        self,
        fragment: Composition | None = None,
        min_size: int = 1,
        front_stage_max_size: int | None = None,
        receiver: str | None = None,
        *,
        name: str = "message_available_condition",
    ) -> None:
        super().__init__(fragment, receiver, name=name)
        self.min_size = whole_number(min_size, f"condition {name!r}: min_size", 0)
        self.front_stage_max_size = front_stage_max_size
        if front_stage_max_size is not None:
            whole_number(front_stage_max_size, f"condition {name!r}: front_stage_max_size", 0)

    def attach(self, node: Node) -> None:
        """Set the number of messages that the input's queues need; the largest of several conditions counts."""
        self.join(node)
        if self.front_stage_max_size is not None:
            node.evaluate(self)
            return
        for queue in self._queues:
            queue.min_size = max(queue.min_size, self.min_size)

    def join(self, node: Node) -> None:
        """Look up the queues of the input; raise where they hold too few messages."""
        super().join(node)
        for queue in self._queues:
            if self.min_size > queue.limit:
                raise GraphError(
                    f"input {queue.port!r} of operator {node.name!r} waits for {self.min_size} messages, but "
                    f"its queue holds {queue.limit}; declare it with size={self.min_size} or more"
                )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when enough messages wait, and not too many; NEVER when no more of them can come."""
        bound = self.front_stage_max_size
        for queue in self._queues:
            waiting = len(queue)
            if waiting < self.min_size or (bound is not None and waiting > bound):
                is_over = waiting < self.min_size and queue.has_ended
                return (SchedulingStatusType.NEVER if is_over else SchedulingStatusType.WAIT), None
        return SchedulingStatusType.READY, None
