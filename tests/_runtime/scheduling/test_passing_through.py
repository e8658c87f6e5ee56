"""A message in a chain: its receiver runs next, and finds what it would find if it had waited in a ready queue."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import ConditionType, CountCondition
from tests.harness import (
    App,
    MakeScheduler,
    Step,
    run,
    sink,
    source,
)

pytestmark = pytest.mark.turns()  # every test under every scheduler: only one thread passes messages through


def stage(app: Any, name: str, body: Any) -> Step:
    def setup(spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    return Step(app, setup=setup, body=body, name=name)


@pytest.mark.parametrize("turns", [2, 3, 5])
def test_a_message_that_is_not_received_waits_and_the_sender_with_it(
    scheduler: MakeScheduler, turns: int
) -> None:
    taken: list[int] = []
    waiting: list[int] = []

    def compose(app: App) -> None:
        def receive_sometimes(op: Step, i: Any, o: Any) -> None:
            waiting.append(len(op._headrace.node.inputs[0]))  # type: ignore[union-attr]
            if op.ticks % turns == 0:
                o.emit(i.receive())

        late = stage(app, "late", receive_sometimes)
        app.add_flow(source(app, list(range(20))), late, sink(app, taken))

    run(compose, scheduler)
    assert taken == list(range(20))
    assert waiting == [1] * (
        20 * turns
    )  # never more than the queue holds, and never a compute without a message


def test_a_sender_waits_for_its_room_while_too_few_messages_are_left(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        def declare_output(spec: Any) -> None:
            spec.output("out").condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=2)

        def declare_input(spec: Any) -> None:
            spec.input("in", size=3).condition(ConditionType.MESSAGE_AVAILABLE, min_size=3)

        def send(op: Step, i: Any, o: Any) -> None:
            for _ in range(1 if op.ticks == 1 else 2):
                o.emit(op.ticks)

        def take_one(op: Step, i: Any, o: Any) -> None:
            taken.append(i.receive("in", kind="single"))

        first = Step(app, setup=declare_output, body=send, name="first")
        app.add_flow(first, Step(app, setup=declare_input, body=take_one, name="last"))

    app = run(compose, scheduler)
    assert taken == [1]
    assert app.undelivered() == {"last.in": 2}  # one place is left, and the sender waits for two


def test_a_frame_passes_through_a_chain_before_the_next_one_is_made() -> None:
    computed: list[str] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            computed.append("a")
            o.emit(op.ticks)

        def pass_on(op: Step, i: Any, o: Any) -> None:
            computed.append(op.name)
            o.emit(i.receive())

        def declare(spec: Any) -> None:
            spec.output("out")

        first = Step(app, CountCondition(app, 4), setup=declare, body=send, name="a")
        second, third = stage(app, "b", pass_on), stage(app, "c", pass_on)
        app.add_flow(first, second, third, sink(app, []))

    run(compose)
    assert "".join(computed) == "abc" * 4


def test_a_stage_that_its_sender_stops_does_not_run_for_the_message(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        last = sink(app, taken)

        def send(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 3:
                last.stop_execution()
            o.emit(op.ticks)

        app.add_flow(Step(app, CountCondition(app, 5), outputs=["out"], body=send, name="first"), last)

    run(compose, scheduler)
    assert taken == [1, 2]
