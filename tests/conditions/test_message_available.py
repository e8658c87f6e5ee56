"""MessageAvailableCondition: how many messages an operator waits for."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition
from headrace.conditions import (
    MessageAvailableCondition,
)
from headrace.core import GraphError
from tests.harness import App, MakeScheduler, Step, run, sink, source


def test_an_operator_waits_for_as_many_messages_as_it_asks_for(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        least = MessageAvailableCondition(app, min_size=2, receiver="in")
        batch = Step(
            app, least, inputs=[("in", {"size": 3})], body=lambda op, i, o: taken.append(i.receive())
        )
        app.add_flow(source(app, range(7)), batch)

    app = run(compose, scheduler)
    assert all(len(batch) >= 2 for batch in taken)
    assert [value for batch in taken for value in batch] == list(range(7 - sum(app.undelivered().values())))


def test_a_queue_of_several_is_a_batch_unless_its_condition_says_otherwise() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        batch = Step(app, inputs=[("in", {"size": 3})], body=lambda op, i, o: taken.append(i.receive()))
        app.add_flow(source(app, range(7)), batch)

    run(compose)
    assert taken == [(0, 1, 2), (3, 4, 5)]


def test_front_stage_max_size_holds_an_operator_while_too_many_wait() -> None:
    def compose(app: App) -> None:
        bounded = MessageAvailableCondition(app, 1, 2, "in")
        slow = Step(app, bounded, inputs=[("in", {"size": 5})], body=lambda op, i, o: None, name="slow")
        burst = Step(
            app,
            CountCondition(app, 1),
            outputs=[("out", {"size": 3})],
            body=lambda op, i, o: [o.emit(n) for n in range(3)],
        )
        app.add_flow(burst, slow)

    app = run(compose)
    assert app.graph.find("slow").ticks == 0  # type: ignore[attr-defined]


def test_a_condition_about_a_port_the_operator_does_not_have_lists_the_ports() -> None:
    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), sink(app, [], MessageAvailableCondition(app, receiver="inn")))

    with pytest.raises(GraphError, match=r"names a port 'inn' that the operator does not have; it has 'in'"):
        run(compose)
