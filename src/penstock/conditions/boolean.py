"""BooleanCondition: a switch that ends an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.condition import Condition, ConditionType, SchedulingStatusType

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment

__all__ = ["BooleanCondition"]


class BooleanCondition(Condition, kind=ConditionType.BOOLEAN):
    """Lets an operator run while it is on. Once found off, the operator never runs again in that run."""

    polled = False

    def __init__(
        self, fragment: Fragment | None = None, enable_tick: bool = True, *, name: str = "boolean_condition"
    ) -> None:
        super().__init__(fragment, name=name)
        self._enabled = bool(enable_tick)

    def enable_tick(self) -> None:
        """Turn it on."""
        self._enabled = True
        self.notify_scheduler()

    def disable_tick(self) -> None:
        """Turn it off; may be called from any thread."""
        self._enabled = False
        self.notify_scheduler()

    def check_tick_enabled(self) -> bool:
        """Say whether it is on."""
        return self._enabled

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give READY while it is on and NEVER when it is off."""
        return (SchedulingStatusType.READY if self._enabled else SchedulingStatusType.NEVER), None
