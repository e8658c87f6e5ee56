"""What a worker does at the edges of its sleep."""

from __future__ import annotations

import threading

import pytest

from penstock import GreedyScheduler
from penstock.core.clock import Clock
from penstock.runtime.engine import Engine
from penstock.runtime.lane import Lane, Seat
from penstock.runtime.rest import _sleep


@pytest.mark.parametrize("chosen", ["before its time is up", "as its time is up"])
def test_a_worker_that_is_chosen_to_stand_by_is_woken_once_and_leaves_no_trace(chosen: str) -> None:
    lane = Lane()
    seat = Seat(lane)
    slept: list[float | None] = []

    class Chosen(Clock):
        def seconds_until(self, target_time_ns: int) -> float:
            return 0.5

        def park(self, seat: Seat, seconds: float | None) -> bool:
            slept.append(seconds)
            if len(slept) > 1:  # it stands by, and may be called from there
                assert lane.asleep == [seat]
                return False
            lane.call_standby()
            return seat.take_wake_up() if chosen == "before its time is up" else False

    engine = Engine(GreedyScheduler(clock=Chosen()))
    lock = threading.Lock()
    with lock:
        _sleep(engine, seat, 1, lock)
    assert len(slept) == 2
    assert lane.standby is None
    assert lane.asleep == []
    assert not seat.take_wake_up()
