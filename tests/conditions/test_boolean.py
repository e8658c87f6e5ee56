"""BooleanCondition: an operator that can be switched off."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition, PeriodicCondition
from headrace.conditions import (
    BooleanCondition,
)
from tests.harness import App, MakeScheduler, Step, run


def test_an_operator_that_is_switched_off_never_runs_again(scheduler: MakeScheduler) -> None:
    log: list[str] = []

    def compose(app: App) -> None:
        switch = BooleanCondition(app)

        def body(op: Step, i: Any, o: Any) -> None:
            log.append(op.name)
            if op.ticks == 3:
                switch.disable_tick()

        app.add_operator(Step(app, switch, body=body, name="a"))

    run(compose, scheduler)
    assert log == ["a", "a", "a"]


def test_an_operator_can_be_switched_off_while_it_waits() -> None:
    def compose(app: App) -> None:
        switch = BooleanCondition(app)
        waiting = Step(app, switch, PeriodicCondition(app, 1_000), name="waiting")
        app.add_operator(waiting)
        app.add_operator(
            Step(app, CountCondition(app, 1), body=lambda op, i, o: switch.disable_tick(), name="other")
        )

    app = run(compose)
    assert app.graph.find("waiting").ticks <= 1  # type: ignore[attr-defined]
