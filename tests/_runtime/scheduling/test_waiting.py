"""Waiting and waking: nobody spins, nobody oversleeps, and a run ends when it should.

What these tests show with one thread of events, `tests/interleavings` shows for every order of threads.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock import EventBasedScheduler
from penstock._runtime.compiled import is_compiled
from penstock._runtime.scheduling.parker import Parker
from penstock._runtime.scheduling.timers import Timers
from penstock.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    BooleanCondition,
    CountCondition,
    MultiMessageAvailableTimeoutCondition,
    OrConditionCombiner,
    PeriodicCondition,
)
from penstock.core import Clock, Condition, SchedulingStatusType
from penstock.gpu import sim
from penstock.resources import MachineClock, ManualClock, RealtimeClock
from tests.harness import SCHEDULERS, App, MakeScheduler, Step, event_based, greedy, run, sink, source

MS = 1_000_000
WORKERS = [1, 2, 3, 5]


class CountingClock(MachineClock):
    """The clock of a virtual machine, which counts how often workers are woken and how often they wake."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.unparked = 0
        self.parked = 0

    def unpark(self, parker: Parker) -> None:
        self.unparked += 1
        super().unpark(parker)

    def park(self, parker: Parker, seconds: float | None) -> bool:
        self.parked += 1
        return super().park(parker, seconds)


def in_virtual_time(workers: int, **settings: Any) -> MakeScheduler:
    def scheduler(app: Any, **more: Any) -> Any:
        return EventBasedScheduler(
            app, clock=CountingClock(app), worker_thread_number=workers, **settings, **more
        )

    return scheduler


@pytest.fixture
def machine() -> Any:
    with sim.Machine() as machine:
        yield machine


# Nobody spins.


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


@pytest.mark.parametrize("workers", WORKERS)
def test_two_periods_on_one_clock_cost_at_most_one_hand_over_for_each_tick(
    machine: Any, workers: int
) -> None:
    def compose(app: App) -> None:
        for name, period in (("a", 10 * MS), ("b", 15 * MS)):
            app.add_operator(Step(app, CountCondition(app, 60), PeriodicCondition(app, period), name=name))

    app = run(compose, in_virtual_time(workers))
    clock: Any = app.scheduler().clock
    assert clock.timestamp() == 59 * 15 * MS
    assert clock.unparked <= 120 + 3 * workers


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_compute_that_takes_wall_time_does_not_keep_idle_workers_awake(machine: Any, workers: int) -> None:
    """In virtual time it would take a worker that goes on waking others for ever: the clock stands still."""

    def take_wall_time(body: Step, op_input: Any, op_output: Any) -> None:
        threading.Event().wait(0.002)

    def compose(app: App) -> None:
        app.add_operator(
            Step(
                app,
                CountCondition(app, 5),
                PeriodicCondition(app, 500 * MS),
                name="ticks",
                body=take_wall_time,
            )
        )

    app = run(compose, in_virtual_time(workers))
    clock: Any = app.scheduler().clock
    assert clock.timestamp() == 4 * 500 * MS
    assert clock.unparked <= 5 + 3 * workers


# Nobody oversleeps.


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_periodic_operator_keeps_its_beat_beside_a_long_compute(machine: Any, workers: int) -> None:
    beats: list[int] = []
    slow = threading.Event()

    def compose(app: App) -> None:
        clock = app.scheduler().clock

        def beat(body: Step, op_input: Any, op_output: Any) -> None:
            beats.append(clock.timestamp())

        def sleep(body: Step, op_input: Any, op_output: Any) -> None:
            clock.sleep_for(1.0)
            slow.set()

        app.add_operator(
            Step(app, CountCondition(app, 150), PeriodicCondition(app, 10 * MS), name="beat", body=beat)
        )
        app.add_operator(Step(app, CountCondition(app, 1), name="slow", body=sleep))

    run(compose, in_virtual_time(workers))
    assert slow.is_set()
    assert beats == [number * 10 * MS for number in range(150)]


