"""What the timestamps of a run mean in its parts and in other programs."""

from __future__ import annotations

import time

import pytest

from headrace.core.control import TimeBase, clock_name
from headrace.resources import ManualClock, RealtimeClock

NOW = 1_800_000_000 * 10**9
HERE = TimeBase(clock_name(), 500, NOW)


def test_on_one_host_a_time_is_converted_exactly_whatever_became_of_the_time_of_day() -> None:
    later = TimeBase(clock_name(), 2_800_000_500, NOW + 77)  # the host's time of day was set meanwhile
    assert later.convert(1000, HERE) == 2_800_001_000
    assert HERE.convert(2_800_001_000, later) == 1000


def test_between_hosts_a_time_is_converted_by_the_time_of_day() -> None:
    assert TimeBase("another", 500, NOW + 30).convert(1000, HERE) == 1030
    assert TimeBase("", 500, NOW + 30).convert(1000, HERE._replace(clock="")) == 1030


def test_a_clock_says_when_it_showed_0() -> None:
    clock = RealtimeClock(initial_time_offset=100.0)
    base = clock.time_base
    assert base is not None
    assert base.clock == clock_name()
    before = time.monotonic_ns()
    shown = clock.timestamp()
    assert before <= base.zero + shown <= time.monotonic_ns()
    assert abs(base.since_1970 + shown - time.time_ns()) < 10**9


@pytest.mark.parametrize("clock", [ManualClock(), RealtimeClock(initial_time_scale=2.0)])
def test_time_that_is_simulated_or_passes_at_another_speed_means_nothing_elsewhere(clock: object) -> None:
    assert clock.time_base is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("since_epoch", [False, True])
def test_a_clock_that_goes_on_elsewhere_shows_the_time_since_its_run_began(since_epoch: bool) -> None:
    began = TimeBase(clock_name(), time.monotonic_ns() - 10**12, NOW)
    shown = []
    for _ in range(2):  # in two parts, or before and after a restart
        clock = RealtimeClock(use_time_since_epoch=since_epoch)
        clock._headrace.began = began
        clock.initialize()
        shown.append(clock.timestamp() - time.monotonic_ns())
    start = NOW if since_epoch else 0
    for each in shown:
        assert each == pytest.approx(start - began.zero, abs=10**9)
    assert clock.timestamp() >= start + 10**12
