"""Pause, step, resume: no new compute begins, time stands still, and nothing is made up for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition
from headrace.conditions import PeriodicConditionPolicy
from headrace.core import Condition, GraphError, SchedulingStatusType
from tests.harness import (
    PATIENCE,
    App,
    MakeScheduler,
    Step,
    event_based,
    run,
    sink,
    source,
    threaded,
    through,
    wait_until,
)
from tests.harness.internals import node_of

pytestmark = pytest.mark.turns()  # every test under every scheduler

MS = 1_000_000  # nanoseconds
SECONDS = PATIENCE


class Running:
    """A chain of a source, an operator and a sink that runs on another thread and is paused by its source."""

    def __init__(self, scheduler: MakeScheduler, at: int = 3, count: int = 8, **settings: Any) -> None:
        self.computes: list[str] = []
        self.taken: list[int] = []
        self.app = App(lambda app: self._compose(app, at, count), scheduler, **settings)
        self.future: Future[Any] = self.app.run_async()

    def _compose(self, app: Any, at: int, count: int) -> None:
        def emit(step: Any, op_input: Any, op_output: Any) -> None:
            self.computes.append("source")
            op_output.emit(step.ticks, "out")
            if step.ticks == at:
                app.pause()

        def pass_on(step: Any, op_input: Any, op_output: Any) -> None:
            self.computes.append("middle")
            op_output.emit(op_input.receive("in"), "out")

        def take(step: Any, op_input: Any, op_output: Any) -> None:
            self.computes.append("sink")
            self.taken.append(op_input.receive("in"))

        first = Step(
            app,
            CountCondition(app, count),
            PeriodicCondition(app, "10ms"),
            outputs=["out"],
            body=emit,
            name="source",
        )
        middle = Step(app, inputs=["in"], outputs=["out"], body=pass_on, name="middle")
        app.add_flow(first, middle, Step(app, inputs=["in"], body=take, name="sink"))

    def wait(self) -> None:
        assert self.app.wait_until_paused(SECONDS)

    def end(self) -> Any:
        return self.future.result(SECONDS)


@pytest.fixture
def running(request: pytest.FixtureRequest) -> Iterator[Any]:
    made: list[Running] = []

    def make(*args: Any, **kwargs: Any) -> Running:
        made.append(Running(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.app.stop_execution()
        one.end()


def test_nothing_runs_and_virtual_time_stands_still_in_a_pause(
    scheduler: MakeScheduler, running: Any
) -> None:
    one = running(scheduler)
    one.wait()
    ran, now = len(one.computes), one.app.now
    assert one.app.is_paused
    assert now == 20 * MS
    for _ in range(100):
        node_of(one.app.graph.find("source")).announce()  # whatever wakes a worker
    one.wait()
    assert (len(one.computes), one.app.now) == (ran, now)
    one.app.resume()
    one.end()
    assert not one.app.is_paused
    assert one.taken == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_step_is_one_compute_of_any_operator(scheduler: MakeScheduler, running: Any) -> None:
    one = running(scheduler)
    one.wait()
    for count in (1, 1, 3):
        before = len(one.computes)
        one.app.step(count)
        one.wait()
        assert len(one.computes) == before + count
    assert one.app.is_paused


def test_a_step_of_a_named_operator_is_its_own(scheduler: MakeScheduler, running: Any) -> None:
    one = running(scheduler, at=1)
    one.wait()
    while one.computes.count("middle"):  # it may have run before the pause took effect
        one.app.step()
        one.wait()
        if len(one.app.graph.find("middle")._headrace.node.inputs[0]):
            break
    before = list(one.computes)
    one.app.step(1, "middle")
    one.wait()
    assert one.computes == [*before, "middle"]


def test_a_step_does_not_go_on_with_the_message_that_it_sends(scheduler: MakeScheduler) -> None:
    """No operator waits for a time, so nothing but the pause holds the receiver back."""
    made: list[Step] = []
    taken: list[int] = []

    def compose(app: App) -> None:
        made.extend((source(app, [1, 2, 3]), through(app, name="middle"), sink(app, taken)))
        app.add_flow(made[0], made[1])
        app.add_flow(made[1], made[2])
        app.pause()

    app = App(compose, scheduler)
    future = app.run_async()
    while not app.wait_until_paused(0.01):
        pass
    for expected in range(1, 6):
        app.step()
        assert app.wait_until_paused(SECONDS)
        assert sum(each.ticks for each in made) == expected
    app.resume()
    future.result(SECONDS)
    assert taken == [1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_paused_run_can_be_interrupted(scheduler: MakeScheduler, number: int) -> None:
    def compose(app: Any) -> None:
        app.add_operator(Step(app, body=lambda step, i, o: app.pause(), name="it"))

    app = App(compose, scheduler)

    def interrupt() -> None:
        wait_until(lambda: app.wait_until_paused(PATIENCE), "the pause")  # False before the run has begun
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        app.run()
    thread.join()
    assert app.outcome.operators["it"].computes == 1


def test_a_paused_run_does_not_end_and_ends_after_the_resume(scheduler: MakeScheduler) -> None:
    app = App(
        lambda app: app.add_operator(
            Step(app, CountCondition(app, 1), body=lambda step, i, o: app.pause(), name="it")
        ),
        scheduler,
    )
    future = app.run_async()
    while not app.wait_until_paused(0.01) and not future.done():
        pass
    assert not future.done()
    app.resume()
    assert future.result(SECONDS).ended_by.value == "finished"


def test_a_pause_before_the_first_compute_holds_everything(scheduler: MakeScheduler) -> None:
    started: list[Any] = []

    class Pausing(Step):
        def start(self) -> None:
            started.append(self)
            self.fragment.pause()

    app = App(lambda app: app.add_operator(Pausing(app, CountCondition(app, 1), name="it")), scheduler)
    future = app.run_async()
    while not app.wait_until_paused(0.01):
        pass
    assert (len(started), started[0].ticks) == (1, 0)
    app.resume()
    future.result(SECONDS)
    assert started[0].ticks == 1


@pytest.mark.parametrize("moment", ["compose", "start"])
def test_a_step_before_the_first_compute_takes_place_when_the_run_begins(
    scheduler: MakeScheduler, moment: str
) -> None:
    computed: list[str] = []

    class Stepping(Step):
        def start(self) -> None:
            if moment == "start" and self.name == "b":
                step(self.fragment)

    def step(app: Any) -> None:
        app.step(1, "b")
        app.step(2, "c")

    def compose(app: Any) -> None:
        for name in "abc":
            body = lambda op, i, o: computed.append(op.name)  # noqa: E731
            app.add_operator(Stepping(app, CountCondition(app, 3), body=body, name=name))
        if moment == "compose":
            step(app)

    app = App(compose, scheduler)
    future = app.run_async()
    assert app.wait_until_paused(SECONDS)
    assert sorted(computed) == ["b", "c", "c"]
    app.resume()
    future.result(SECONDS)
    assert sorted(computed) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


@pytest.mark.parametrize("count", [0, -1, 1.0, True])
def test_a_number_of_steps_is_at_least_one(count: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="the number of computes of a step must be"):
        App(lambda app: None).step(count)


def test_a_step_of_an_unknown_operator_names_those_that_exist() -> None:
    app = run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), name="camera")))
    with pytest.raises(GraphError, match="camera"):
        app.step(1, "camra")


class Beating:
    """A periodic source that is paused after its third tick, with 7 s of virtual time before the resume."""

    def __init__(self, scheduler: MakeScheduler, policy: Any, **settings: Any) -> None:
        self.times: list[int] = []

        def note(step: Any, op_input: Any, op_output: Any) -> None:
            self.times.append(app.now // MS)
            if step.ticks == 3:
                app.pause()

        def compose(app: Any) -> None:
            beat = PeriodicCondition(app, "10ms", policy)
            app.add_operator(Step(app, beat, CountCondition(app, 8), body=note, name="source"))

        app = App(compose, scheduler, **settings)
        future = app.run_async()
        assert app.wait_until_paused(SECONDS)
        app.scheduler().clock.sleep_until(1_007 * MS)
        app.resume()
        self.outcome = future.result(SECONDS)


@pytest.mark.parametrize(
    ("policy", "later"),
    [
        (PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS, [1_010, 1_020, 1_030, 1_040]),
        (PeriodicConditionPolicy.NO_CATCH_UP_MISSED_TICKS, [1_010, 1_020, 1_030, 1_040]),
        (PeriodicConditionPolicy.MIN_TIME_BETWEEN_TICKS, [1_017, 1_027, 1_037, 1_047]),
    ],
)
def test_ticks_that_were_missed_in_a_pause_count_as_one(
    scheduler: MakeScheduler, policy: Any, later: list[int]
) -> None:
    assert Beating(scheduler, policy).times == [0, 10, 20, 1_007, *later]


def test_a_pause_does_not_count_towards_the_duration_of_a_run(scheduler: MakeScheduler) -> None:
    policy = PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS
    one = Beating(scheduler, policy, max_duration_ms=45)
    assert one.outcome.ended_by.value == "duration"
    assert one.times == [0, 10, 20, 1_007, 1_010, 1_020, 1_030], "25 ms were left at the pause"


def test_conditions_are_told_of_a_resume(scheduler: MakeScheduler) -> None:
    told: list[int] = []

    class Mine(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            return SchedulingStatusType.READY, None

        def on_resume(self, timestamp: int) -> None:
            told.append(timestamp)

    def body(step: Any, op_input: Any, op_output: Any) -> None:
        if step.ticks == 2:
            app.pause()

    def compose(app: Any) -> None:
        app.add_operator(Step(app, Mine(app), CountCondition(app, 3), body=body, name="it"))

    app = App(compose, scheduler)
    future = app.run_async()
    while not app.wait_until_paused(0.01):
        pass
    app.resume()
    future.result(SECONDS)
    assert told == [0]


@threaded
def test_computes_that_have_begun_go_on(scheduler: MakeScheduler) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def body(step: Any, op_input: Any, op_output: Any) -> None:
        begun.set()
        assert may_end.wait(SECONDS)

    app = App(lambda app: app.add_operator(Step(app, body=body, name="slow")), scheduler)
    future = app.run_async()
    assert begun.wait(SECONDS)
    app.pause()
    assert not app.wait_until_paused(0), "it still computes"
    may_end.set()
    assert app.wait_until_paused(SECONDS)
    assert app.graph.find("slow").ticks == 1
    app.stop_execution()
    future.result(SECONDS)


def test_an_operator_that_is_stopped_in_a_pause_gives_up_its_steps(running: Any) -> None:
    one = running(event_based, at=8)
    one.wait()
    while one.computes.count("sink") < one.computes.count("source"):
        one.app.step()
        one.wait()
    one.app.step(1, "sink")
    one.app.stop_execution("sink")
    one.wait()
