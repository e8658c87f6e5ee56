"""DownstreamMessageAffordableCondition: the room that a producer waits for."""

from __future__ import annotations

from typing import Any

from headrace import ConditionType, CountCondition, PeriodicCondition
from headrace.conditions import (
    DownstreamMessageAffordableCondition,
)
from tests.harness import App, MakeScheduler, Step, run, sink, source
from tests.harness.internals import free_places


def test_a_producer_waits_for_the_room_it_asks_for(scheduler: MakeScheduler) -> None:
    waiting: list[int] = []

    def compose(app: App) -> None:
        room = DownstreamMessageAffordableCondition(app, min_size=2, transmitter="out")

        def body(op: Step, i: Any, o: Any) -> None:
            waiting.append(free_places(op, "out"))
            o.emit(1)
            o.emit(2)

        pairs = Step(app, room, CountCondition(app, 5), outputs=["out"], body=body)

        def setup(spec: Any) -> None:
            spec.input("in", size=3).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)

        app.add_flow(pairs, Step(app, setup=setup, body=lambda op, i, o: i.receive(), name="b"))

    run(compose, scheduler)
    assert len(waiting) == 5
    assert min(waiting) >= 2


def test_an_input_and_an_output_of_the_same_name_keep_their_own_conditions(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("image", size=2).condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)
            spec.output("image").condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1)

        pairs = Step(
            app, setup=setup, body=lambda op, i, o: o.emit(i.receive("image"), "image"), name="pairs"
        )
        app.add_flow(source(app, range(6)), pairs, sink(app, taken, PeriodicCondition(app, 10)))

    run(compose, scheduler)
    assert taken == [(0, 1), (2, 3), (4, 5)]
