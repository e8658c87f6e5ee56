"""Timers: when operators are due, and who waits for that no longer."""

from __future__ import annotations

from typing import Any

import pytest

from headrace._runtime.scheduling.engine import is_compiled
from headrace._runtime.scheduling.evaluated_conditions import NOTHING, Awaited
from headrace._runtime.scheduling.timers import Timers
from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    BooleanCondition,
    CountCondition,
    PeriodicCondition,
)
from headrace.core import Condition, ConditionType, SchedulingStatusType
from tests._runtime.scheduling.counting_clock import MS
from tests.harness import SCHEDULERS, App, MakeScheduler, Step, run, sink, source


def test_an_operator_that_ran_before_its_time_no_longer_waits_for_it(scheduler: MakeScheduler) -> None:
    lengths: list[int] = []

    class MessageOrTime(Condition):
        def check(self, timestamp: int) -> Any:
            if self.receiver("in").size:
                return SchedulingStatusType.READY, None
            return SchedulingStatusType.WAIT_TIME, timestamp + 3000 * MS

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)

        def receive(body: Step, op_input: Any, op_output: Any) -> None:
            assert op_input.receive("in") is not None
            assert app._headrace.engine is not None
            lengths.append(len(app._headrace.engine.timers))

        first = source(app, range(200), PeriodicCondition(app, 1 * MS))
        last = Step(app, MessageOrTime(app), CountCondition(app, 200), setup=setup, name="last", body=receive)
        app.add_flow(first, last)
        # Its time comes before those, which would leave the heap otherwise.
        between = Step(app, PeriodicCondition(app, 1000 * MS), CountCondition(app, 2), name="between")
        app.add_operator(between)

    app = run(compose, scheduler)
    assert len(lengths) == 200
    assert 20 < max(lengths) < 100  # the heap of timers does not grow with what has been waited for
    assert app.now < 2000 * MS  # and the run does not end 3 s late


@pytest.mark.skipif(is_compiled(), reason="compiled, timers take nodes only")
def test_a_timer_that_is_set_again_and_again_keeps_the_last_time() -> None:
    class Waiter:
        awaited = NOTHING
        place = 0

    def wait(waiter: Waiter, until: int | None) -> None:
        before = waiter.awaited.until
        waiter.awaited = Awaited(SchedulingStatusType.WAIT_TIME, until)
        if until is not None:
            timers.arm(waiter, until)  # type: ignore[arg-type]
        if before is not None:
            timers.disarm()

    def take_due(now: int) -> list[Any]:
        taken: list[Any] = []
        while (waiter := timers.take_due(now)) is not None:
            wait(waiter, None)  # type: ignore[arg-type]
            taken.append(waiter)
        return taken

    timers = Timers()
    often, once = Waiter(), Waiter()  # of those whose times are swept out, and beside them
    for time in (50, 150):
        wait(once, time)
    for time in range(100, 200):
        wait(often, time)
    assert len(timers) <= 2 * 2 + 32 + 1
    assert timers.next() == 150
    assert take_due(198) == [once]
    assert take_due(199) == [often]
    assert (timers.next(), len(timers)) == (None, 0)


def test_an_operator_that_ended_keeps_no_timer_and_no_event_outstanding() -> None:
    """Otherwise a run would go on until that time, or for ever."""

    def compose(app: App) -> None:
        switch = BooleanCondition(app)
        late = Step(app, switch, PeriodicCondition(app, 3600 * 1000 * MS), name="late")
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.EVENT_WAITING
        off = BooleanCondition(app, name="off")
        waits = Step(app, event, off, name="waits")

        def end(body: Step, op_input: Any, op_output: Any) -> None:
            if body.ticks == 3:
                switch.disable_tick()
                waits.stop_execution()

        app.add_operator(late)
        app.add_operator(waits)
        ends = Step(
            app,
            CountCondition(app, 3),
            PeriodicCondition(app, 1 * MS),
            outputs=["out"],
            name="end",
            body=end,
        )
        app.add_flow(ends, sink(app, []))  # which never ends, and never runs

    for scheduler in SCHEDULERS:
        app = run(compose, scheduler)
        assert app.now == 2 * MS
