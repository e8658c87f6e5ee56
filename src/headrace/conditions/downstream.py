"""DownstreamMessageAffordableCondition: run when there is room downstream. The default of every output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._runtime import UnconnectedQueue
from headrace.conditions.port_condition import PortCondition
from headrace.core.condition_types import SchedulingStatusType
from headrace.core.errors import GraphError
from headrace.core.values import whole_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.node import Node


class DownstreamMessageAffordableCondition(PortCondition):
    """Lets an operator run when every queue behind an output has room for `min_size` messages.

    An output without a condition waits for room only in queues that do not drop messages. With this condition it
    waits for room in all of them.

    Parameters
    ----------
    min_size
        The number of free places.
    transmitter
        The output; not needed if `IOSpec.condition` creates the condition.
    """

    port_role = "transmitter"

    def __init__(
        self,
        fragment: Composition | None = None,
        min_size: int = 1,
        transmitter: str | None = None,
        *,
        name: str = "downstream_affordable_condition",
    ) -> None:
        super().__init__(fragment, transmitter, name=name)
        self.min_size = whole_number(min_size, f"condition {name!r}: min_size", 0)

    def attach(self, node: Node) -> None:
        """Set the number of free places that the node waits for."""
        self.join(node)
        (port,) = self.ports_of(node)
        for queue in self._queues:
            node.claim_room(queue, port, self.min_size)

    def join(self, node: Node) -> None:
        """Look up the queues behind the output; raise where they have too little room."""
        super().join(node)
        (port,) = self.ports_of(node)
        self._queues = tuple(
            queue
            for queue in self._queues
            # The default condition of an output does not wait for queues that drop; an explicit condition does.
            if not isinstance(queue, UnconnectedQueue) and not (self._headrace.is_default and queue.drops)
        )
        for queue in self._queues:
            if self.min_size > queue.limit:
                raise GraphError(
                    f"output {port!r} of operator {node.name!r} waits for room for {self.min_size} "
                    f"messages, but the queue of input {queue.port!r} of operator {queue.consumer.name!r} "
                    f"holds {queue.limit}"
                )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when there is room."""
        for queue in self._queues:
            if queue.limit - len(queue) < self.min_size:
                return SchedulingStatusType.WAIT, None
        return SchedulingStatusType.READY, None
