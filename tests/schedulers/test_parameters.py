"""The parameters of schedulers."""

from __future__ import annotations

import pytest

from headrace.resources import ManualClock
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from tests.harness import (
    App,
)


def test_parameters_of_schedulers_are_checked() -> None:
    with pytest.raises(ValueError, match="'worker_thread_number' of .* must be at most 1024, not 1025"):
        MultiThreadScheduler(None, worker_thread_number=1025)
    with pytest.raises(TypeError, match="clock must be a Clock"):
        GreedyScheduler(None, clock=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a Scheduler"):
        App(lambda app: None).scheduler("greedy")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="does not take 'worker_thread_number'"):
        GreedyScheduler(None, worker_thread_number=2)
    assert GreedyScheduler(None).workers == 0
    assert EventBasedScheduler(None, worker_thread_number=3).workers == 3


def test_the_clock_of_a_scheduler_can_be_asked_for() -> None:
    clock = ManualClock()
    assert GreedyScheduler(None, clock=clock).clock is clock
