"""DownstreamMessageAffordableCondition: run when downstream has room. The default of every output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.condition import Condition, ConditionType, SchedulingStatusType
from penstock.core.errors import GraphError
from penstock.runtime.queue import Nowhere

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.runtime.node import Node
    from penstock.runtime.queue import Queue

__all__ = ["DownstreamMessageAffordableCondition"]


class DownstreamMessageAffordableCondition(Condition, kind=ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE):
    """Lets an operator run when every queue behind an output has room for `min_size` messages.

    Parameters
    ----------
    min_size
        How many free places it takes.
    transmitter
        The output port; not needed where the port's own `condition` makes it.
    """

    polled = False
    port_role = "transmitter"

    def __init__(
        self,
        fragment: Fragment | None = None,
        min_size: int = 1,
        transmitter: str | None = None,
        *,
        name: str = "downstream_affordable_condition",
    ) -> None:
        super().__init__(fragment, name=name)
        self.min_size = min_size
        self.port = transmitter
        self._queues: tuple[Queue, ...] = ()

    @property
    def port_names(self) -> tuple[str, ...]:
        """The output it is about."""
        return (self.port,) if self.port is not None else ()

    def attach(self, node: Node) -> None:
        """Become the count of free places that the node waits for."""
        self.join(node)
        for queue in self._queues:
            queue.min_free = max(queue.min_free, self.min_size)
            if node not in queue.producers:
                queue.producers.append(node)

    def join(self, node: Node) -> None:
        """Find the queues it is about."""
        super().join(node)
        if self.port is None:
            if len(node.output_queues) != 1:
                raise GraphError(
                    f"condition {self.name!r} of operator {node.name!r} must name its output: "
                    f"transmitter=... (one of {', '.join(map(repr, node.output_queues)) or 'none'})"
                )
            self.port = next(iter(node.output_queues))
        self._queues = tuple(
            queue for queue in node.transmitter(self.port).queues if not isinstance(queue, Nowhere)
        )
        for queue in self._queues:
            if self.min_size > queue.limit:
                raise GraphError(
                    f"output {self.port!r} of operator {node.name!r} waits for room for {self.min_size} "
                    f"messages and the queue of input {queue.port!r} of operator {queue.consumer.name!r} "
                    f"holds {queue.limit}"
                )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give READY when there is room."""
        for queue in self._queues:
            if queue.limit - len(queue) < self.min_size:
                return SchedulingStatusType.WAIT, None
        return SchedulingStatusType.READY, None
