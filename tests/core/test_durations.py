"""A duration is written the same way wherever one is taken."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from headrace import Application, GreedyScheduler, PeriodicCondition
from headrace.conditions import ExpiringMessageAvailableCondition, MultiMessageAvailableTimeoutCondition
from headrace.resources import ManualClock, SyntheticClock

MS = 1_000_000


def period(app: Application, duration: Any) -> int:
    return PeriodicCondition(app, duration).recess_period_ns()


def delay(app: Application, duration: Any) -> int:
    return ExpiringMessageAvailableCondition(app, 4, duration).max_delay_ns


def timeout(app: Application, duration: Any) -> int:
    return MultiMessageAvailableTimeoutCondition(app, duration).period


def slept(app: Application, duration: Any) -> int:
    clock = ManualClock(app)
    clock.sleep_for(duration)
    return clock.timestamp()


def advanced(app: Application, duration: Any) -> int:
    clock = SyntheticClock(app)
    clock.advance_by(duration)
    return clock.timestamp()


TAKERS = [period, delay, timeout, slept, advanced]


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (33, 33),
        (np.int32(33), 33),
        (0.033, 33 * MS),
        (np.float32(0.5), 500 * MS),
        (timedelta(milliseconds=33), 33 * MS),
        ("33ms", 33 * MS),
        (" 33 ms ", 33 * MS),
        ("0.1s", 100 * MS),
        (".5s", 500 * MS),
        ("1.5s", 1500 * MS),
        ("1e3us", MS),
        ("250µs", MS // 4),
        ("7ns", 7),
        ("7", 7),
        ("2min", 120_000 * MS),
        ("1h", 3_600_000 * MS),
        ("30Hz", 33_333_333),
        ("50hz", 20 * MS),
        ("1kHz", MS),
    ],
)
def test_a_duration_is_a_number_a_timedelta_or_text(duration: Any, expected: int) -> None:
    assert {take(Application([]), duration) for take in TAKERS} == {expected}


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("wrong", ["often", "33 m s", "33 parsecs", "1.5", "", "ms"])
def test_text_that_is_no_duration_shows_some_that_are(take: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"'33ms', '1.5s', '2min', '30Hz'; not"):
        take(Application([]), wrong)


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("wrong", [None, True, [1], float("nan"), float("inf")])
def test_what_is_no_duration_at_all_is_refused(take: Any, wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"an int \(nanoseconds\), a float \(seconds\), a timedelta, or a str"
    ):
        take(Application([]), wrong)


@pytest.mark.parametrize(
    "wrong", ["1e999999999s", "1e-999999999s", "9" * 5000, "9" * 5000 + "s"], ids=lambda wrong: wrong[:12]
)
def test_text_of_a_number_beyond_measure_is_refused_at_once(wrong: str) -> None:
    """Its power of ten would take minutes and gigabytes to compute."""
    with pytest.raises(ValueError, match=r"'30Hz'; not '"):
        PeriodicCondition(None, wrong)


@pytest.mark.parametrize(
    "wrong", [2**63, 10**400, -(10**400), 1e300, -1e300, "1e9h", "1e-20Hz", timedelta.max]
)
def test_a_duration_fits_into_64_bits(wrong: Any) -> None:
    with pytest.raises(ValueError, match="must be less than 292 years"):
        PeriodicCondition(None, wrong)


@pytest.mark.parametrize("wrong", ["0Hz", "-5Hz"])
def test_a_frequency_must_be_more_than_zero(wrong: str) -> None:
    with pytest.raises(ValueError, match="must have a frequency of more than 0"):
        PeriodicCondition(None, wrong)


def test_a_scheduler_takes_milliseconds_or_text() -> None:
    scheduler = GreedyScheduler(
        None, max_duration_ms="1.5s", stop_on_deadlock_timeout="500us", check_recession_period_ms="2ms"
    )
    assert scheduler.max_duration_ms == 1500
    assert scheduler.stop_on_deadlock_timeout == 1  # whole milliseconds, rounded up
    assert scheduler.check_recession_period_ms == 2
    assert GreedyScheduler(None, max_duration_ms=250).max_duration_ms == 250
    assert GreedyScheduler(None, max_duration_ms="250").max_duration_ms == 250
    with pytest.raises(ValueError, match="max_duration_ms must be a number of milliseconds, .* not 'soon'"):
        GreedyScheduler(None, max_duration_ms="soon")
    assert GreedyScheduler(None, max_duration_ms=timedelta(seconds=2)).max_duration_ms == 2000
    assert not GreedyScheduler(None, stop_on_deadlock_timeout=-1).stop_on_deadlock
