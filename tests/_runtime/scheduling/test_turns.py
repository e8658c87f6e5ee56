"""Turns: one operator computes at a time, unless it says that it computes beside others."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from headrace import CountCondition, EventBasedScheduler, Operator, PeriodicCondition, op
from headrace.core import Condition, SchedulingStatusType
from headrace.resources import RealtimeClock
from tests._runtime.scheduling.counting_clock import in_virtual_time
from tests.harness import PATIENCE, App, Step, event_based, run
from tests.harness.internals import node_of

COUNT = 20


class Inside:
    """Who computes, and the most that have computed at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


def most_at_once(is_parallel: bool, machine: Any) -> int:
    """Return how many of four operators have computed at once; in virtual time no host is too slow for a turn."""
    inside, together = Inside(), threading.Barrier(4)

    def body(step: Step, i: Any, o: Any) -> None:
        with inside:
            if is_parallel:
                together.wait(PATIENCE)

    def compose(app: App) -> None:
        for number in range(4):
            step = Step(app, CountCondition(app, COUNT), body=body, name=f"step{number}")
            step.parallel = is_parallel
            app.add_operator(step)

    run(compose, in_virtual_time(4))
    return inside.most


def test_operators_that_say_nothing_take_turns(machine: Any) -> None:
    assert most_at_once(False, machine) == 1


def test_operators_that_say_so_compute_beside_each_other_at_once(machine: Any) -> None:
    assert most_at_once(True, machine) == 4


def test_an_undeclared_compute_of_10_ms_delays_an_operator_of_1_khz_by_a_millisecond_at_most(
    machine: Any,
) -> None:
    """Its turn is over after a millisecond; the next tick may find the next turn of it."""
    late: list[int] = []
    began: list[int] = []

    def compute(step: Step, i: Any, o: Any) -> None:
        began.append(machine.read())
        machine.sleep(0.010)

    def tick(step: Step, i: Any, o: Any, context: Any) -> None:
        if context.due is not None:  # the first tick is due at once
            late.append(machine.read() - context.due)

    def compose(app: App) -> None:
        slow = Step(app, PeriodicCondition(app, "15 ms"), CountCondition(app, 5), body=compute, name="slow")
        fast = Step(app, PeriodicCondition(app, "1 ms"), CountCondition(app, 90), body=tick, name="fast")
        app.add_operator(slow)
        app.add_operator(fast)

    run(compose, in_virtual_time(2))
    assert len(began) == 5
    assert 0 < max(late) <= 1_000_000


def test_a_turn_lasts_a_millisecond_of_the_wall_clock_too() -> None:
    """The compute ends only after the other operator has run beside it."""
    other_ran = threading.Event()
    waited: list[bool] = []

    def compose(app: App) -> None:
        app.add_operator(
            Step(
                app,
                CountCondition(app, 1),
                body=lambda step, i, o: waited.append(other_ran.wait(PATIENCE)),
                name="slow",
            )
        )
        app.add_operator(
            Step(app, CountCondition(app, 1), body=lambda step, i, o: other_ran.set(), name="other")
        )

    run(
        compose,
        lambda app, **settings: EventBasedScheduler(
            app, worker_thread_number=2, clock=RealtimeClock(app), **settings
        ),
    )
    assert waited == [True]


def test_all_compute_beside_each_other_where_there_is_no_interpreter_lock(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    together = threading.Barrier(4)

    def compose(app: App) -> None:
        for number in range(4):
            wait = CountCondition(app, COUNT)
            app.add_operator(
                Step(app, wait, body=lambda step, i, o: together.wait(PATIENCE), name=f"step{number}")
            )

    run(compose, in_virtual_time(4))
    assert not together.broken


def test_what_announces_itself_during_a_long_compute_does_not_wait_for_its_end() -> None:
    """The compute has its turn when the condition of the other comes true, and ends only after that one has run."""
    done = threading.Event()

    class Begun(Condition):
        has_begun = False

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            return SchedulingStatusType.READY if self.has_begun else SchedulingStatusType.WAIT_EVENT, None

    def compose(app: App) -> None:
        begun = Begun(app)

        def compute(step: Step, i: Any, o: Any) -> None:
            begun.has_begun = True
            begun.notify_scheduler()
            assert done.wait(PATIENCE)

        app.add_operator(Step(app, CountCondition(app, 1), body=compute, name="long"))
        other = Step(app, begun, CountCondition(app, 1), body=lambda step, i, o: done.set(), name="other")
        app.add_operator(other)

    run(compose, event_based)
    assert done.is_set()


@pytest.mark.parametrize("is_parallel", [True, False])
def test_an_operator_that_joins_a_run_takes_turns_unless_it_says_otherwise(is_parallel: bool) -> None:
    found: list[Any] = []

    def compose(app: App) -> None:
        def grow(step: Step, i: Any, o: Any) -> None:
            if step.ticks == 3:
                late = Step(app, inputs=["in"], body=receive, name="late")
                late.parallel = is_parallel
                app.add_flow(step, late)
            o.emit(step.ticks)

        def receive(step: Step, i: Any, o: Any) -> None:
            i.receive()
            found.append(node_of(step).ready_queue)

        growing = Step(app, CountCondition(app, 20), outputs=["out"], body=grow, name="growing")
        app.add_flow(growing, Step(app, inputs=["in"], body=receive, name="first"))

    run(compose, event_based)
    assert len(set(map(id, found))) == (2 if is_parallel else 1)


def test_a_flag_that_is_none_is_refused() -> None:
    class Upload(Operator):
        parallel = "yes"  # type: ignore[assignment]

    with pytest.raises(TypeError, match="operator 'upload': parallel must be True or False, not 'yes'"):
        App(lambda app: None).add_operator(Upload(App(lambda app: None), name="upload"))
    with pytest.raises(TypeError, match="@op: parallel of fetch must be True or False, not 1.5"):

        @op(parallel=1.5)  # type: ignore[call-overload, untyped-decorator]
        def fetch() -> int:
            return 1


def test_a_function_says_so_in_its_decorator() -> None:
    @op(parallel=True)
    def fetch() -> int:
        return 1

    seen: list[bool] = []

    def compose(app: App) -> None:
        fetched = fetch(app, CountCondition(app, 1))
        app.add_operator(fetched)
        app.add_operator(
            Step(app, CountCondition(app, 1), body=lambda *_: seen.append(node_of(fetched).is_parallel))
        )

    run(compose, event_based)
    assert seen == [True]
