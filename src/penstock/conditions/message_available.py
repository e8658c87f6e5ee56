"""MessageAvailableCondition: run when enough messages wait at an input. The default of every input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.condition import Condition, ConditionType, SchedulingStatusType
from penstock.core.errors import GraphError

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.protocols import Node, Queue

__all__ = ["MessageAvailableCondition"]


class MessageAvailableCondition(Condition, kind=ConditionType.MESSAGE_AVAILABLE):
    """Lets an operator run when at least `min_size` messages wait at an input.

    Parameters
    ----------
    min_size
        How many; on an ``ANY_SIZE`` input it is how many of each connection.
    front_stage_max_size
        Run only while no more than so many wait; no bound unless given.
    receiver
        The input port; not needed where the port's own `condition` makes it.
    """

    polled = False
    port_role = "receiver"

    def __init__(
        self,
        fragment: Fragment | None = None,
        min_size: int = 1,
        front_stage_max_size: int | None = None,
        receiver: str | None = None,
        *,
        name: str = "message_available_condition",
    ) -> None:
        super().__init__(fragment, name=name)
        self.min_size = min_size
        self.front_stage_max_size = front_stage_max_size
        self.port = receiver
        self._queues: tuple[Queue, ...] = ()

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

    def attach(self, node: Node) -> None:
        """Become the count of messages that the input's queues need; of several conditions the largest holds."""
        self.join(node)
        if self.front_stage_max_size is not None:
            node.ask(self)
            return
        for queue in self._queues:
            queue.min_size = max(queue.min_size, self.min_size)

    def join(self, node: Node) -> None:
        """Find the queues it is about."""
        super().join(node)
        (port,) = self.ports_of(node)
        self._queues = node.receiver(port).queues
        for queue in self._queues:
            if self.min_size > queue.limit:
                raise GraphError(
                    f"input {port!r} of operator {node.name!r} waits for {self.min_size} messages and "
                    f"its queue holds {queue.limit}; declare it with size={self.min_size} or more"
                )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give READY when enough wait."""
        bound = self.front_stage_max_size
        for queue in self._queues:
            waiting = len(queue)
            if waiting < self.min_size or (bound is not None and waiting > bound):
                return SchedulingStatusType.WAIT, None
        return SchedulingStatusType.READY, None
