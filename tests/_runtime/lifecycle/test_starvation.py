"""Who waits for what will never come, and of what that is said."""

from __future__ import annotations

from typing import Any

from headrace import ConditionType, CountCondition
from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
)
from headrace.core import EndedBy
from tests._runtime.lifecycle.outcomes import doubling, outcome_of
from tests.harness import App, MakeScheduler, Step, sink, source, through
from tests.harness.recursion import at_most_deeper

# Finished.


def test_a_loop_that_carries_a_state_from_frame_to_frame_is_finished(scheduler: MakeScheduler) -> None:
    """After the last frame its state still waits; it came from the loop itself."""

    def compose(app: App) -> None:
        def step(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive("state") + i.receive("frame"), "out")

        add = Step(app, inputs=["state", "frame"], outputs=["out"], body=step, name="add")
        delay = through(app, name="delay")
        app.add_flow(source(app, range(4), name="frames"), add, {("out", "frame")})
        app.add_flow(source(app, [0], name="seed"), add, {("out", "state")})
        app.add_flow(add, delay)
        app.add_flow(delay, add, {("out", "state")})

    outcome = outcome_of(compose, scheduler)
    assert outcome.ended_by == "finished", str(outcome)
    assert outcome.operators["add"].computes == 4


# Starved.


def test_a_feedback_loop_without_a_first_message_is_starved(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        def step(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive("state") + i.receive("frame"), "out")

        add = Step(app, inputs=["state", "frame"], outputs=["out"], body=step, name="add")
        app.add_flow(source(app, range(4), name="frames"), add, {("out", "frame")})
        app.add_flow(add, add, {("out", "state")})

    outcome = outcome_of(compose, scheduler)
    assert outcome.ended_by == "starved"
    (starved,) = outcome.starved
    assert str(starved) == (
        "'add' waits for a message at 'state' from 'add' (waits for it in turn, after 0 computes), "
        "with 1 message left at 'frame'"
    )


def test_a_join_over_several_ports_by_one_condition_is_starved() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("p", size=4)
            spec.input("q", size=4)
            spec.multi_port_condition(
                ConditionType.MULTI_MESSAGE_AVAILABLE, ["p", "q"], sampling_mode="SumOfAll", min_sum=4
            )

        both = Step(app, setup=setup, body=lambda op, i, o: (i.receive("p"), i.receive("q")), name="both")
        app.add_flow(source(app, range(3)), both, {("out", "p")})

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved"
    assert outcome.starved[0].left == {"p": 3}
    assert [waiting.port for waiting in outcome.starved[0].waits_for] == ["q"]


def test_an_operator_that_a_condition_never_let_run_is_starved() -> None:
    def compose(app: App) -> None:
        event = AsynchronousCondition(app, name="signal")
        event.event_state = AsynchronousEventState.WAIT
        app.add_flow(Step(app, event, outputs=["out"], name="camera"), sink(app, []))

    outcome = outcome_of(compose)
    assert [str(starved) for starved in outcome.starved] == [
        "'camera' waits for condition 'signal', and never ran"
    ]


def test_a_circle_of_full_queues_is_starved() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)
            spec.output("out")

        a = Step(app, setup=setup, body=lambda op, i, o: o.emit(1), name="a")  # never receives
        b = through(app, name="b")
        app.add_flow(a, b, a)

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved", str(outcome)
    assert {starved.operator for starved in outcome.starved} == {"a", "b"}
    assert "waits for room at 'in' of 'b', which waits for it in turn" in str(outcome)


def test_what_fills_an_input_that_may_be_left_while_more_is_to_come_is_starvation() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("frame")
            spec.input("setting").condition(ConditionType.NONE)

        both = source(app, range(4), name="both")
        main = Step(app, setup=setup, body=lambda op, i, o: i.receive("frame"), name="main")
        app.add_flow(both, main, {("out", "frame"), ("out", "setting")})

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved"
    (starved,) = outcome.starved
    assert (starved.operator, starved.left) == ("main", {"setting": 1})


def test_an_operator_behind_a_starved_one_is_not_reported_for_it() -> None:
    def compose(app: App) -> None:
        both = Step(
            app,
            inputs=["left", "right"],
            outputs=["out"],
            body=lambda op, i, o: (i.receive("left"), i.receive("right")),
        )
        app.add_flow(both, both, {("out", "left")})
        app.add_flow(source(app, [1], name="one"), both, {("out", "right")})
        app.add_flow(both, sink(app, []))

    outcome = outcome_of(compose)
    assert [starved.operator for starved in outcome.starved] == ["step"]


def test_a_shared_queue_with_too_little_room_is_starved_and_says_so() -> None:
    """Three of four places are taken, and one of its producers wants two."""

    def compose(app: App) -> None:
        twice = doubling(app)
        four = Step(app, inputs=[("in", {"size": 4})], body=lambda op, i, o: i.receive(), name="four")
        app.add_flow(source(app, range(7)), twice, four)
        app.add_flow(source(app, range(3), name="second"), four)

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved"
    assert "'twice' (waits for room for 2 messages there, after 2 computes)" in str(outcome)


def test_a_chain_of_many_operators_that_never_ran_is_finished() -> None:
    def compose(app: App) -> None:
        last: Any = Step(app, CountCondition(app, 1), outputs=("out",), name="source")
        for number in range(length):
            stage = through(app, name=f"stage{number}")
            app.add_flow(last, stage)
            last = stage

    with at_most_deeper(250) as length:
        assert outcome_of(compose).ended_by is EndedBy.FINISHED
