"""Operators that keep nothing look at the device together: when they do, what they find, and what it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace import gpu
from headrace._runtime.compiled import is_compiled
from headrace._runtime.messages.managed_stream import ManagedStream, create_event
from headrace._runtime.streams import in_order
from headrace._runtime.streams.branch import Branch
from headrace._runtime.streams.in_order import InOrder, Step
from tests.harness import MS, launch

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")

SECOND = 1_000_000_000


class Looks:
    """Three operators of a branch on one stream, and the looks for all of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = self.now = 0
        self.fences = 0
        self.branch = Branch(may_split=True)
        self.nodes: list[Any] = [SimpleNamespace(remaining=1000) for _ in range(3)]
        for node in self.nodes:
            self.branch.join(node, [], lambda: None)
        self.stream = gpu.Device(0).create_stream()
        managed = ManagedStream(self.stream, 0, lambda: create_event(0))
        record = managed.record

        def record_and_count(event: Any) -> None:
            self.fences += 1
            record(event)

        managed.record = record_and_count
        monkeypatch.setattr(in_order, "monotonic_ns", lambda: self.host)
        self.looks = InOrder(self.branch, managed)
        self.steps = [Step() for _ in self.nodes]

    def begin(self, *places: int) -> None:
        for place in places or range(3):
            self.looks.begin(self.steps[place], self.now)

    def end(self, place: int) -> bool:
        return self.looks.end(self.steps[place], lambda: self.now)

    def compute(self, times: int, each: int = 0) -> None:
        """All operators compute so many times, which takes so many nanoseconds for each compute."""
        for node in self.nodes:
            node.remaining -= times
        self.now += 3 * times * each

    def fall_behind(self) -> None:
        launch(
            gpu.StreamHandle(self.stream), MS, lambda out: None, gpu.Device(0).allocate(8, stream=self.stream)
        )

    def catch_up(self) -> None:
        self.stream.sync()

    def look(self) -> list[bool]:
        """Let each operator end a step, which is a look; return which of them go on."""
        return [self.end(place) for place in range(3)]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_there_is_a_look_when_each_operator_has_asked_once(three: Looks) -> None:
    three.begin()
    assert three.fences == 1, "for the first look, before any work of theirs"
    for looks in range(1, 4):
        assert three.end(0)
        assert three.end(1)
        assert three.fences == looks
        assert three.end(2)
        assert three.fences == looks + 1


def test_there_is_a_look_sooner_if_some_time_has_passed(three: Looks) -> None:
    three.begin()
    for looks in (1, 2):
        three.host += 40_000_000
        assert three.end(0)
        assert three.fences == looks
        three.host += 1
        assert three.end(1)
        assert three.fences == looks + 1


def test_a_step_is_as_long_as_its_time_allows(three: Looks) -> None:
    three.begin()
    found = []
    for milliseconds in (1, 1, 1, 20, 20, 1, 41, 30, 41, 41, 41, 41, 1):
        three.host += 1_000_000 * milliseconds
        assert three.end(0)
        found.append(three.steps[0].left)
    assert found == [16, 32, 64, 96, 96, 96, 48, 48, 24, 12, 8, 8, 16]


def test_the_first_step_of_operators_that_begin_again_is_a_short_one(three: Looks) -> None:
    three.begin()
    three.end(0)
    assert three.steps[0].left > 8
    three.begin(0)
    assert three.steps[0].left == 8


def test_all_operators_keep_again_if_one_finds_that_the_device_is_behind(three: Looks) -> None:
    three.fall_behind()
    three.begin()
    assert three.end(0)
    assert three.end(1)
    three.steps[0].left = three.steps[1].left = 40
    assert not three.end(2)
    assert [step.left for step in three.steps[:2]] == [1, 1], "they need not end their steps to learn it"
    three.catch_up()
    assert not three.end(0)
    assert not three.end(1)
    assert three.fences == 1, "one that has to keep again does not look"


def test_operators_that_begin_again_go_on_whatever_the_others_do(three: Looks) -> None:
    three.fall_behind()
    three.begin()
    assert three.look() == [True, True, False]
    three.catch_up()
    before = three.fences
    three.begin(1)
    assert three.fences == before + 1
    assert three.steps[1].left == 8, "it is the first one again"
    for _ in range(4):
        assert three.end(1)
        assert not three.end(0)
        assert not three.end(2)
    three.begin(0)
    assert three.look() == [True, True, False]


def test_an_operator_that_ends_its_step_in_the_look_of_another_one_goes_on(three: Looks) -> None:
    three.begin()
    three.fall_behind()
    with three.looks._lock:
        assert three.look() == [True] * 3
    assert three.fences == 1


def test_operators_keep_again_when_the_branch_splits(three: Looks) -> None:
    three.begin()
    three.branch.split()
    assert three.look() == [True, True, False]
    assert not three.looks.are_to_probe


def test_slow_computes_end_it_so_that_the_operators_probe(three: Looks) -> None:
    three.begin()
    assert not three.looks.are_to_probe
    three.compute(7, each=70_000)
    assert three.look() == [True] * 3, "a span is longer"
    three.compute(1, each=70_000)
    assert three.look() == [True, True, False]
    assert three.looks.are_to_probe


def test_quick_computes_do_not_end_it(three: Looks) -> None:
    three.begin()
    for _ in range(10):
        three.compute(16, each=50_000)
        assert three.look() == [True] * 3


def test_the_operators_rest_after_probes_that_found_nothing(three: Looks) -> None:
    three.begin()
    three.compute(8, each=70_000)
    assert not all(three.look())
    three.begin()
    for _ in range(7):
        three.compute(8, each=70_000)
        assert three.look() == [True] * 3
        assert not three.looks.are_to_probe
    three.compute(8, each=70_000)
    assert not all(three.look())
    assert three.looks.are_to_probe


def test_time_in_which_the_operators_kept_what_they_received_does_not_count(three: Looks) -> None:
    """Slow computes while the device is behind split a branch, but these were quick whenever it was."""
    for _ in range(8):
        three.fall_behind()
        three.begin()
        three.compute(8, each=20_000)
        assert not all(three.look())
        three.catch_up()
        three.compute(8, each=SECOND)
    assert not three.branch.is_split
