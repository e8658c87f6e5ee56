"""PeriodicCondition: run once per period."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from headrace.core.condition import Condition, Ticks
from headrace.core.ports import SchedulingStatusType
from headrace.core.values import Duration, nanoseconds

if TYPE_CHECKING:
    from headrace.core.composition import Composition


class PeriodicConditionPolicy(enum.Enum):
    """What happens after a late tick."""

    CATCH_UP_MISSED_TICKS = 0
    MIN_TIME_BETWEEN_TICKS = 1
    NO_CATCH_UP_MISSED_TICKS = 2


_BY_NAME = {
    "CatchUpMissedTicks": PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS,
    "MinTimeBetweenTicks": PeriodicConditionPolicy.MIN_TIME_BETWEEN_TICKS,
    "NoCatchUpMissedTicks": PeriodicConditionPolicy.NO_CATCH_UP_MISSED_TICKS,
}


class PeriodicCondition(Condition):
    """Lets an operator run once per period of the clock; the first tick comes at once.

    Parameters
    ----------
    recess_period
        The period: an int is nanoseconds, a float is seconds; or a str such as ``"33ms"`` or ``"30Hz"``, or a
        timedelta.
    policy
        What happens after a late tick: ``CATCH_UP_MISSED_TICKS`` runs the missed ticks at once, so that none is
        lost; ``MIN_TIME_BETWEEN_TICKS`` keeps a full period between ticks; ``NO_CATCH_UP_MISSED_TICKS`` skips
        the missed ticks and keeps to multiples of the period. Ticks that were missed while the run was paused count
        as one, under every policy.
    """

    polled = False
    depends_on_ports = False

    def __init__(
        self,
        fragment: Composition | None = None,
        recess_period: Duration = 0,
        policy: PeriodicConditionPolicy | str = PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS,
        *,
        name: str = "periodic_condition",
    ) -> None:
        super().__init__(fragment, name=name)
        if isinstance(policy, str):
            named = _BY_NAME.get(policy) or PeriodicConditionPolicy.__members__.get(policy.upper())
            if named is None:
                raise ValueError(
                    f"condition {name!r}: there is no policy {policy!r}; there are {', '.join(_BY_NAME)}"
                )
            policy = named
        if not isinstance(policy, PeriodicConditionPolicy):
            raise TypeError(
                f"condition {name!r}: policy must be a PeriodicConditionPolicy or one of {', '.join(_BY_NAME)}, "
                f"not {policy!r}"
            )
        self.policy: PeriodicConditionPolicy = policy
        self._ticks = self._headrace.ticks = Ticks()
        self.recess_period(recess_period)

    def recess_period(self, period: Duration) -> None:
        """Set the period."""
        self._ticks.period = nanoseconds(period, f"condition {self.name!r}: the period")
        if self._ticks.period < 0:
            raise ValueError(f"condition {self.name!r}: the period must not be negative, and is {period!r}")

    def recess_period_ns(self) -> int:
        """Return the period in nanoseconds."""
        return self._ticks.period

    def initialize(self) -> None:
        """Start over: the first tick comes at once."""
        self._ticks.due = None
        self._ticks.skipped = 0

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY from the time of the next tick on."""
        due = self._ticks.due
        if due is None or timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due

    def on_execute(self, timestamp: int) -> None:
        """Set the time of the next tick."""
        ticks, period = self._ticks, self._ticks.period
        if ticks.due is None or self.policy is PeriodicConditionPolicy.MIN_TIME_BETWEEN_TICKS:
            ticks.due = timestamp + period
        elif self.policy is PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS or not period:
            ticks.due += period
        else:
            missed = (timestamp - ticks.due) // period
            ticks.skipped += missed
            ticks.due += (missed + 1) * period

    def on_resume(self, timestamp: int) -> None:
        """Let the ticks that were missed in a pause count as one, under every policy."""
        ticks, period = self._ticks, self._ticks.period
        if ticks.due is not None and period and timestamp > ticks.due:
            ticks.due += (timestamp - ticks.due) // period * period