def test_an_operator_that_ran_before_its_time_no_longer_waits_for_it(scheduler: MakeScheduler) -> None:
    lengths: list[int] = []

    def compose(app: App) -> None:
        taken: list[Any] = []
        clock = app.scheduler().clock

        def receive(body: Step, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive("in"))
            assert app._engine is not None
            lengths.append(len(app._engine.timers))

        def emit(body: Step, op_input: Any, op_output: Any) -> None:
            clock.sleep_for(1 * MS)  # so that each time waited for is another
            op_output.emit(body.ticks, "out")

        ticks = Step(app, CountCondition(app, 500), outputs=["out"], name="source", body=emit)
        timeout = MultiMessageAvailableTimeoutCondition(app, "3s", min_sum=1, receivers=["in"])
        app.add_flow(
            ticks, Step(app, timeout, CountCondition(app, 500), inputs=["in"], name="in", body=receive)
        )

    app = run(compose, scheduler)
    assert len(lengths) == 500
    assert max(lengths) < 100  # the heap of timers does not grow with what has been waited for
    assert app.now < 600 * MS  # and the run does not end 3 s late


@pytest.mark.skipif(is_compiled(), reason="compiled, timers take nodes only")
def test_a_timer_that_is_set_again_and_again_keeps_the_last_time() -> None:
    class Waiter:
        wake_at: int | None = None

    timers = Timers()
    often, once = Waiter(), Waiter()  # of those whose times are swept out, and beside them
    for time in (50, 150):
        timers.arm(once, time)  # type: ignore[arg-type]
    for time in range(100, 200):
        timers.arm(often, time)  # type: ignore[arg-type]
    assert len(timers) <= 2 * 2 + 32 + 1
    assert timers.next() == 150
    assert timers.due(198) == [once]
    assert timers.due(199) == [often]


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
            while app._engine is None or not app._engine.ready_queues[0].parked:
                pass
            go.set()
            gate.event_state = AsynchronousEventState.READY
            late.notify_scheduler()

        threading.Thread(target=open_gate).start()

    run(compose, scheduler)
    assert taken == [1]


@pytest.mark.parametrize("state", [AsynchronousEventState.READY, AsynchronousEventState.EVENT_NEVER])
def test_an_event_that_comes_for_an_operator_without_messages_is_outstanding_no_more(
    scheduler: MakeScheduler, state: AsynchronousEventState
) -> None:
    def compose(app: App) -> None:
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.EVENT_WAITING

        def tell(op: Step, i: Any, o: Any) -> None:
            event.event_state = state

        tells = Step(app, CountCondition(app, 1), outputs=["out"], body=tell, name="tells")
        app.add_flow(tells, sink(app, [], event))

    app = App(compose, scheduler)
    future = app.run_async()
    try:
        future.result(timeout=10)
    finally:
        app.stop_execution()


# Conditions of users.


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


def test_the_deadlock_timeout_begins_anew_when_something_ran(scheduler: MakeScheduler) -> None:
    class NowAndThen(Condition):
        """Says READY four times, every 60 ms, and WAIT in between."""

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            node = self._node
            assert node is not None
            is_time = node.operator.ticks < 4 and timestamp >= node.operator.ticks * 60 * MS  # type: ignore[attr-defined]
            return (SchedulingStatusType.READY if is_time else SchedulingStatusType.WAIT), None

    def compose(app: App) -> None:
        app.add_operator(Step(app, NowAndThen(app), name="runs"))

    app = run(compose, scheduler, stop_on_deadlock_timeout=100, check_recession_period_ms=20)
    assert app.graph.find("runs").ticks == 4  # type: ignore[attr-defined]
    assert app.now == (180 + 100) * MS


