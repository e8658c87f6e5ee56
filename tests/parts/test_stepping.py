"""Pauses and steps of a program in parts: what the driver decides, and what the parts do."""

from __future__ import annotations

import queue
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import Application, Fragment, PeriodicCondition, op
from headrace._runtime import TAKEN, UNUSED, WANTED
from headrace.core.control import OFFER, PAUSE, RESUME, STEP
from headrace.parts.control import Request
from headrace.parts.cut import Cut
from headrace.parts.stepping import Stepping
from tests.harness import PATIENCE, MakeScheduler, wait_until
from tests.parts.running import MemoryLinks

PARTS = ("a", "b", "c")


def kinds(messages: list[tuple[str, Request]]) -> list[tuple[str, str, int, str]]:
    return [(part, each.kind, each.count, each.operator) for part, each in messages]


def to_all(kind: str) -> list[tuple[str, str, int, str]]:
    return [(part, kind, 0, "") for part in PARTS]


def carried_out(stepping: Stepping, messages: list[tuple[str, Request]]) -> None:
    for part, message in messages:
        stepping.note_paused(part, message.number)


def test_a_pause_means_all_parts_and_is_over_with_the_last_answer() -> None:
    stepping = Stepping()
    sent = stepping.request(PAUSE, 0, "", "", PARTS)
    assert kinds(sent) == to_all(PAUSE)
    carried_out(stepping, sent[:2])
    assert not stepping.is_quiet(PARTS)
    carried_out(stepping, sent[2:])
    assert stepping.is_quiet(PARTS)
    again = stepping.request(PAUSE, 0, "", "", PARTS)
    carried_out(stepping, sent)  # late answers to the request before
    assert not stepping.is_quiet(PARTS)
    carried_out(stepping, again)
    carried_out(stepping, sent)  # and once more, after the new ones
    assert stepping.is_quiet(PARTS)
    assert kinds(stepping.request(RESUME, 0, "", "", PARTS)) == to_all(RESUME)
    assert not stepping.is_quiet(PARTS)


def test_a_step_of_an_operator_is_sent_to_its_part_and_the_others_are_paused() -> None:
    stepping = Stepping()
    sent = stepping.request(STEP, 2, "b.double", "b", PARTS)
    assert kinds(sent) == [("b", STEP, 2, "b.double"), ("a", PAUSE, 0, ""), ("c", PAUSE, 0, "")]
    carried_out(stepping, sent)
    assert stepping.is_quiet(PARTS)
    assert kinds(stepping.request(STEP, 1, "c.show", "c", ("a", "b"))) == [
        ("a", PAUSE, 0, ""),
        ("b", PAUSE, 0, ""),
    ]


def test_steps_that_are_left_are_not_ended_by_a_pause_or_by_a_step_of_an_operator() -> None:
    stepping = Stepping()
    stepping.request(STEP, 1, "", "", PARTS)
    assert stepping.request(PAUSE, 0, "", "", PARTS) == []
    assert kinds(stepping.request(STEP, 1, "a.numbers", "a", PARTS)) == [("a", STEP, 1, "a.numbers")]
    assert kinds(stepping.tell("b", WANTED, PARTS)) == [("b", STEP, 1, "")]
    assert kinds(stepping.tell("b", TAKEN, PARTS)) == to_all(PAUSE)


def test_a_step_that_a_part_does_not_take_is_left_for_the_next_that_asks() -> None:
    stepping = Stepping()
    assert kinds(stepping.request(STEP, 1, "", "", PARTS)) == to_all(OFFER)
    assert kinds(stepping.tell("a", WANTED, PARTS)) == [("a", STEP, 1, "")]
    assert stepping.tell("b", WANTED, PARTS) == []
    assert kinds(stepping.tell("a", UNUSED, PARTS)) == [("b", STEP, 1, "")]
    assert not stepping.is_quiet(PARTS)
    done = stepping.tell("b", TAKEN, PARTS)
    assert kinds(done) == to_all(PAUSE)
    carried_out(stepping, done)
    assert stepping.is_quiet(PARTS)


def test_the_step_of_a_part_that_is_lost_is_left_for_others() -> None:
    stepping = Stepping()
    stepping.request(STEP, 1, "", "", PARTS)
    stepping.tell("a", WANTED, PARTS)
    stepping.tell("b", WANTED, PARTS)
    assert kinds(stepping.leave("a")) == [("b", STEP, 1, "")]
    assert kinds(stepping.join("a")) == [("a", OFFER, 0, "")]
    stepping.tell("b", TAKEN, PARTS)
    assert kinds(stepping.join("a")) == [("a", PAUSE, 0, "")]
    stepping.request(RESUME, 0, "", "", PARTS)
    assert stepping.join("a") == []


def test_a_resume_ends_the_steps_that_are_left() -> None:
    stepping = Stepping()
    stepping.request(STEP, 5, "", "", PARTS)
    stepping.tell("a", WANTED, PARTS)
    stepping.request(RESUME, 0, "", "", PARTS)
    assert stepping.tell("a", TAKEN, PARTS) == []
    assert stepping.tell("b", WANTED, PARTS) == []
    stepping.request(STEP, 1, "", "", PARTS)
    assert kinds(stepping.tell("b", WANTED, PARTS)) == [("b", STEP, 1, "")]


