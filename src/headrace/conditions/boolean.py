"""BooleanCondition: a switch that ends an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.condition import Condition
from headrace.core.ports import SchedulingStatusType
from headrace.core.values import boolean

if TYPE_CHECKING:
    from headrace.core.composition import Composition


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

    def __init__(
        self,
        fragment: Composition | None = None,
        enable_tick: bool = True,
        *,
        name: str = "boolean_condition",
    ) -> None:
        super().__init__(fragment, name=name)
        self._enabled = boolean(enable_tick, f"condition {name!r}: enable_tick")

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

    def check_tick_enabled(self) -> bool:
        """Return whether the switch is on."""
        return self._enabled

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY while the switch is on, NEVER when it is off."""
        return (SchedulingStatusType.READY if self._enabled else SchedulingStatusType.NEVER), None
