"""The reader: how often it shows what has happened."""

from __future__ import annotations

import pytest

from headrace.observe import OperatorInfo, RunInfo, Watcher
from headrace.observe.events.gpu_timing import ComputeTimer
from headrace.observe.events.reader import Change, Reader
from headrace.observe.events.recorder import NodeRecorder
from headrace.observe.events.watchers import WatcherGroup


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


def test_it_says_up_to_which_time_all_is_known() -> None:
    now = 0
    recorders = [
        NodeRecorder(OperatorInfo(name, index), int, ComputeTimer()) for index, name in enumerate("ab")
    ]
    run = RunInfo("test", [each.info for each in recorders], started=0, epoch=0, is_virtual=True)
    found = Reader(begun(Watcher()), run, Change(recorders, []), {}, None, lambda: now)
    assert found.known_until == 0
    for each in recorders:
        for number in range(5):
            each.computes += (10 * number, 10 * number + 5)
            each.threads.append(1)
    now = 100
    found._round(2)
    assert found.known_until == 15, "the end of the second compute: more were not read"
    found._round(9)
    assert found.known_until == 100, "all was read"
    now = 200
    found._round(9)
    assert found.known_until == 200, "nothing happens"


def reader(*watchers: Watcher) -> Reader:
    run = RunInfo("test", [OperatorInfo("it", 0)], started=0, epoch=0, is_virtual=True)
    return Reader(begun(*watchers), run, Change([], []), {})


def begun(*watchers: Watcher) -> WatcherGroup:
    group = WatcherGroup(watchers)
    group.begun += watchers
    return group
