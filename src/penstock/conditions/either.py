"""OrConditionCombiner: any one of several conditions will do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.core.condition import Condition, SchedulingStatusType

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.runtime.node import Node

__all__ = ["OrConditionCombiner"]


class OrConditionCombiner(Condition):
    """Lets an operator run when any of its `terms` would; give it to the operator, with or without them.

    It is NEVER only when all of them are, and waits for the earliest of their times.
    """

    polled = False

    def __init__(
        self, fragment: Fragment | None = None, terms: Iterable[Condition] = (), *, name: str = "or_combiner"
    ) -> None:
        super().__init__(fragment, name=name)
        self.terms = list(terms)
        for term in self.terms:
            if not isinstance(term, Condition):
                raise TypeError(f"{name!r}: terms are conditions, and {term!r} is not one")
        if not self.terms:
            raise ValueError(f"{name!r} has no terms: give terms=[condition, ...]")

    def attach(self, node: Node) -> None:
        """Be asked, on behalf of the terms."""
        self._node = node
        for term in self.terms:
            join = getattr(term, "join", None)
            if join is None:
                term._node = node
            else:
                join(node)
            for port in getattr(term, "port_names", ()):
                for queue in node.queues_of(port):
                    if port in node.input_queues:
                        queue.min_size = 0
        node.ask(self)
        node.polls = node.polls or any(term.polled for term in self.terms)

    def detach(self) -> None:
        """Leave the run, with the terms."""
        super().detach()
        for term in self.terms:
            term.detach()

    def initialize(self) -> None:
        """Initialize the terms."""
        for term in self.terms:
            term.initialize()

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give the most hopeful of the terms' answers."""
        best = SchedulingStatusType.NEVER
        earliest: int | None = None
        for term in self.terms:
            term.update_state(timestamp)
            status, target = term.check(timestamp)
            if status is SchedulingStatusType.READY:
                return status, target
            if status is SchedulingStatusType.WAIT_TIME and target is not None:
                if target <= timestamp:
                    return SchedulingStatusType.READY, target
                earliest = target if earliest is None else min(earliest, target)
            if _HOPE[status] > _HOPE[best]:
                best = status
        return best, earliest

    def on_execute(self, timestamp: int) -> None:
        """Tell the terms."""
        for term in self.terms:
            term.on_execute(timestamp)


_HOPE = {
    SchedulingStatusType.NEVER: 0,
    SchedulingStatusType.WAIT: 1,
    SchedulingStatusType.WAIT_EVENT: 2,
    SchedulingStatusType.WAIT_TIME: 3,
}
