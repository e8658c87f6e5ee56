"""PeriodicCondition: run once per period."""

from __future__ import annotations

import enum

from headrace.core.condition import Condition, Ticks
from headrace.core.parameters import Converted, converted, declared
from headrace.core.ports import SchedulingStatusType
from headrace.core.values import Duration, nanoseconds


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


def _nanoseconds(period: Duration, what: str) -> int:
    found = nanoseconds(period, what)
    if found < 0:
        raise ValueError(f"{what} must not be negative, and is {period!r}")
    return found


def _policy(given: object, what: str) -> PeriodicConditionPolicy:
    named = given
    if isinstance(given, str):
        named = _BY_NAME.get(given) or PeriodicConditionPolicy.__members__.get(given.upper())
    if not isinstance(named, PeriodicConditionPolicy):
        raise (ValueError if isinstance(given, str) else TypeError)(
            f"{what} must be a PeriodicConditionPolicy or one of {', '.join(_BY_NAME)}, not {given!r}"
        )
    return named


@declared(kw_only=False)
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

    name = "periodic_condition"
    _period: Converted[Duration, int] = converted(_nanoseconds, default=0, alias="recess_period")
    policy: Converted[PeriodicConditionPolicy | str, PeriodicConditionPolicy] = converted(
        _policy, default=PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ticks = self._headrace.ticks = Ticks()
        self._ticks.period = self._period

    def recess_period(self, period: Duration) -> None:
        """Set the period."""
        self._ticks.period = _nanoseconds(period, f"condition {self.name!r}: the period")

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
