"""The reader: how often it shows what has happened."""

from __future__ import annotations

import pytest

from headrace.observe import OperatorInfo, RunInfo, Watcher
from headrace.observe.events.reader import Change, Reader


@pytest.mark.parametrize(
    ("took", "pause"),
    [(0.001, 0.25), (0.004, 0.4), (0.02, 2.0), (1.0, 2.0)],
)
def test_rounds_take_a_small_part_of_the_time_and_are_not_too_rare(took: float, pause: float) -> None:
    assert reader(Watcher())._pause_after(took) == pytest.approx(pause)


def test_a_watcher_may_ask_for_more_rounds_during_a_run() -> None:
    calm, curious = Watcher(), Watcher()
    found = reader(calm, curious)
    curious.longest_period = 0.5
    assert found._pause_after(1.0) == 0.5
    assert found._pause_after(0.001) == 0.25
    curious.longest_period = 2.0
    assert found._pause_after(1.0) == 2.0


def reader(*watchers: Watcher) -> Reader:
    operator = OperatorInfo("it", 0)
    return Reader(
        watchers, RunInfo("test", [operator], started=0, epoch=0, is_virtual=True), Change([], []), {}
    )
