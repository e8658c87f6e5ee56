"""CountCondition: how often an operator runs."""

from __future__ import annotations

import pytest

from headrace import CountCondition
from tests.harness import MakeScheduler, Step, run


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


def test_a_count_must_be_an_int() -> None:
    with pytest.raises(TypeError, match="count must be an int"):
        CountCondition(None, "3")  # type: ignore[arg-type]
