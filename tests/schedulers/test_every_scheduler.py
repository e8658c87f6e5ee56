"""What holds under every scheduler, whatever the shape of the graph."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from headrace import ConditionType, IOSpec, PeriodicCondition
from tests.harness import (
    App,
    MakeScheduler,
    Step,
    run,
    sink,
    source,
    threaded,
    through,
)
from tests.harness.internals import input_queues

pytestmark = pytest.mark.turns()  # every test under every scheduler


def test_a_cycle_turns_from_a_seed_message(scheduler: MakeScheduler) -> None:
    turns: list[int] = []

    def compose(app: App) -> None:
        def turn(op: Step, i: Any, o: Any) -> None:
            turns.append(i.receive("in"))
            if len(turns) < 100:
                o.emit(turns[-1] + 1, "out")

        loop = Step(app, inputs=["in"], outputs=["out"], body=turn, name="loop")
        back = through(app, name="back")
        app.add_flow(source(app, [0], name="seed"), loop)
        app.add_flow(loop, back)
        app.add_flow(back, loop)

    run(compose, scheduler)
    assert turns == list(range(100))


def test_a_diamond_joins_what_it_split(scheduler: MakeScheduler) -> None:
    taken: list[tuple[int, int]] = []

    def compose(app: App) -> None:
        numbers = source(app, range(20))
        join = Step(
            app,
            inputs=["left", "right"],
            body=lambda op, i, o: taken.append((i.receive("left"), i.receive("right"))),
            name="join",
        )
        for name, factor in (("left", 1), ("right", -1)):
            branch = through(app, name=name, change=lambda value, factor=factor: value * factor)
            app.add_flow(numbers, branch)
            app.add_flow(branch, join, {("out", name)})

    run(compose, scheduler)
    assert taken == [(n, -n) for n in range(20)]


def test_a_slow_branch_holds_the_source_and_not_the_other_way_round(scheduler: MakeScheduler) -> None:
    fast: list[int] = []
    slow: list[int] = []

    def compose(app: App) -> None:
        numbers = source(app, range(10))
        app.add_flow(numbers, sink(app, fast, name="fast"))
        app.add_flow(numbers, sink(app, slow, PeriodicCondition(app, 1_000), name="slow"))

    run(compose, scheduler)
    assert fast == slow == list(range(10))


def test_an_operator_may_emit_nothing(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            value = i.receive()
            if value % 3 == 0:
                o.emit(value)

        keep = Step(app, inputs=["in"], outputs=["out"], body=body, name="keep")
        app.add_flow(source(app, range(10)), keep)
        app.add_flow(keep, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 3, 6, 9]


def test_a_chain_longer_than_the_recursion_limit_runs(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    length = sys.getrecursionlimit() + 50

    def compose(app: App) -> None:
        last = source(app, range(2))
        for n in range(length):
            stage = through(app, name=f"stage{n}")
            app.add_flow(last, stage)
            last = stage
        app.add_flow(last, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 1]


def test_a_cycle_does_not_keep_the_thread_to_itself(scheduler: MakeScheduler) -> None:
    turns: list[int] = []

    def compose(app: App) -> None:
        def turn(op: Step, i: Any, o: Any) -> None:
            turns.append(op.ticks)
            o.emit(i.receive("in") or 0, "out")

        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)
            spec.output("out")

        first = Step(app, setup=setup, body=turn, name="first")
        second = through(app, name="second")
        app.add_flow(first, second)
        app.add_flow(second, first)
        app.add_operator(
            Step(
                app,
                body=lambda op, i, o: op.ticks == 50 and op.fragment.stop_execution(),
                name="other",
            )
        )

    app = run(compose, scheduler)
    assert app.graph.find("other").ticks >= 50  # type: ignore[attr-defined]


def test_a_cycle_and_an_operator_beside_it_run_equally_often() -> None:
    def compose(app: App) -> None:
        def turn(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive())
            if op.ticks == 1_000:
                op.fragment.stop_execution()

        loop = Step(app, inputs=["in"], outputs=["out"], body=turn, name="loop")
        back = through(app, name="back")
        app.add_flow(source(app, [0], name="seed"), loop)
        app.add_flow(loop, back)
        app.add_flow(back, loop)
        app.add_operator(Step(app, name="other"))

    app = run(compose)
    assert app.graph.find("other").ticks >= 990  # type: ignore[attr-defined]


@threaded
def test_shared_queues_never_hold_more_than_they_can(scheduler: MakeScheduler) -> None:
    """Producers that run at once never both take the last place, whatever the policy."""
    longest: list[int] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            longest.append(len(input_queues(op)[0]))
            i.receive()

        busy = Step(
            app, inputs=[("in", {"size": 2, "policy": IOSpec.QueuePolicy.FAULT})], body=body, name="busy"
        )
        busy.spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
        for n in range(5):
            app.add_flow(source(app, range(100), name=f"s{n}"), busy)

    run(compose, scheduler)
    assert max(longest) <= 2
