"""What ends an operator: BooleanCondition, a switch; CountCondition, a number of computes.

What counts is a compute that takes its messages, or that has no inputs. A compute that goes on with messages of an
earlier one does not count: a function that yields computes once for each value, and an async function once to begin
a call and once to emit its result. So a count means the same whatever a function yields, and with replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._runtime import has_more
from headrace.core.condition import Condition
from headrace.core.parameters import declared, parameter
from headrace.core.ports import SchedulingStatusType
from headrace.core.values import boolean, whole_number

if TYPE_CHECKING:
    from headrace.core.node import Node


@declared(kw_only=False)
class BooleanCondition(Condition):
    """Lets an operator run while the switch is on.

    Once the scheduler has seen the switch off, the operator never runs again in that run.

    Parameters
    ----------
    enable_tick
        Whether the switch is initially on.
    """

    polled = False
    depends_on_ports = False

    name = "boolean_condition"
    _enabled: bool = parameter(default=True, alias="enable_tick", convert=boolean)

    def enable_tick(self) -> None:
        """Turn the switch on."""
        self._turn(True)

    def disable_tick(self) -> None:
        """Turn the switch off; may be called from any thread."""
        self._turn(False)

    def _turn(self, enabled: bool) -> None:
        # Only a change is announced: another condition may turn the switch in every `check`, and each announcement
        # leads to another check.
        if self._enabled is not enabled:
            self._enabled = enabled
            self.notify_scheduler()

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY while the switch is on, NEVER when it is off."""
        return (SchedulingStatusType.READY if self._enabled else SchedulingStatusType.NEVER), None


@declared(kw_only=False)
class CountCondition(Condition):
    """Lets an operator run `count` times in a run; a compute that goes on with earlier messages does not count.

    Parameters
    ----------
    count
        The number of computes. Of a function with inputs that yields, and of an async function, the number of its
        calls: it ends when it has emitted all that these yield.
    """

    polled = False

    name = "count_condition"
    _count: int = parameter(default=1, alias="count")

    @property
    def count(self) -> int:
        """The number of computes."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        self._count = self._left = whole_number(count, f"condition {self.name!r}: count")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._left = self._count

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
        """Return READY while computes are left, or one goes on with earlier messages."""
        is_ready = self._left > 0 or (
            self._headrace.node is not None and has_more(self._headrace.node.operator)
        )
        return (SchedulingStatusType.READY if is_ready else SchedulingStatusType.NEVER), None

    def on_execute(self, timestamp: int) -> None:
        """Count one compute, unless it has gone on with earlier messages."""
        if self._headrace.node is None or not self._headrace.node.has_gone_on:
            self._left -= 1
