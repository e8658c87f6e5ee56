"""PeriodicCondition: a period in the time of the clock, and what follows a late tick."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition
from headrace.conditions import PeriodicConditionPolicy
from headrace.core.condition import ticks_of
from tests.harness import App, MakeScheduler, Step, run


@pytest.mark.parametrize("period", [10_000_000, 0.01, timedelta(milliseconds=10)])
def test_a_period_is_kept_in_the_clocks_time(scheduler: MakeScheduler, period: Any) -> None:
    times: list[int] = []

    def compose(app: App) -> None:
        pace = PeriodicCondition(app, period)
        assert pace.recess_period_ns() == 10_000_000
        app.add_operator(
            Step(app, pace, CountCondition(app, 4), body=lambda op, i, o: times.append(op.fragment.now))
        )

    run(compose, scheduler)
    assert times == [0, 10_000_000, 20_000_000, 30_000_000]


@pytest.mark.parametrize(
    ("policy", "expected", "skipped"),
    [
        ("CatchUpMissedTicks", [0, 100, 450, 450, 450], 0),
        ("MinTimeBetweenTicks", [0, 100, 450, 550, 650], 0),
        (PeriodicConditionPolicy.NO_CATCH_UP_MISSED_TICKS, [0, 100, 450, 500, 600], 2),
    ],
)
def test_a_policy_says_what_follows_a_late_tick(policy: Any, expected: list[int], skipped: int) -> None:
    times: list[int] = []
    clocks: list[Any] = []

    def body(op: Step, i: Any, o: Any) -> None:
        times.append(op.fragment.now)
        clocks[:] = [ticks_of(op.conditions.values())]
        if op.ticks == 2:
            op.fragment.scheduler().clock.sleep_for(350)

    run(
        lambda app: app.add_operator(
            Step(app, PeriodicCondition(app, 100, policy), CountCondition(app, 5), body=body)
        )
    )
    assert times == expected
    assert clocks[0].skipped == skipped


def test_an_unknown_policy_lists_the_policies() -> None:
    with pytest.raises(ValueError, match="one of CatchUpMissedTicks, MinTimeBetweenTicks"):
        PeriodicCondition(None, 1, "sometimes")
