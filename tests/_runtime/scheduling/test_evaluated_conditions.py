"""What several conditions of a node say together."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from headrace import Condition, CountCondition, SchedulingStatusType
from headrace._runtime.scheduling.evaluated_conditions import EvaluatedConditions
from tests.harness import App, MakeScheduler, Step, run

READY, WAIT = SchedulingStatusType.READY, SchedulingStatusType.WAIT
WAIT_TIME, WAIT_EVENT = SchedulingStatusType.WAIT_TIME, SchedulingStatusType.WAIT_EVENT
NEVER = SchedulingStatusType.NEVER

NOW = 100


def combined(*answers: tuple[SchedulingStatusType, int | None]) -> Any:
    """Return what conditions say together that answer so."""
    found: list[Any] = []

    def combine(step: Step, op_input: Any, op_output: Any) -> None:
        conditions = EvaluatedConditions(step.name)
        for answer in answers:
            condition = Condition()
            condition.check = lambda timestamp, answer=answer: answer  # type: ignore[method-assign,misc]
            conditions.add(condition)
        awaited = conditions.combine(NOW, only_check=True)
        found.append((awaited.status, awaited.until))

    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=combine)))
    return found[0]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], (READY, None)),
        ([(READY, None), (READY, None)], (READY, None)),
        ([(READY, None), (WAIT, None)], (WAIT, None)),
        ([(WAIT_TIME, 150), (WAIT_TIME, 200)], (WAIT_TIME, 200)),
        ([(WAIT_TIME, 150), (WAIT, None)], (WAIT, None)),
        ([(WAIT, None), (WAIT_EVENT, None)], (WAIT_EVENT, None)),
        ([(WAIT_TIME, 150), (WAIT_EVENT, None), (READY, None)], (WAIT_EVENT, None)),
        ([(WAIT_TIME, NOW), (READY, None)], (READY, None)),
        ([(WAIT_TIME, NOW - 1), (WAIT, None)], (WAIT, None)),
        ([(NEVER, None), (WAIT, None)], (NEVER, None)),
    ],
)
def test_a_node_waits_for_what_takes_longest_whatever_the_order(answers: Any, expected: Any) -> None:
    for order in permutations(answers):
        assert combined(*order) == expected


def test_a_condition_that_waits_for_a_time_that_has_come_is_ready(scheduler: MakeScheduler) -> None:
    class Now(Condition):
        checks = 0

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            self.checks += 1
            assert self.checks < 100
            return WAIT_TIME, timestamp

    ran: list[int] = []

    def compose(app: App) -> None:
        step = Step(app, CountCondition(app, 3), Now(app), body=lambda step, i, o: ran.append(step.ticks))
        app.add_operator(step)

    run(compose, scheduler)
    assert ran == [1, 2, 3]
