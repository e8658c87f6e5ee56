"""MemberNode: an operator of a segment in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.scheduling.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.scheduling.engine import Engine
    from headrace.core.operator import Operator

__all__ = ["MemberNode"]


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
