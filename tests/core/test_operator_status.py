"""What a program asks of operators in a run, and how it holds single ones back."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, Operator, OperatorSpec, PeriodicCondition
from headrace.conditions import AsynchronousCondition, AsynchronousEventState
from headrace.core import PortError
from tests.harness import App, MakeScheduler, Step, run, sink, source, through

WAITING, DONE = AsynchronousEventState.EVENT_WAITING, AsynchronousEventState.EVENT_DONE
NEVER, WAIT = AsynchronousEventState.EVENT_NEVER, AsynchronousEventState.WAIT


class Watches(Operator):
    """Writes down its own status and that of another operator, in every phase."""

    seen: list[tuple[str, str, str]]

    def setup(self, spec: OperatorSpec) -> None:
        spec.param("seen")
        spec.output("out")

    def note(self, phase: str) -> None:
        context = self.execution_context
        assert context is not None
        mine, others = context.get_operator_status(), context.get_operator_status("sink")
        self.seen.append((phase, mine.name, others.name))

    def initialize(self) -> None:
        self.note("initialize")

    def start(self) -> None:
        self.note("start")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        assert context is self.execution_context
        self.note("compute")
        op_output.emit(1)

    def stop(self) -> None:
        self.note("stop")


def test_the_status_follows_the_life_of_an_operator(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []
    taken: list[Any] = []

    def compose(app: App) -> None:
        every = PeriodicCondition(app, "1ms")
        app.watches = Watches(app, CountCondition(app, 2), every, seen=seen, name="watches")
        app.add_flow(app.watches, sink(app, taken))

    app = run(compose, scheduler)
    assert seen == [
        ("initialize", "NOT_STARTED", "NOT_STARTED"),
        ("start", "START_PENDING", "NOT_STARTED"),
        ("compute", "TICKING", "STARTED"),
        ("compute", "TICKING", "IDLE"),
        ("stop", "STOP_PENDING", "NOT_STARTED"),
    ]
    assert app.watches.execution_context is None


def test_the_queues_of_a_running_operator_can_be_seen() -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            waiting = op.receiver("in").size
            i.receive()
            seen.append((waiting, op.receiver("in").size, op.receiver("in").capacity))
            with pytest.raises(PortError, match="has no input 'inn'"):
                op.receiver("inn")

        app.first = source(app, [1, 2])
        app.last = Step(app, body=body, name="last", inputs=["in"])
        app.add_flow(app.first, app.last, size=3)
        with pytest.raises(RuntimeError, match="receiver\\('in'\\) of operator 'last', which is not running"):
            app.last.receiver("in")

    app = run(compose)
    assert {capacity for _, _, capacity in seen} == {3}
    assert all(before - after == 1 for before, after, _ in seen)
    with pytest.raises(RuntimeError, match="not running"):
        app.first.transmitter("out")


# Holding an operator back.


def test_an_operator_holds_another_one_back(scheduler: MakeScheduler) -> None:
    order: list[str] = []

    def compose(app: App) -> None:
        def leads(op: Step, i: Any, o: Any, context: Any) -> None:
            order.append("leads")
            follower = context.find_operator("follows").async_condition
            follower.event_state = DONE if op.ticks == 3 else WAITING

        def follows(op: Step, i: Any, o: Any) -> None:
            order.append("follows")

        class Held(Step):
            def start(self) -> None:
                self.async_condition.event_state = WAITING

        every = PeriodicCondition(app, "10ms")
        app.add_operator(Step(app, CountCondition(app, 3), every, body=leads, name="leads"))
        app.add_operator(Held(app, CountCondition(app, 2), body=follows, name="follows"))

    run(compose, scheduler)
    assert order == ["leads", "leads", "leads", "follows", "follows"]


def test_a_condition_that_was_asked_for_before_the_run_counts(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        app.middle = through(app, name="middle")
        app.middle.async_condition.event_state = NEVER
        app.add_flow(source(app, [1, 2]), app.middle, sink(app, taken))

    app = run(compose, scheduler)
    assert taken == []
    assert isinstance(app.middle.async_condition, AsynchronousCondition)


def test_a_hold_survives_a_change_of_the_graph(scheduler: MakeScheduler) -> None:
    ticks: list[str] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            ticks.append("held")
            op.async_condition.event_state = WAITING

        held = Step(app, CountCondition(app, 2), body=body, name="held")

        def changes(op: Step, i: Any, o: Any, context: Any) -> None:
            ticks.append("changes")
            if op.ticks == 2:
                app.add_operator(Step(app, CountCondition(app, 1), body=lambda op, i, o: None, name="new"))
            if op.ticks == 4:
                held.async_condition.event_state = DONE

        app.add_operator(held)
        app.add_operator(
            Step(app, CountCondition(app, 4), PeriodicCondition(app, "1ms"), body=changes, name="changes")
        )

    run(compose, scheduler)
    assert ticks == ["held", "changes", "changes", "changes", "changes", "held"]
