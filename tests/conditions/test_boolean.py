"""BooleanCondition: an operator that can be switched off."""

from __future__ import annotations

from typing import Any

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
