"""CountCondition: run a number of times, then never again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType
from headrace.core.whole_numbers import whole_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.node import Node


class CountCondition(Condition):
    """Lets an operator run `count` times in a run.

    Parameters
    ----------
    count
        The number of computes.
    """

    polled = False

    def __init__(
        self, fragment: Composition | None = None, count: int = 1, *, name: str = "count_condition"
    ) -> None:
        super().__init__(fragment, name=name)
        self.count = count

    @property
    def count(self) -> int:
        """The number of computes."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        self._count = self._left = whole_number(count, f"condition {self.name!r}: count")

    def attach(self, node: Node) -> None:
        """Limit the computes of the node."""
        self.join(node)
        if not node.operator._headrace.limit_calls(self._count):
            node.limit_count(self._count)

    # The node counts its computes. The rest is used only if the condition is a term of an OrConditionCombiner.

    def initialize(self) -> None:
        """Reset the count."""
        self._left = self._count

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY while computes are left."""
        return (SchedulingStatusType.READY if self._left > 0 else SchedulingStatusType.NEVER), None

    def on_execute(self, timestamp: int) -> None:
        """Count one compute."""
        self._left -= 1
