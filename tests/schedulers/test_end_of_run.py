"""When a run ends by itself: nothing is left to do, a deadlock, or the longest duration."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition, op
from headrace.conditions import AsynchronousCondition, AsynchronousEventState
from headrace.core.errors import FeedClosedError
from headrace.operators import FeedOp
from headrace.resources import SyntheticClock
from tests.harness import (
    PATIENCE,
    App,
    MakeScheduler,
    Step,
    run,
    sink,
    source,
    through,
    wait_until,
)

pytestmark = pytest.mark.turns()  # every test under every scheduler


def test_a_deadlock_is_waited_out_in_the_clocks_time(scheduler: MakeScheduler) -> None:
    app = App(
        lambda app: app.add_operator(Step(app, CountCondition(app, 1))),
        scheduler,
        stop_on_deadlock_timeout=500,
    )
    app.run()
    # Every operator is done for good, so there is nothing to wait for.
    assert app.now == 0

    def stuck(app: App) -> None:
        loop = through(app, name="loop")
        app.add_flow(loop, loop)

    app = App(stuck, scheduler, stop_on_deadlock_timeout=500)
    app.run()
    assert app.now == 500_000_000


def test_work_that_comes_during_the_wait_begins_it_anew(scheduler: MakeScheduler) -> None:
    """An operator is released from outside while the deadlock timeout runs; the timeout starts again."""
    clock = SyntheticClock()
    ran = threading.Event()
    holder: list[AsynchronousCondition] = []

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.WAIT
        holder[:] = [event]

        def body(op: Step, i: Any, o: Any) -> None:
            event.event_state = AsynchronousEventState.WAIT
            ran.set()

        app.add_operator(Step(app, event, body=body))

    app = App(compose, scheduler, clock=clock, stop_on_deadlock_timeout=100)
    future = app.run_async()
    wait_until(
        lambda: holder and app._headrace.engine and app._headrace.engine.waiting.deadlock_at is not None,
        "a deadlock",
    )
    clock.advance_by(60_000_000)
    holder[0].event_state = AsynchronousEventState.READY
    assert ran.wait(PATIENCE)
    wait_until(
        lambda: app._headrace.engine is None or app._headrace.engine.waiting.deadlock_at == 160_000_000,
        "a second deadlock",
    )
    clock.advance_by(60_000_000)
    assert not future.done()
    clock.advance_by(40_000_000)
    future.result(timeout=PATIENCE)


def test_without_stop_on_deadlock_a_run_waits_until_it_is_stopped(scheduler: MakeScheduler) -> None:
    started = threading.Event()

    def compose(app: App) -> None:
        first = Step(
            app, CountCondition(app, 1), outputs=["out"], body=lambda op, i, o: started.set(), name="a"
        )
        loop = through(app, name="loop")
        app.add_flow(loop, loop)
        app.add_operator(first)

    app = App(compose, scheduler, stop_on_deadlock=False)
    future = app.run_async()
    assert started.wait(PATIENCE)
    assert not future.done()
    app.stop_execution()
    future.result(timeout=PATIENCE)


def test_a_run_ends_at_its_longest_duration(scheduler: MakeScheduler) -> None:
    times: list[int] = []

    def compose(app: App) -> None:
        clock = app.scheduler().clock
        app.add_operator(
            Step(app, PeriodicCondition(app, 300_000), body=lambda op, i, o: times.append(clock.timestamp()))
        )

    run(compose, scheduler, max_duration_ms=1)
    assert times == [0, 300_000, 600_000, 900_000]


@pytest.mark.parametrize("duration", ["650us", timedelta(microseconds=650), 0.00065])
def test_a_duration_is_kept_to_the_nanosecond(scheduler: MakeScheduler, duration: Any) -> None:
    app = App(lambda app: app.add_operator(Step(app, PeriodicCondition(app, 300_000))), scheduler)
    outcome = app.run(duration=duration)
    assert (outcome.ended_by, outcome.computes, app.now) == ("duration", 3, 650_000)


def test_time_does_not_jump_to_the_longest_duration_while_an_event_is_outstanding(
    scheduler: MakeScheduler,
) -> None:
    ticks: list[int] = []

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)

        def body(op: Step, i: Any, o: Any) -> None:
            ticks.append(op.ticks)
            event.event_state = AsynchronousEventState.EVENT_WAITING
            done = AsynchronousEventState.EVENT_DONE
            threading.Thread(target=lambda: setattr(event, "event_state", done)).start()

        app.add_operator(Step(app, event, CountCondition(app, 3), body=body))

    app = run(compose, scheduler, max_duration_ms=60_000)
    assert (ticks, app.now) == ([1, 2, 3], 0)


def test_the_real_time_of_what_is_outside_counts_towards_a_duration_in_virtual_time(
    scheduler: MakeScheduler,
) -> None:
    taken: list[Any] = []
    app = App(lambda app: app.add_flow(FeedOp(app, name="feed"), sink(app, taken)), scheduler)
    future = app.run_async(duration="200ms")
    with suppress(FeedClosedError):  # the run may be over by then
        app.feed("feed").put(1)
    outcome = future.result(timeout=PATIENCE)
    assert (outcome.ended_by, app.now) == ("duration", 200_000_000)


def test_a_call_that_never_returns_does_not_keep_a_run_in_virtual_time_from_its_duration(
    scheduler: MakeScheduler,
) -> None:
    @op
    async def awaits(value: int) -> None:
        await asyncio.Event().wait()

    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), awaits(app, name="awaits"))

    app = App(compose, scheduler)
    assert app.run(duration="20ms").ended_by == "duration"
