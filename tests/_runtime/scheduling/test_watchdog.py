"""Computes that take longer than their deadline are noticed, counted and reported, by the clock of the run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace import CountCondition, Operator, op
from headrace.core import ParameterError, Stuck, StuckError
from headrace.resources import SyntheticClock
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink, source
from tests.harness.application import SEVERAL

MILLISECOND = 1_000_000


def slow(app: Any, lengths: list[int], **settings: Any) -> Step:
    """Return an operator whose computes take so many milliseconds of virtual time."""

    def body(self: Step, i: Any, o: Any) -> None:
        app.scheduler().clock.sleep_for(lengths[self.ticks - 1] * MILLISECOND)

    return Step(app, CountCondition(app, len(lengths)), body=body, name="slow", **settings)


def test_computes_that_take_longer_than_their_deadline_are_counted(scheduler: MakeScheduler) -> None:
    app = run(lambda app: app.add_operator(slow(app, [1, 500, 501, 2, 900], deadline="500ms")), scheduler)
    assert app.outcome.operators["slow"].stuck == app.outcome.stuck == 2
    assert "2 stuck computes" in str(app.outcome)
    assert app.progress().faults["slow"].stuck == 2


def test_a_function_is_called_for_each_with_how_long_it_took(scheduler: MakeScheduler) -> None:
    found: list[Stuck] = []
    run(
        lambda app: app.add_operator(slow(app, [700, 1, 600], deadline="500ms", on_stuck=found.append)),
        scheduler,
    )
    # Other workers may move virtual time no further: nothing else runs.
    assert [(each.operator, each.seconds, each.deadline) for each in found] == [
        ("slow", 0.7, 0.5),
        ("slow", 0.6, 0.5),
    ]


def test_abort_stops_the_run_and_fails_it(scheduler: MakeScheduler) -> None:
    app = App(
        lambda app: app.add_operator(slow(app, [1, 9, 1, 1], deadline="5ms", on_stuck="abort")), scheduler
    )
    with pytest.raises(
        StuckError, match="operator 'slow' has computed for 0.009 s, longer than its deadline"
    ):
        app.run()
    assert (app.outcome.ended_by, app.outcome.operators["slow"].computes) == ("failed", 2)


def test_a_function_that_raises_ends_the_run(scheduler: MakeScheduler) -> None:
    def on_stuck(stuck: Stuck) -> None:
        raise LookupError("nobody to tell")

    with pytest.raises(LookupError, match="nobody to tell") as caught:
        run(lambda app: app.add_operator(slow(app, [9], deadline="5ms", on_stuck=on_stuck)), scheduler)
    assert caught.value.__notes__ == ["raised in on_stuck of operator 'slow'"]


class Waiting(Operator):
    """Computes until it is let go, on a clock that the test moves."""

    def setup(self, spec: Any) -> None:
        spec.deadline("500ms")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.wait_for_the_test()

    def wait_for_the_test(self) -> None:
        self.fragment.began.set()  # type: ignore[attr-defined]
        assert self.fragment.may_end.wait(PATIENCE)  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [0, *SEVERAL])
def test_a_compute_in_progress_is_reported_with_the_stack_of_its_thread(workers: int) -> None:
    reported = threading.Event()
    found: list[Stuck] = []
    taken: list[int] = []

    def on_stuck(stuck: Stuck) -> None:
        found.append(stuck)
        reported.set()

    def make(app: Any, **settings: Any) -> Any:
        clock = SyntheticClock(app)
        if not workers:
            return GreedyScheduler(app, clock=clock)
        return EventBasedScheduler(app, clock=clock, worker_thread_number=workers)

    def compose(app: Any) -> None:
        app.add_operator(Waiting(app, CountCondition(app, 1), name="waiting", on_stuck=on_stuck))
        app.add_flow(source(app, range(3)), sink(app, taken))

    app: Any = App(compose, make)
    app.began, app.may_end = threading.Event(), threading.Event()
    future = app.run_async()
    assert app.began.wait(PATIENCE)
    clock = app.scheduler().clock
    clock.advance_by("500ms")
    assert app.progress().computing["waiting"] == 0.5
    assert not found
    clock.advance_by("1ms")
    assert reported.wait(PATIENCE)
    clock.advance_by("10s")  # once for each compute
    assert app.progress().computing["waiting"] == 10.501
    app.may_end.set()
    outcome = future.result(PATIENCE)
    (stuck,) = found
    assert stuck.seconds == 0.501
    first, *_ = stuck.stack.splitlines()
    assert first.endswith("in compute")  # nothing of headrace before it
    assert "in wait_for_the_test" in stuck.stack
    assert outcome.stuck == 1


def test_progress_tells_who_computes_even_without_a_deadline() -> None:
    found: list[Any] = []

    def body(self: Step, i: Any, o: Any) -> None:
        found.append(self.fragment.progress().computing)

    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=body, name="a")))
    assert found == [{"a": None}]


def test_a_deadline_is_declared_in_setup_by_keyword_in_a_decorator_and_in_a_file(tmp_path: Path) -> None:
    class Camera(Operator):
        def setup(self, spec: Any) -> None:
            spec.deadline("500ms", on_stuck="abort")

    @op(deadline="2s", on_stuck="abort")
    def function(value: Any) -> None:
        pass

    @op
    def with_a_parameter(*, deadline: str) -> None:
        pass

    app = App(lambda app: None)
    settings = tmp_path / "settings.yaml"
    settings.write_text("camera: {on_stuck: log, deadline: 1s}\n")
    app.config(settings)

    def said(operator: Operator) -> Any:
        return operator.spec.time_limit, operator.spec.on_stuck

    assert said(Camera(app)) == (500 * MILLISECOND, "abort")
    assert said(Camera(app, deadline="1s")) == (1000 * MILLISECOND, "abort")
    assert said(Camera(app, app.from_config("camera"))) == (1000 * MILLISECOND, "log")
    assert said(Camera(app, **app.kwargs("camera"))) == (1000 * MILLISECOND, "log")
    assert said(function(app)) == (2000 * MILLISECOND, "abort")
    assert said(function(app, deadline="3s", on_stuck="log")) == (3000 * MILLISECOND, "log")
    assert said(with_a_parameter(app, deadline="noon")) == (0, None)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"deadline": "soon"}, "operator 'a': deadline must be"),
        ({"deadline": 0}, "operator 'a': deadline must be positive, not 0"),
        (
            {"deadline": "1s", "on_stuck": "stop"},
            "operator 'a': on_stuck must be 'log', 'abort' or a function",
        ),
        ({"on_stuck": "log"}, "operator 'a' has an on_stuck and no deadline; add deadline='500ms'"),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused(settings: Any, why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        App(lambda app: app.add_operator(Step(app, name="a", **settings))).compose_graph()
