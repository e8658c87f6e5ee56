"""A condition that is written outside of headrace, with public names only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Application, Condition, Operator, OperatorSpec, SchedulingStatusType, op
from headrace.conditions import CountCondition
from headrace.core import ComponentSpec
from headrace.resources import ManualClock
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, Scheduler


class Pace(Condition):
    """Lets an operator run when `size` messages wait at an input, or `patience` ns after its last compute."""

    size: int
    patience: int
    _last = 0

    def setup(self, spec: ComponentSpec) -> None:
        spec.param("size", 3)
        spec.param("patience", 1_000_000_000)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        due = self._last + self.patience
        if self.receiver("values").size >= self.size or timestamp >= due:
            return SchedulingStatusType.READY, None
        return SchedulingStatusType.WAIT_TIME, due

    def on_execute(self, timestamp: int) -> None:
        self._last = timestamp


class Batches(Operator):
    """Takes all values that wait."""

    def __init__(self, fragment: Any, taken: list[Any], *args: Any, **kwargs: Any) -> None:
        self.taken = taken
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        from headrace import ConditionType

        spec.input("values", size=8).condition(ConditionType.NONE)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.taken.append((context.timestamp // 1_000_000_000, op_input.receive("values") or ()))


@op
def values(*, count: int) -> Iterator[int]:
    yield from range(count)


@pytest.mark.parametrize("make", [GreedyScheduler, EventBasedScheduler])
def test_a_condition_of_messages_and_time(make: type[Scheduler]) -> None:
    taken: list[Any] = []

    class App(Application):
        def compose(self) -> None:
            pace = Pace(self, size=2, patience=5_000_000_000)
            self.add_flow(values(self, count=5), Batches(self, taken, pace, CountCondition(self, 3)))

    app = App([])
    app.scheduler(make(app, clock=ManualClock(app)))
    app.run()
    received = [value for _, batch in taken for value in batch]
    assert received == [0, 1, 2, 3, 4]
    assert taken[-1][0] == 5, "the last value waited for the time, not for another value"
