"""Conditions of a function that yields: paces, counts and switches apply to its steps."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import PeriodicCondition
from headrace.conditions import (
    ExpiringMessageAvailableCondition,
    MessageAvailableCondition,
    MultiMessageAvailableCondition,
    OrConditionCombiner,
)
from headrace.core import Condition, SchedulingStatusType
from tests._runtime.scheduling.generators.functions import repeat
from tests.harness import App, MakeScheduler, Step, run, sink, source


def test_a_pace_is_that_of_the_values() -> None:
    times: list[int] = []

    def note(body: Step, op_input: Any, op_output: Any) -> None:
        op_input.receive()
        times.append(body.fragment.now // 1_000_000)

    def compose(app: App) -> None:
        paced = repeat(app, PeriodicCondition(app, "10ms"))
        app.add_flow(source(app, [2, 3]), paced, Step(app, inputs=["in"], body=note))

    run(compose)
    assert times == [0, 10, 20, 30, 40]


CONDITIONS_ON_INPUTS = {
    "counted": lambda app: MessageAvailableCondition(app, 1, receiver="value"),
    "bounded": lambda app: MessageAvailableCondition(app, 1, front_stage_max_size=1, receiver="value"),
    "expiring": lambda app: ExpiringMessageAvailableCondition(app, 1, "1ms", receiver="value"),
    "several": lambda app: MultiMessageAvailableCondition(app, "SumOfAll", 1, receivers=["value"]),
    "any": lambda app: OrConditionCombiner(app, [MessageAvailableCondition(app, 1, receiver="value")]),
    "own": lambda app: Waiting(app),
}


class Waiting(Condition):
    """A condition of the program's own, which says what it is about."""

    port_names = ("value",)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        waits = self.receiver("value").size > 0
        return (SchedulingStatusType.READY if waits else SchedulingStatusType.WAIT), None

    def on_execute(self, timestamp: int) -> None:
        self.told = getattr(self, "told", 0) + 1


@pytest.mark.parametrize("condition", CONDITIONS_ON_INPUTS)
def test_a_condition_on_an_input_does_not_hold_values_back(condition: str, scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        several = repeat(app, CONDITIONS_ON_INPUTS[condition](app))
        app.add_flow(source(app, [3, 0, 2]), several, sink(app, taken))

    run(compose, scheduler)
    assert taken == [3, 3, 3, 2, 2]


def test_a_condition_on_an_input_is_told_of_the_steps_that_received() -> None:
    told: list[Waiting] = []

    def compose(app: App) -> None:
        told.append(Waiting(app))
        several = repeat(app, told[0])
        app.add_flow(source(app, [3, 0, 2]), several, sink(app, []))

    run(compose)
    assert told[0].told == 3
    assert not told[0].notify_scheduler()  # it is not part of the run any more