@given(st.integers(1, 9), st.lists(st.tuples(st.sampled_from(PARTS), st.booleans()), max_size=60))
def test_as_many_steps_are_taken_as_were_requested(count: int, tries: list[tuple[str, bool]]) -> None:
    """Whichever parts ask, and whether they take what they are granted or not."""
    stepping = Stepping()
    stepping.request(STEP, count, "", "", PARTS)
    granted, taken = dict.fromkeys(PARTS, 0), 0
    is_paused = False
    for part, takes in [*tries, *((part, True) for _ in range(count) for part in PARTS)]:
        for message in (WANTED, TAKEN if takes else UNUSED):
            if message is not WANTED and not granted[part]:
                continue
            granted[part] -= message is not WANTED
            taken += message is TAKEN
            for target, sent in stepping.tell(part, message, PARTS):
                granted[target] += sent.kind == STEP
                is_paused |= sent.kind == PAUSE
        assert taken + sum(granted.values()) <= count
    assert is_paused
    assert taken == count


# The parts.


@op
def numbers() -> Any:
    yield from range(100)


@op
def double(value: int) -> int:
    return 2 * value


@op(outputs=())
def show(value: int) -> None:
    pass


class Numbers(Fragment):
    def compose(self) -> None:
        self.add_operator(numbers(self, *self.application.conditions(self), name="numbers"))


class Double(Fragment):
    def compose(self) -> None:
        self.add_operator(double(self, name="double"))


class Show(Fragment):
    def compose(self) -> None:
        self.add_operator(show(self, name="show"))


class Program(Application):
    """Three parts in a row, each with an operator; paused from the beginning."""

    make_scheduler: MakeScheduler
    period = 0

    def conditions(self, part: Fragment) -> list[Any]:
        return [PeriodicCondition(part, self.period)] if self.period else []

    def compose(self) -> None:
        self.scheduler(type(self).make_scheduler(self))
        parts = Numbers(self, "a"), Double(self, "b"), Show(self, "c")
        self.add_flow(*parts[:2], {("numbers.out", "double.value")}, size=2)
        self.add_flow(*parts[1:], {("double.out", "show.value")}, size=2)
        self.pause()


class Run:
    """A run of the parts in this process, whose steps a test decides as a driver does."""

    def __init__(self, scheduler: MakeScheduler, period: int = 0) -> None:
        kind = type("Stepped", (Program,), {"make_scheduler": staticmethod(scheduler), "period": period})
        links = MemoryLinks()
        self.apps = {part: Cut(kind(), part, links.connect).application for part in PARTS}
        self.futures = [app.run_async() for app in self.apps.values()]
        self.stepping = Stepping(is_paused=True)
        self.told: queue.Queue[tuple[str, str]] = queue.Queue()
        for part, app in self.apps.items():
            assert app.wait_until_paused(PATIENCE)
            app._headrace.engine.gate.on_step = lambda what, part=part: self.told.put((part, what))

    def send(self, messages: list[tuple[str, Request]]) -> None:
        for part, each in messages:
            self.apps[part]._headrace.run_control._request((each.kind, each.count, each.operator))

    def step(self, count: int, operator: str = "") -> None:
        """Step, and wait until all parts are paused."""
        self.send(self.stepping.request(STEP, count, operator, operator.partition(".")[0], PARTS))
        while self.stepping._is_offering:
            part, what = self.told.get(timeout=PATIENCE)
            self.send(self.stepping.tell(part, what, PARTS))
        for app in self.apps.values():
            assert app.wait_until_paused(PATIENCE)

    def computes(self) -> dict[str, int]:
        found = {name: count for app in self.apps.values() for name, count in app.progress().computes.items()}
        return {name: count for name, count in found.items() if " -> " not in name}

    def end(self) -> None:
        for app in self.apps.values():
            app.stop_execution()
        for future in self.futures:
            future.result(PATIENCE)


def test_a_step_is_one_compute_of_an_operator_that_can_run_in_any_part(scheduler: MakeScheduler) -> None:
    run = Run(scheduler)
    for total in range(1, 8):
        run.step(1)
        assert sum(run.computes().values()) == total
    run.step(13)
    assert sum(run.computes().values()) == 20
    counts = list(run.computes().values())
    assert counts == sorted(counts, reverse=True)
    assert counts[0] <= counts[2] + 6  # the places of two queues, and what two operators hold
    run.end()


def test_a_step_of_an_operator_gets_what_other_parts_have_emitted(scheduler: MakeScheduler) -> None:
    run = Run(scheduler)
    run.step(2, "a.numbers")
    run.step(1, "b.double")
    assert run.computes() == {"a.numbers": 2, "b.double": 1, "c.show": 0}
    run.step(1, "c.show")
    run.step(1, "b.double")
    assert run.computes() == {"a.numbers": 2, "b.double": 2, "c.show": 1}
    run.end()


def test_time_goes_on_until_a_step_can_be_taken(scheduler: MakeScheduler) -> None:
    run = Run(scheduler, period=1_000_000_000)
    run.step(4)
    assert sum(run.computes().values()) == 4
    run.end()


def test_frames_travel_in_a_pause(scheduler: MakeScheduler) -> None:
    """The flow is there although nothing computes: what was emitted is in the queue of its receiver."""
    run = Run(scheduler)
    run.step(2, "a.numbers")
    wait_until(lambda: run.apps["b"].progress().waiting == {"b.double.value": 2}, "the frames")
    assert run.computes() == {"a.numbers": 2, "b.double": 0, "c.show": 0}
    run.end()


def test_a_step_that_no_operator_takes_is_given_back(scheduler: MakeScheduler) -> None:
    run = Run(scheduler)
    run.send(run.stepping.request(STEP, 1, "", "", PARTS))
    run.send([("c", Request(STEP, 1, "", 0))])  # nothing has come there
    assert {run.told.get(timeout=PATIENCE) for _ in range(2)} == {("a", WANTED), ("c", UNUSED)}
    assert sum(run.computes().values()) == 0
    run.end()
