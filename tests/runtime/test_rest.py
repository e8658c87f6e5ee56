"""What a worker does at the edges of its sleep."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.runtime.lane import Lane, Seat
from penstock.runtime.rest import _sleep


@pytest.mark.parametrize("chosen", ["before its time is up", "as its time is up"])
def test_a_worker_that_is_chosen_to_stand_by_is_woken_once_and_leaves_no_trace(chosen: str) -> None:
    lane = Lane()
    seat = Seat(lane)
    slept: list[float | None] = []

    class Clock:
        def seconds_until(self, until: int) -> float:
            return 0.5

        def park(self, seat: Seat, seconds: float | None) -> bool:
            slept.append(seconds)
            if len(slept) > 1:  # it stands by, and may be called from there
                assert lane.asleep == [seat]
                return False
            lane.call_standby()
            return seat.take_wake_up() if chosen == "before its time is up" else False

    engine: Any = SimpleNamespace(
        clock=Clock(), keeper=None, keeper_until=0, polled={}, inbox=[], overtake=lambda lane, node: None
    )
    lock = threading.Lock()
    with lock:
        _sleep(engine, seat, 1, lock)
    assert len(slept) == 2
    assert lane.standby is None
    assert lane.asleep == []
    assert not seat.take_wake_up()
