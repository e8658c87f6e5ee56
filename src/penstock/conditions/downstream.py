"""DownstreamMessageAffordableCondition: run when downstream has room. The default of every output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._runtime import Nowhere
from penstock.core.condition import Condition, ConditionType, SchedulingStatusType
from penstock.core.errors import GraphError

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.protocols import Node, Queue

__all__ = ["DownstreamMessageAffordableCondition"]


class DownstreamMessageAffordableCondition(Condition, kind=ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE):
    """Lets an operator run when every queue behind an output has room for `min_size` messages.

    An output that was given no condition waits for room by itself, but not in queues that drop messages. With this
    condition it waits for room in those, too.

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

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return the output it names, or the only one there is."""
        if self.port is None and len(node.output_queues) != 1:
            raise GraphError(
                f"condition {self.name!r} of operator {node.name!r} must name its output: "
                f"transmitter=... (one of {', '.join(map(repr, node.output_queues)) or 'none'})"
            )
        return self.port_names or tuple(node.output_queues)

    def attach(self, node: Node) -> None:
        """Become the count of free places that the node waits for."""
        self.join(node)
        (port,) = self.ports_of(node)
        for queue in self._queues:
            node.claim_room(queue, port, self.min_size)

    def join(self, node: Node) -> None:
        """Find the queues it is about."""
        super().join(node)
        (port,) = self.ports_of(node)
        self._queues = tuple(
            queue
            for queue in node.transmitter(port).queues
            # The default of an output does not wait for queues that drop; a condition that was asked for does.
            if not isinstance(queue, Nowhere) and not (self.is_default and queue.drops)
        )
        for queue in self._queues:
            if self.min_size > queue.limit:
                raise GraphError(
                    f"output {port!r} of operator {node.name!r} waits for room for {self.min_size} "
                    f"messages and the queue of input {queue.port!r} of operator {queue.consumer.name!r} "
                    f"holds {queue.limit}"
                )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give READY when there is room."""
        for queue in self._queues:
            if queue.limit - len(queue) < self.min_size:
                return SchedulingStatusType.WAIT, None
        return SchedulingStatusType.READY, None
