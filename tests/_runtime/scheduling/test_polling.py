"""Conditions that say WAIT are polled, as long as something may still change their mind."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    CountCondition,
    OrConditionCombiner,
)
from headrace.core import Condition, SchedulingStatusType
from tests._runtime.scheduling.counting_clock import MS, WORKERS, in_virtual_time
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink


class Asked(Condition):
    """A condition that gives one answer and counts how often it is asked."""

    def __init__(self, *args: Any, answer: SchedulingStatusType, **kwargs: Any) -> None:
        self.answer = answer
        self.times: list[int] = []
        super().__init__(*args, **kwargs)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        self.times.append(timestamp)
        return self.answer, None


def test_a_condition_that_says_wait_is_polled_until_the_deadlock_timeout_ends_the_run(
    scheduler: MakeScheduler,
) -> None:
    conditions: list[Asked] = []

    def compose(app: App) -> None:
        conditions[:] = [Asked(app, answer=SchedulingStatusType.WAIT)]
        app.add_operator(Step(app, conditions[0], name="waits"))

    app = run(compose, scheduler, stop_on_deadlock_timeout=100, check_recession_period_ms=20)
    assert app.now == 100 * MS
    times = conditions[0].times
    assert [time for time in range(0, 100 * MS, 20 * MS) if time not in times] == []
    assert len(times) <= 12


def test_a_condition_that_says_wait_is_asked_while_others_run_on_and_time_stands_still(
    scheduler: MakeScheduler,
) -> None:
    ran: list[str] = []

    class Afterwards(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            return (SchedulingStatusType.READY if len(ran) >= 5 else SchedulingStatusType.WAIT), None

    def compose(app: App) -> None:
        for name, *conditions in (
            ("runs", CountCondition(app, 100)),
            ("waits", Afterwards(app), CountCondition(app, 1)),
        ):
            app.add_operator(Step(app, *conditions, name=name, body=lambda op, i, o: ran.append(op.name)))

    run(compose, scheduler)
    assert ran.index("waits") < 100


def test_conditions_that_say_wait_do_not_have_each_other_asked_for_ever(scheduler: MakeScheduler) -> None:
    class Waits(Condition):
        asked = 0

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            self.asked += 1
            assert self.asked < 1000
            return SchedulingStatusType.WAIT, None

    def compose(app: App) -> None:
        first, second = (Waits(app, name=name) for name in ("first", "second"))
        app.add_operator(Step(app, first, name="a"))
        app.add_operator(Step(app, second, name="b"))
        notify = Step(app, CountCondition(app, 1), name="c", body=lambda op, i, o: first.notify_scheduler())
        app.add_operator(notify)

    run(compose, scheduler)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_condition_that_says_wait_is_polled_while_an_event_is_outstanding(
    machine: Any, workers: int
) -> None:
    class Later(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            return (SchedulingStatusType.READY if timestamp >= 50 * MS else SchedulingStatusType.WAIT), None

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.EVENT_WAITING

        def end(op: Step, i: Any, o: Any) -> None:
            event.event_state = AsynchronousEventState.EVENT_NEVER

        app.add_operator(Step(app, event, name="waits"))
        app.add_operator(Step(app, Later(app), CountCondition(app, 1), body=end, name="polled"))

    app = App(compose, in_virtual_time(workers))
    future = app.run_async()
    try:
        future.result(timeout=PATIENCE)
    finally:
        app.stop_execution()
    assert app.now == 50 * MS


@pytest.mark.parametrize("in_or", [False, True])
def test_a_condition_that_waits_for_an_event_is_not_asked_until_it_is_notified(
    scheduler: MakeScheduler, in_or: bool
) -> None:
    conditions: list[Asked] = []
    before: list[int] = []

    def compose(app: App) -> None:
        waits = Asked(app, answer=SchedulingStatusType.WAIT_EVENT)
        conditions[:] = [waits]
        never = Asked(app, answer=SchedulingStatusType.WAIT_EVENT, name="never")
        given = OrConditionCombiner(app, terms=[waits, never]) if in_or else waits

        def notify(body: Step, op_input: Any, op_output: Any) -> None:
            op_output.emit(body.ticks, "out")
            if body.ticks == 200:
                before.append(len(waits.times))
                waits.answer = SchedulingStatusType.READY
                waits.notify_scheduler()
                never.answer = SchedulingStatusType.NEVER
                never.notify_scheduler()

        busy = Step(app, CountCondition(app, 200), outputs=["out"], name="busy", body=notify)
        app.add_flow(busy, sink(app, []))
        app.add_operator(Step(app, given, CountCondition(app, 1), name="waits"))

    app = run(compose, scheduler)
    assert before == [1]
    assert app.graph.find("waits").ticks == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", [SchedulingStatusType.WAIT, SchedulingStatusType.READY])
def test_a_condition_that_notifies_inside_its_own_check_does_not_keep_the_run_awake(
    scheduler: MakeScheduler, answer: SchedulingStatusType
) -> None:
    class Eager(Condition):
        polled = False

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            self.notify_scheduler()
            return answer, None

    def compose(app: App) -> None:
        app.add_operator(Step(app, Eager(app), CountCondition(app, 3), name="eager"))

    app = run(compose, scheduler)
    assert app.graph.find("eager").ticks == (3 if answer is SchedulingStatusType.READY else 0)  # type: ignore[attr-defined]
