"""CountCondition: how often an operator runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import CountCondition, op
from headrace.conditions import OrConditionCombiner
from tests.harness import App, MakeScheduler, Step, run, sink, source


def test_a_count_is_how_often_an_operator_runs(scheduler: MakeScheduler) -> None:
    ticks: list[int] = []
    run(
        lambda app: app.add_operator(
            Step(app, CountCondition(app, 3), body=lambda op, i, o: ticks.append(1))
        ),
        scheduler,
    )
    assert len(ticks) == 3


def test_of_two_counts_the_smaller_holds() -> None:
    app = run(
        lambda app: app.add_operator(Step(app, CountCondition(app, 5), CountCondition(app, 2), name="a"))
    )
    assert app.graph.find("a").ticks == 2  # type: ignore[attr-defined]


@op
def stages(value: int) -> Iterator[str]:
    for stage in range(value):
        yield f"{value}.{stage}"


def counted(emitted: list[str], scheduler: MakeScheduler, condition: Any, **replicas: Any) -> None:
    def compose(app: App) -> None:
        last = stages(app, condition(app), **replicas)
        app.add_flow(source(app, [2, 0, 3, 4]), last, sink(app, emitted))

    run(compose, scheduler)


EXPECTED = ["2.0", "2.1", "3.0", "3.1", "3.2"]


@pytest.mark.parametrize("replicas", [{}, {"workers": 2}, {"workers": 2, "on": "processes"}], ids=str)
def test_a_count_of_a_function_that_yields_is_that_of_its_messages(
    scheduler: MakeScheduler, replicas: dict[str, Any]
) -> None:
    emitted: list[str] = []
    counted(emitted, scheduler, lambda app: CountCondition(app, 3), **replicas)
    assert emitted == EXPECTED


def test_a_count_in_an_or_of_a_function_that_yields_is_that_of_its_messages(scheduler: MakeScheduler) -> None:
    emitted: list[str] = []
    counted(emitted, scheduler, lambda app: OrConditionCombiner(app, terms=[CountCondition(app, 3)]))
    assert emitted == EXPECTED


def test_the_count_of_a_function_that_yields_holds_when_its_last_call_raises(
    scheduler: MakeScheduler,
) -> None:
    emitted: list[str] = []

    @op(on_error="skip")
    def breaks(value: int) -> Iterator[int]:
        yield value
        raise ZeroDivisionError

    def compose(app: App) -> None:
        last = breaks(app, CountCondition(app, 2))
        app.add_flow(source(app, range(5)), last, sink(app, emitted))

    run(compose, scheduler)
    assert emitted == [0, 1]
