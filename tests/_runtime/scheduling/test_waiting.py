"""Waiting and waking: nobody spins, nobody oversleeps, and a run ends when it should.

What these tests show with one thread of events, `tests/interleavings` shows for every order of threads.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace._runtime.scheduling.ready_queue import Parker
from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    CountCondition,
    PeriodicCondition,
)
from headrace.core import Clock, Condition, SchedulingStatusType
from headrace.core.clock import RealtimeClock
from tests._runtime.scheduling.counting_clock import MS, WORKERS, in_virtual_time
from tests.harness import PATIENCE, App, MakeScheduler, Step, event_based, greedy, run, sink, source


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("limit", [-1, 60_000])
def test_a_worker_wakes_once_for_a_tick_and_wakes_nobody_who_is_not_needed(
    machine: Any, workers: int, limit: int
) -> None:
    def compose(app: App) -> None:
        app.add_operator(Step(app, CountCondition(app, 100), PeriodicCondition(app, 500 * MS), name="ticks"))

    app = run(compose, in_virtual_time(workers, max_duration_ms=limit))
    clock: Any = app.scheduler().clock
    assert app.graph.find("ticks").ticks == 100  # type: ignore[attr-defined]
    assert clock.timestamp() == 99 * 500 * MS
    # At the start and at the end each worker may be woken; in between one wakes up for each tick, by itself.
    assert clock.parked <= 100 + 3 * workers
    assert clock.unparked <= 3 * workers


@pytest.mark.parametrize("workers", WORKERS)
def test_a_run_that_only_waits_for_its_longest_duration_wakes_nobody(machine: Any, workers: int) -> None:
    def compose(app: App) -> None:
        waiting = AsynchronousCondition(app)
        waiting.event_state = AsynchronousEventState.EVENT_WAITING
        app.add_operator(Step(app, waiting, name="waits"))

    app = run(compose, in_virtual_time(workers, max_duration_ms=1_000))
    clock: Any = app.scheduler().clock
    assert clock.timestamp() == 1_000 * MS
    assert clock.parked <= 3 * workers
    assert clock.unparked <= 3 * workers


def test_an_event_outstanding_since_the_start_of_an_operator_without_messages_is_no_deadlock(
    scheduler: MakeScheduler,
) -> None:
    """The operator is blocked by its input from the first, and its condition is asked all the same."""
    taken: list[Any] = []

    class Late(Condition):
        """Waits for an event until the operator beside it has been told to send something."""

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            return (SchedulingStatusType.READY if go.is_set() else SchedulingStatusType.WAIT_EVENT), None

    go = threading.Event()

    def compose(app: App) -> None:
        gate = AsynchronousCondition(app)
        gate.event_state = AsynchronousEventState.WAIT
        late = Late(app)
        feeding = source(app, [1], gate)
        app.add_flow(feeding, sink(app, taken, late))

        def open_gate() -> None:
            while app._headrace.engine is None or not app._headrace.engine.ready_queues[0].parked:
                pass
            go.set()
            gate.event_state = AsynchronousEventState.READY
            late.notify_scheduler()

        threading.Thread(target=open_gate).start()

    run(compose, scheduler)
    assert taken == [1]


class Ticking(Clock):
    """A clock that moves on by a millisecond each time it is asked."""

    passes = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.now = 0

    def timestamp(self) -> int:
        self.now += MS
        return self.now

    def seconds_until(self, target_time_ns: int) -> float:
        return 0.0

    def park(self, parker: Parker, seconds: float | None) -> bool:
        return parker.park(seconds)


@pytest.mark.parametrize("scheduler", [greedy, event_based])
def test_announcements_without_end_do_not_keep_a_run_from_ending_in_time(scheduler: MakeScheduler) -> None:
    """Two conditions notify each other whenever they are asked."""

    class Echo(Condition):
        polled = False
        other: Condition

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            self.other.notify_scheduler()
            return SchedulingStatusType.WAIT_EVENT, None

    def compose(app: App) -> None:
        one, two = Echo(app, name="one"), Echo(app, name="two")
        one.other, two.other = two, one
        app.add_operator(Step(app, one, name="first"))
        app.add_operator(Step(app, two, name="second"))

    app = App(compose, lambda app: scheduler(app, clock=Ticking(app), max_duration_ms=1_000))
    app.run()
    assert app.scheduler().clock.now < 1_100 * MS  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_parallel", [True, False])
def test_computes_that_wait_for_each_other_in_real_time_end_in_virtual_time(
    machine: Any, is_parallel: bool
) -> None:
    """Its time stands still meanwhile; who does not say that it waits has the second that such a compute gets."""
    together = threading.Barrier(2)

    def compose(app: App) -> None:
        for number in range(2):
            step = Step(
                app,
                CountCondition(app, 1),
                name=f"op{number}",
                body=lambda body, op_input, op_output: together.wait(PATIENCE),
            )
            step.parallel = is_parallel
            app.add_operator(step)

    run(compose, in_virtual_time(3))
    assert not together.broken


def test_an_interrupt_right_after_a_wake_up_ends_the_run() -> None:
    """The worker that took its permit does not wait for another one."""

    waiting: list[AsynchronousCondition] = []

    class Interrupted(RealtimeClock):
        def park(self, parker: Any, seconds: float | None) -> bool:
            waiting[0].event_state = AsynchronousEventState.EVENT_DONE  # wakes this worker
            assert super().park(parker, seconds)
            raise KeyboardInterrupt

    def compose(app: App) -> None:
        waiting.append(AsynchronousCondition(app))
        waiting[0].event_state = AsynchronousEventState.EVENT_WAITING
        app.add_operator(Step(app, waiting[0], name="waits"))

    with pytest.raises(KeyboardInterrupt):
        run(compose, clock=Interrupted())
