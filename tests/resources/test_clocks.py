from __future__ import annotations

import queue
import threading
from datetime import timedelta
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition
from headrace._runtime.scheduling.engine import Engine
from headrace.core import Clock
from headrace.gpu import sim
from headrace.resources import ManualClock, RealtimeClock, SyntheticClock
from tests.harness import PATIENCE, App, Consumer, MakeScheduler, Producer, Step, run


def test_a_manual_clock_moves_when_someone_sleeps() -> None:
    clock = ManualClock(initial_timestamp=5)
    clock.sleep_for(10)
    assert clock.timestamp() == 15
    clock.sleep_for(timedelta(microseconds=1))
    clock.sleep_for(1e-6)
    assert clock.timestamp() == 2_015
    clock.sleep_until(100)
    assert clock.timestamp() == 2_015
    assert clock.time() == 2_015 / 1e9


def test_ten_virtual_hours_take_no_time_and_are_the_same_every_time(scheduler: MakeScheduler) -> None:
    def times() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        def compose(app: App) -> None:
            clock = app.scheduler().clock
            for name, minutes in (("fast", 60), ("slow", 150)):
                app.add_operator(
                    Step(
                        app,
                        PeriodicCondition(app, timedelta(minutes=minutes)),
                        CountCondition(app, 600 // minutes + 1),
                        body=lambda op, i, o: seen.append((op.name, clock.time() / 3600)),
                        name=name,
                    )
                )

        run(compose, scheduler)
        return sorted(seen)

    first = times()
    assert first == times()
    assert [hour for name, hour in first if name == "fast"] == list(range(11))
    assert [hour for name, hour in first if name == "slow"] == [0, 2.5, 5, 7.5, 10]


def test_time_does_not_jump_while_an_operator_is_running(scheduler: MakeScheduler) -> None:
    """A long compute on one worker must not let another jump to the next tick."""
    seen: list[int] = []
    entered = threading.Event()
    leave = threading.Event()

    def compose(app: App) -> None:
        clock = app.scheduler().clock

        def long(op: Step, i: Any, o: Any) -> None:
            entered.set()
            assert leave.wait(PATIENCE)
            seen.append(clock.timestamp())

        app.add_operator(Step(app, CountCondition(app, 1), body=long, name="long"))
        app.add_operator(Step(app, PeriodicCondition(app, 1_000), CountCondition(app, 3), name="tick"))

    future = App(compose, scheduler).run_async()
    assert entered.wait(PATIENCE)
    leave.set()
    future.result(timeout=PATIENCE)
    assert seen == [0]


def test_a_synthetic_clock_is_moved_by_others_and_the_run_waits_for_it(scheduler: MakeScheduler) -> None:
    clock = SyntheticClock()
    ticked = threading.Semaphore(0)
    times: list[int] = []

    def body(op: Step, i: Any, o: Any) -> None:
        times.append(clock.timestamp())
        ticked.release()

    def compose(app: App) -> None:
        app.add_operator(Step(app, PeriodicCondition(app, 100), CountCondition(app, 3), body=body))

    future = App(compose, scheduler, clock=clock).run_async()
    assert ticked.acquire(timeout=PATIENCE)
    clock.advance_by(99)
    clock.advance_by(1)
    assert ticked.acquire(timeout=PATIENCE)
    clock.advance_to(200)
    future.result(timeout=PATIENCE)
    assert times == [0, 100, 200]


def test_a_synthetic_clock_moves_several_applications(scheduler: MakeScheduler) -> None:
    """Each is told of the time, also when another one begins or ends in between."""
    clock = SyntheticClock()
    ticks: queue.Queue[tuple[str, int]] = queue.Queue()

    def application(name: str, count: int) -> App:
        def compose(app: App) -> None:
            conditions = (PeriodicCondition(app, 10), CountCondition(app, count))
            tick = Step(app, *conditions, body=lambda op, i, o: ticks.put((name, app.now)), name=name)
            app.add_operator(tick)

        return App(compose, scheduler, clock=clock)

    def next_ticks(number: int) -> set[tuple[str, int]]:
        return {ticks.get() for _ in range(number)}

    long = application("long", 4).run_async()
    assert next_ticks(1) == {("long", 0)}
    clock.advance_by(10)
    assert next_ticks(1) == {("long", 10)}
    short = application("short", 2).run_async()
    assert next_ticks(1) == {("short", 10)}  # its begin has not set the time back
    clock.advance_by(10)
    assert next_ticks(2) == {("long", 20), ("short", 20)}
    short.result()
    clock.advance_by(10)
    assert next_ticks(1) == {("long", 30)}
    long.result()


def test_a_clock_tells_a_run_that_is_over_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(Engine, "time_moved", lambda engine: told.append(1))
    clock = SyntheticClock()

    def compose(app: App) -> None:
        app.add_operator(Step(app, CountCondition(app, 1), body=lambda op, i, o: clock.advance_by(1)))

    run(compose, clock=clock)
    clock.advance_by(1)
    assert told == [1]


def test_a_synthetic_clock_does_not_go_back() -> None:
    clock = SyntheticClock(initial_timestamp=10)
    with pytest.raises(ValueError, match="cannot go back to 5 ns"):
        clock.advance_to(5)


def test_a_thread_can_sleep_on_a_synthetic_clock() -> None:
    clock = SyntheticClock()
    woken: list[int] = []
    thread = threading.Thread(target=lambda: (clock.sleep_for(50), woken.append(clock.timestamp())))
    thread.start()
    clock.advance_to(50)
    thread.join(PATIENCE)
    assert woken == [50]


class System:
    """The system's clocks, which pass when a test says so."""

    def __init__(self) -> None:
        self.now = 7_000_000_000

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return 1_800_000_000 * 10**9 + self.now


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    monkeypatch.setattr("headrace.core.clock.time", system)
    monkeypatch.setattr("headrace.core.control.time", system)
    return system


def test_a_realtime_clock_counts_from_its_offset_and_by_its_scale(system: System) -> None:
    clock = RealtimeClock(initial_time_offset=100.0, initial_time_scale=1000.0)
    assert clock.timestamp() == 100_000_000_000
    system.now += 3_000
    assert clock.timestamp() == 100_003_000_000
    assert clock.seconds_until(clock.timestamp() + 10_000_000_000) == pytest.approx(0.01)
    clock.set_time_scale(1.0)
    system.now += 3_000
    assert clock.timestamp() == 100_003_003_000
    assert clock.seconds_until(clock.timestamp() + 10_000_000_000) == pytest.approx(10)
    with pytest.raises(ValueError, match="must be positive"):
        clock.set_time_scale(0)
    with pytest.raises(ValueError, match="must be positive"):
        RealtimeClock(initial_time_scale=-1)


def test_a_realtime_clock_can_show_the_time_since_the_epoch(system: System) -> None:
    clock = RealtimeClock(use_time_since_epoch=True)
    system.now += 2_500_000_000
    assert clock.timestamp() == system.time_ns()


def test_a_scaled_realtime_clock_waits_really(scheduler: MakeScheduler) -> None:
    """A thousandth of a second stands for a second, so that the waits are real and short."""
    times: list[float] = []

    def compose(app: App) -> None:
        clock = app.scheduler().clock
        app.add_operator(
            Step(
                app,
                PeriodicCondition(app, 1.0),
                CountCondition(app, 4),
                body=lambda op, i, o: times.append(clock.time()),
            )
        )

    run(compose, scheduler, clock=RealtimeClock(initial_time_scale=1000.0))
    assert all(time >= n for n, time in enumerate(times))
    assert len(times) == 4


def test_a_synthetic_clock_is_moved_by_the_sum_of_what_two_threads_move_it_by() -> None:
    clock = SyntheticClock()

    class Meanwhile(int):
        """A duration that another thread moves the clock before it is read."""

        def __int__(self) -> int:
            clock.advance_by(100)
            return 10

    clock.advance_by(Meanwhile())
    assert clock.timestamp() == 110
    with pytest.raises(ValueError, match="cannot go back by 5 ns"):
        clock.advance_by(-5)


def test_a_realtime_clock_never_goes_back_while_its_scale_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread reads the clock, and in the middle of that another changes the scale."""
    from headrace.core import clock as realtime_clock

    now = 0
    meanwhile: list[float] = []

    def monotonic_ns() -> int:
        nonlocal now
        if meanwhile:
            clock.set_time_scale(meanwhile.pop())
        now += 1_000_000_000
        return now

    clock = RealtimeClock()
    monkeypatch.setattr(realtime_clock.time, "monotonic_ns", monotonic_ns)
    clock.initialize()
    for scale in (100.0, 0.01, 1.0, 3.0, 0.5):
        before = clock.timestamp()
        meanwhile.append(scale)
        during = clock.timestamp()
        after = clock.timestamp()
        assert before <= during <= after


def test_changing_the_scale_of_a_clock_wakes_whoever_waits_for_it(scheduler: MakeScheduler) -> None:
    """At a millionth of its pace the next tick is a day away; the thread that changes it does not wait for it."""
    clocks: list[RealtimeClock] = []

    def compose(app: App) -> None:
        clocks[:] = [app.scheduler().clock]  # type: ignore[list-item]
        app.add_operator(Step(app, CountCondition(app, 2), PeriodicCondition(app, 100_000_000), name="ticks"))

    app = App(compose, lambda app: scheduler(app, clock=RealtimeClock(app, initial_time_scale=1e-6)))

    def speed_up() -> None:
        while app._headrace.engine is None or not any(
            parker.deadline for parker in app._headrace.engine.ready_queues[0].parked
        ):
            pass
        clocks[0].set_time_scale(1e6)

    thread = threading.Thread(target=speed_up)
    thread.start()
    app.run()
    thread.join()
    assert app.graph.find("ticks").ticks == 2  # type: ignore[attr-defined]


def test_a_thread_that_sleeps_on_a_realtime_clock_wakes_up_by_its_new_pace() -> None:
    clock = RealtimeClock(initial_time_scale=1e-9)
    woken = threading.Event()

    def sleep() -> None:
        clock.sleep_for("1s")
        woken.set()

    threading.Thread(target=sleep, daemon=True).start()
    while not clock._changed._waiters:  # type: ignore[attr-defined]
        pass
    assert not woken.is_set()
    clock.set_time_scale(1e9)
    assert woken.wait(PATIENCE)


@pytest.mark.parametrize("make", [ManualClock, SyntheticClock, RealtimeClock])
def test_a_run_in_another_time_waits_for_the_device(
    make: type[Clock], scheduler: MakeScheduler, machine: sim.Machine
) -> None:
    frames = 60  # more than an operator may be ahead of the device

    def compose(app: App) -> None:
        app.consumer = Consumer(app, name="consumer")  # type: ignore[attr-defined]
        app.add_flow(Producer(app, CountCondition(app, frames), name="producer"), app.consumer)  # type: ignore[attr-defined]

    app = App(compose, scheduler, clock=make())
    app.run_async().result(PATIENCE)
    assert app.consumer.seen == list(range(frames))  # type: ignore[attr-defined]
