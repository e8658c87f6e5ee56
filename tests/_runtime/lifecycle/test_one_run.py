"""A run is the only one of its application, from the moment it is asked for to its end, and any stop reaches it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import CountCondition
from headrace.core import GraphError, Operator
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink, source

REFUSED = "'App' is running already: one run at a time"


class Gate:
    """Lets one thread wait inside compose, start or compute until another lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)


@pytest.mark.parametrize("phase", ["compose", "start", "compute", "stop"])
def test_a_second_run_is_refused_in_every_phase_of_the_first(scheduler: MakeScheduler, phase: str) -> None:
    gate = Gate()

    class Waits(Step):
        def start(self) -> None:
            if phase == "start":
                gate.wait()

        def stop(self) -> None:
            if phase == "stop":
                gate.wait()

    def compose(app: App) -> None:
        if phase == "compose":
            gate.wait()
        body = None if phase != "compute" else lambda op, i, o: gate.wait()
        app.add_operator(Waits(app, CountCondition(app, 1), body=body))

    app = App(compose, scheduler)
    future = app.run_async()
    assert gate.reached.wait(PATIENCE)
    for again in (app.run, app.run_async, app.compose_graph):
        with pytest.raises(RuntimeError, match=REFUSED):
            again()
    gate.opened.set()
    assert future.result(timeout=PATIENCE).ended_by == "finished"
    assert app.run_async().result(timeout=PATIENCE).ended_by == "finished"


@pytest.mark.parametrize("where", ["compose", "compute"])
def test_a_run_inside_itself_is_refused(where: str) -> None:
    errors: list[str] = []

    def attempt(app: Any) -> None:
        for again in (app.run, app.run_async, app.compose_graph):
            with pytest.raises(RuntimeError, match="one run at a time") as caught:
                again()
            errors.append(str(caught.value))

    def compose(app: App) -> None:
        if where == "compose":
            attempt(app)
        app.add_operator(Step(app, CountCondition(app, 1), body=lambda op, i, o: attempt(op.fragment)))

    run(compose)
    assert errors


def test_composing_while_composing_is_refused_and_leaves_nothing_behind() -> None:
    app = App(lambda app: app.compose_graph())
    with pytest.raises(RuntimeError, match="'App' is being composed already"):
        app.compose_graph()
    app._compose = lambda app: app.add_operator(Step(app, CountCondition(app, 1)))
    assert app.run().ended_by == "finished"


def test_an_application_whose_compose_failed_runs_again() -> None:
    def fail(app: App) -> None:
        raise LookupError("on purpose")

    app = App(fail)
    with pytest.raises(LookupError):
        app.run()
    assert app.outcome is None
    app._compose = lambda app: app.add_operator(Step(app, CountCondition(app, 1)))
    assert app.run().ended_by == "finished"


# Stops.


@pytest.mark.parametrize("where", ["compose", "initialize", "start"])
def test_a_stop_before_the_first_compute_is_not_lost(scheduler: MakeScheduler, where: str) -> None:
    log: list[str] = []

    class Loud(Step):
        def initialize(self) -> None:
            if where == "initialize":
                self.fragment.stop_execution()

        def start(self) -> None:
            log.append(f"start {self.name}")
            if where == "start":
                self.fragment.stop_execution()

        def stop(self) -> None:
            log.append(f"stop {self.name}")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            log.append(f"compute {self.name}")

    def compose(app: App) -> None:
        app.add_operator(Loud(app, name="a"))
        app.add_operator(Loud(app, name="b"))
        if where == "compose":
            app.stop_execution()

    app = App(compose, scheduler)
    outcome = app.run()
    assert outcome.ended_by == "stopped"
    assert outcome.computes == 0
    assert log == (["start a", "stop a"] if where == "start" else [])


def test_a_stop_ends_one_run_and_not_the_next() -> None:
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 3), name="a")))
    app.stop_execution()
    assert app.run().operators["a"].computes == 3
    app._compose = lambda app: (app.add_operator(Step(app)), app.stop_execution())
    assert app.run().ended_by == "stopped"
    app._compose = lambda app: app.add_operator(Step(app, CountCondition(app, 2), name="a"))
    assert app.run().operators["a"].computes == 2


@pytest.mark.parametrize("where", ["compose", "start"])
def test_a_stop_of_one_operator_before_the_first_compute_is_not_lost(where: str) -> None:
    class Starts(Step):
        def start(self) -> None:
            if where == "start":
                self.fragment.stop_execution("a")

    def compose(app: App) -> None:
        app.add_operator(Starts(app, CountCondition(app, 5), name="a"))
        app.add_operator(Step(app, CountCondition(app, 2), name="b"))
        if where == "compose":
            app.stop_execution("a")

    outcome = App(compose).run()
    assert {name: operator.computes for name, operator in outcome.operators.items()} == {"a": 0, "b": 2}


def test_an_operator_that_was_stopped_runs_in_the_next_run_of_the_same_object() -> None:
    app = App(lambda app: app.add_operator(kept))
    kept = Step(app, CountCondition(app, 2), body=lambda op, i, o: op.stop_execution(), name="a")
    assert [app.run().operators["a"].computes for _ in range(2)] == [1, 1]


# What compose made and left out.


def test_an_operator_that_was_made_and_never_added_is_refused_by_name() -> None:
    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), sink(app, []))
        Step(app, name="lost")

    app = App(compose)
    with pytest.raises(
        GraphError, match=r"operator 'lost' \(Step\) was created in compose .*add_flow.*add_operator"
    ):
        app.run()
    with pytest.raises(GraphError, match="operator 'lost'"):
        app.compose_graph()


def test_operators_made_outside_of_compose_are_nobodys_mistake() -> None:
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 1))))
    Step(app, name="elsewhere")
    assert app.run().ended_by == "finished"


class Nothing(Operator):
    """Forgot its compute."""


class ChoosesNothing(Operator):
    def start(self) -> None:
        """Could have chosen a compute here."""


class Chooses(Operator):
    def start(self) -> None:
        self.ticks: list[int] = []
        self.compute = lambda op_input, op_output, context: self.ticks.append(1)  # type: ignore[method-assign]


def test_a_class_without_compute_is_refused_when_it_is_composed() -> None:
    with pytest.raises(GraphError, match=r"operator 'empty': class Nothing has no compute\(self"):
        App(lambda app: app.add_operator(Nothing(app, name="empty"))).compose_graph()


def test_a_compute_may_be_chosen_in_start_and_must_be_there_then() -> None:
    app = run(lambda app: app.add_operator(Chooses(app, CountCondition(app, 2), name="a")))
    assert len(app.graph.find("a").ticks) == 2  # type: ignore[attr-defined]
    with pytest.raises(GraphError, match="operator 'b': class ChoosesNothing has no compute"):
        run(lambda app: app.add_operator(ChoosesNothing(app, name="b")))