def test_a_condition_that_says_wait_is_asked_once_more_before_the_run_ends(scheduler: MakeScheduler) -> None:
    """Without a timeout for a deadlock there is no later."""
    ran: list[int] = []

    class Afterwards(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            return (SchedulingStatusType.READY if ran else SchedulingStatusType.WAIT), None

    def compose(app: App) -> None:
        ran.clear()
        app.add_operator(Step(app, Afterwards(app), CountCondition(app, 1), name="waits"))
        app.add_operator(Step(app, CountCondition(app, 1), name="runs", body=lambda op, i, o: ran.append(1)))

    app = run(compose, scheduler)
    assert app.graph.find("waits").ticks == 1  # type: ignore[attr-defined]


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


def test_a_condition_of_an_operator_that_ended_is_asked_no_more(scheduler: MakeScheduler) -> None:
    """Its answer would count: an event outstanding keeps a run from ending."""
    ran: list[int] = []

    class Checks(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            assert not ran
            return SchedulingStatusType.READY, None

    def compose(app: App) -> None:
        ran.clear()
        once = CountCondition(app, 1)
        ends = Step(app, Checks(app), once, outputs=["out"], body=lambda op, i, o: ran.append(1), name="ends")
        app.add_flow(ends, sink(app, []))

    run(compose, scheduler)
    assert ran == [1]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_condition_that_said_wait_and_then_never_is_polled_no_more(machine: Any, workers: int) -> None:
    class Gone(Condition):
        asked = 0

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            self.asked += 1
            return (SchedulingStatusType.WAIT if self.asked < 3 else SchedulingStatusType.NEVER), None

    def compose(app: App) -> None:
        app.add_operator(Step(app, Gone(app), name="gone"))
        app.add_operator(Step(app, CountCondition(app, 20), PeriodicCondition(app, 500 * MS), name="ticks"))

    app = run(compose, in_virtual_time(workers))
    clock: Any = app.scheduler().clock
    assert clock.timestamp() == 19 * 500 * MS
    assert clock.parked < 20 * 10  # where a poll every 5 ms would make it 100 for each tick


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
        future.result(timeout=10)
    finally:
        app.stop_execution()
    assert app.now == 50 * MS


@pytest.mark.parametrize("scheduler", SCHEDULERS[1:])
def test_a_condition_that_says_wait_is_asked_while_another_operator_computes(
    scheduler: MakeScheduler,
) -> None:
    asked = threading.Event()
    computing = threading.Event()

    class Polled(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            if computing.is_set():
                asked.set()
            return (SchedulingStatusType.READY if asked.is_set() else SchedulingStatusType.WAIT), None

    def compute(body: Step, op_input: Any, op_output: Any) -> None:
        computing.set()
        assert asked.wait(10)

    def compose(app: App) -> None:
        app.add_operator(Step(app, CountCondition(app, 1), name="computes", body=compute))
        app.add_operator(Step(app, Polled(app), CountCondition(app, 1), name="waits"))

    for clock in (ManualClock, RealtimeClock):
        asked.clear()
        computing.clear()
        app = App(compose, lambda app, clock=clock: scheduler(app, clock=clock(app)))
        app.run()
        assert app.graph.find("waits").ticks == 1  # type: ignore[attr-defined]


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


def test_a_message_has_one_term_of_an_or_asked_while_another_waits_for_its_event(
    scheduler: MakeScheduler,
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        from penstock.conditions import MessageAvailableCondition

        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.EVENT_WAITING

        def receive(body: Step, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive("in"))
            if body.ticks == 3:
                body.stop_execution()

        either = OrConditionCombiner(app, terms=[event, MessageAvailableCondition(app, receiver="in")])
        app.add_flow(source(app, [1, 2, 3]), Step(app, either, inputs=["in"], name="in", body=receive))

    run(compose, scheduler)
    assert taken == [1, 2, 3]


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


# Starting and stopping.


def test_a_stop_that_was_wanted_before_the_first_compute_ends_the_run_without_one(
    scheduler: MakeScheduler,
) -> None:
    class Starts(Step):
        def start(self) -> None:
            self.fragment.stop_execution()

    def compose(app: App) -> None:
        app.add_operator(Starts(app, name="starts"))

    app = run(compose, scheduler)
    assert app.graph.find("starts").ticks == 0  # type: ignore[attr-defined]


def test_operators_run_side_by_side_from_their_first_compute(machine: Any) -> None:
    """In virtual time a worker on standby has no patience to lose, so nothing else could open the queue."""
    together = threading.Barrier(4)

    def compose(app: App) -> None:
        for number in range(4):
            app.add_operator(
                Step(
                    app,
                    CountCondition(app, 1),
                    name=f"op{number}",
                    body=lambda body, op_input, op_output: together.wait(10),
                )
            )

    run(compose, in_virtual_time(4))
    assert not together.broken
