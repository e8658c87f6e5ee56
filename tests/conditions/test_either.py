"""Conditions of which any one is enough."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition
from headrace.conditions import (
    MessageAvailableCondition,
    OrConditionCombiner,
)
from tests.harness import App, MakeScheduler, Step, run, source


def test_or_combined_ports_run_on_either(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("left")
            spec.input("right")
            spec.or_combine_port_conditions(["left", "right"])

        either = Step(
            app, setup=setup, body=lambda op, i, o: taken.append((i.receive("left"), i.receive("right")))
        )
        app.add_flow(source(app, [1, 2], PeriodicCondition(app, 10), name="a"), either, {("out", "left")})
        app.add_flow(source(app, [3], PeriodicCondition(app, 10), name="b"), either, {("out", "right")})

    run(compose, scheduler)
    received = sorted(value for pair in taken for value in pair if value is not None)
    assert received == [1, 2, 3]


@pytest.mark.parametrize("given_twice", [True, False])
def test_a_combiner_runs_an_operator_by_message_or_by_time(given_twice: bool) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        terms = [MessageAvailableCondition(app, receiver="in"), PeriodicCondition(app, 100)]
        either = OrConditionCombiner(app, terms=terms)
        extra = terms if given_twice else []
        app.add_flow(
            source(app, "xy", PeriodicCondition(app, 70)),
            Step(
                app,
                either,
                *extra,
                CountCondition(app, 5),
                inputs=["in"],
                body=lambda op, i, o: taken.append((op.fragment.now, i.receive())),
            ),
        )

    run(compose)
    assert [time for time, _ in taken] == sorted(time for time, _ in taken)
    assert [value for _, value in taken if value] == ["x", "y"]
    assert len(taken) == 5


def test_a_combiner_needs_conditions() -> None:
    with pytest.raises(ValueError, match="terms: there are none; give terms="):
        OrConditionCombiner(None, terms=[])
    with pytest.raises(TypeError, match="terms must be conditions"):
        OrConditionCombiner(None, terms=[1])  # type: ignore[list-item]


@pytest.mark.parametrize(("first", "computes"), [(False, 6), (True, 3)])
@pytest.mark.parametrize("counts", [(3, 6), (6, 3)])
def test_a_combiner_ends_with_its_last_term_or_with_its_first(
    scheduler: MakeScheduler, counts: tuple[int, int], first: bool, computes: int
) -> None:
    class Combiner(OrConditionCombiner):
        ends_with_first_term = first

    ticks: list[int] = []

    def compose(app: App) -> None:
        terms = [CountCondition(app, count) for count in counts]
        app.add_operator(
            Step(app, Combiner(app, terms), body=lambda op, i, o: ticks.append(op.ticks), name="s")
        )

    run(compose, scheduler)
    assert len(ticks) == computes
