"""The nodes of segments: the one that is scheduled, those of its operators, and those of its recorded parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._runtime.messages.queue import Queue
from penstock._runtime.scheduling.node import Node
from penstock.core.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._runtime.scheduling.engine import Engine
    from penstock.core.fragment import Fragment

__all__ = ["Collector", "MemberNode", "PartOperator"]


class MemberNode(Node):
    """An operator of a segment: it computes when the segment does, and is not scheduled itself.

    Attributes
    ----------
    scheduled
        The node of the segment.
    """

    __slots__ = ("_scheduled", "replayed")

    def __init__(self, engine: Engine, operator: Operator) -> None:
        super().__init__(engine, operator)
        self._scheduled: Node = self
        self.replayed: Callable[[], int] = int
        """Returns the number of frames that were replayed, which count as computes."""

    @property
    def computes(self) -> int:
        """The number of frames that it has computed or that were replayed."""
        return self.granted - self.remaining + self.replayed()

    @property
    def scheduled(self) -> Node:
        """The node that is scheduled in its place."""
        return self._scheduled

    @scheduled.setter
    def scheduled(self, node: Node) -> None:
        self._scheduled = node

    def status(self) -> Any:
        """Return the state of the segment."""
        return self._scheduled.status()

    def announce(self) -> None:
        """Announce that something the segment waits for may have happened."""
        self._scheduled.announce()

    def request_stop(self) -> None:
        """Never run the segment again: without this operator it has nothing to do."""
        self.stop_requested = True
        self._scheduled.request_stop()


class PartOperator(Operator):
    """Stands for several operators: a segment, or a part of one that is recorded.

    It declares the ports at which messages enter and leave, named ``operator.port``.
    """

    def __init__(self, fragment: Fragment, name: str, inputs: list[str], outputs: list[str]) -> None:
        self._names = (inputs, outputs)
        super().__init__(fragment, name=name)

    def setup(self, spec: Any) -> None:
        """Declare the ports."""
        inputs, outputs = self._names
        for name in inputs:
            spec.input(name)
        for name in outputs:
            spec.output(name)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Do nothing: the run replaces it."""


class Collector(Queue):
    """Stands between an output and a queue, and notes every message; with capacity 0, `offer` gets each.

    Attributes
    ----------
    seen
        The messages.
    """

    __slots__ = ("_behind", "seen")

    def __init__(self, behind: Queue) -> None:
        super().__init__(behind.consumer, behind.port, 0, behind.policy)
        self._behind = behind
        self.seen: list[Any] = []

    def offer(self, item: Any) -> None:
        """Note a message, and pass it on."""
        self.seen.append(item)
        behind = self._behind
        if len(behind) < behind.capacity:
            behind.append(item)
        else:
            behind.offer(item)
