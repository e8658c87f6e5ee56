"""Paced time, which a program gets that makes no machine: virtual figures, no clock that is faster, and no hang."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Application, CountCondition, GreedyScheduler, Operator, gpu
from headrace.conditions import PeriodicCondition
from headrace.gpu import sim
from headrace.gpu.sim import paced_timeline
from headrace.resources import CudaStreamPool, MachineClock
from tests.gpu.sim.in_time import InTime
from tests.gpu.sim.launches import ONE_BLOCK
from tests.harness import PATIENCE, MakeScheduler, wait_until

MS = sim.Kernel("ms", 1e-3)
OVERHEAD = sim.PROFILES["h200"].launch_overhead


@pytest.fixture
def machine() -> Iterator[sim.Machine]:
    with sim.Machine("h200", time="paced") as machine:
        sim.Device(0).set_current()
        yield machine


@pytest.fixture
def nobody_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this computer is, the program is not taken to wait for something else."""
    monkeypatch.setattr(paced_timeline, "AWAY_NS", 10**15)
    monkeypatch.setattr(paced_timeline, "STANDSTILL_NS", 10**15)


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_what_the_host_does_between_calls_costs_nothing(machine: sim.Machine, nobody_is_away: None) -> None:
    stream = sim.Device(0).create_stream()
    timed = sim.EventOptions(timing_enabled=True)
    begin, end = (sim.Device(0).create_event(timed) for _ in range(2))
    stream.record(begin)
    spin(5e-3)
    sim.launch(stream, ONE_BLOCK, MS)
    stream.record(end)
    end.sync()
    assert end - begin == pytest.approx(1 + OVERHEAD * 1e3)
    assert machine.now == pytest.approx(1e-3 + OVERHEAD)


def test_a_kernel_is_no_faster_by_the_wall_clock_than_it_says(
    machine: sim.Machine, nobody_is_away: None
) -> None:
    stream = sim.Device(0).create_stream()
    spin(5e-3)  # that nobody made use of this does not make what follows faster
    for _ in range(5):
        began = time.perf_counter()
        sim.launch(stream, ONE_BLOCK, MS)
        stream.sync()
        assert time.perf_counter() - began >= 1e-3


def test_a_sleep_of_the_machines_time_is_no_shorter_by_the_wall_clock(
    machine: sim.Machine, nobody_is_away: None
) -> None:
    began = time.perf_counter()
    machine.sleep(3e-3)
    assert time.perf_counter() - began >= 3e-3
    assert machine.now == 3e-3


def test_work_ends_while_the_program_is_elsewhere(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, MS)
    event = stream.record()
    wait_until(lambda: event._fence.is_signaled, "the end of the kernel")  # nothing asks the machine
    assert event.is_done
    assert machine.now >= 1e-3


def test_a_program_may_wait_for_a_callback_in_its_own_way(machine: sim.Machine, in_time: InTime) -> None:
    def work() -> None:
        stream = sim.Device(0).create_stream()
        for _ in range(3):
            done = threading.Event()
            sim.launch(stream, ONE_BLOCK, MS)
            gpu.when_done(stream, lambda error, done=done: done.set())
            done.wait()

    in_time(work)
    assert machine.now >= 3e-3


@pytest.mark.parametrize("attached", [False, True])
def test_asking_in_a_loop_gets_there(
    machine: sim.Machine, in_time: InTime, nobody_is_away: None, attached: Any
) -> None:
    def ask() -> None:
        stream = sim.Device(0).create_stream()
        sim.launch(stream, ONE_BLOCK, MS)
        event = stream.record()
        while not event.is_done:
            pass

    def work() -> None:
        if attached:
            with machine.attach():
                ask()
        else:
            ask()

    began = time.perf_counter()
    in_time(work)
    assert time.perf_counter() - began >= 1e-3


def test_a_program_that_never_waits_does_not_stop_the_clock(
    machine: sim.Machine, in_time: InTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced_timeline, "AWAY_NS", 10**15)

    def work() -> None:
        stream = sim.Device(0).create_stream()
        sim.launch(stream, ONE_BLOCK, MS)
        event = stream.record()
        while not event._fence.is_signaled:
            other = sim.Device(0).create_stream()
            sim.launch(other, ONE_BLOCK, MS)

    in_time(work)


def test_a_look_does_not_wait_for_a_host_function_that_waits_for_the_program(machine: sim.Machine) -> None:
    stream, go = sim.Device(0).create_stream(), threading.Event()
    returned: list[bool] = []
    gpu.launch_host(stream, lambda: returned.append(go.wait(PATIENCE)))
    assert not stream.record().is_done
    go.set()
    stream.sync()
    assert returned == [True]


def test_a_look_in_passing_costs_nothing(machine: sim.Machine, nobody_is_away: None) -> None:
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, MS)
    event = stream.record()
    with machine.attach():
        assert not any(event.is_done for _ in range(500))
        assert machine.now == 0


def test_a_host_function_that_takes_long_takes_as_long_on_the_device(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    begin, end = (sim.Device(0).create_event({"timing_enabled": True}) for _ in range(2))
    stream.record(begin)
    gpu.launch_host(stream, lambda: spin(5e-3))
    stream.record(end)
    end.sync()
    assert end - begin >= 5.0


def test_an_interrupt_in_the_programs_code_is_reported_and_the_clock_goes_on(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3, effect=sys.exit))
    stream.sync()
    assert reported == [SystemExit]


# -- pipelines ---------------------------------------------------------------------------------------


class Work(Operator):
    """Launches a kernel of 1 ms and waits for it in its own way, or does not."""

    def __init__(self, fragment: Any, *args: Any, how: str = "not", **kwargs: Any) -> None:
        self.how = how
        super().__init__(fragment, *args, **kwargs)

    def start(self) -> None:
        gpu.Device(0).set_current()
        self.times = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own").stream
        sim.launch(stream, ONE_BLOCK, MS)
        if self.how == "sync":
            stream.sync()
        elif self.how == "callback":
            done = threading.Event()
            gpu.when_done(stream, lambda error: done.set())
            done.wait()
        elif self.how == "spin":
            spin(3e-3)
        self.times.append(sim.current_machine().now)


class Flow(Application):
    def __init__(self, scheduler: MakeScheduler, how: str) -> None:
        super().__init__()
        self.make_scheduler, self.how = scheduler, how

    def compose(self) -> None:
        self.scheduler(self.make_scheduler(self))
        pool = CudaStreamPool(self, 0, name="streams")
        self.work = Work(
            self, pool, PeriodicCondition(self, 2_000_000), CountCondition(self, 5), how=self.how, name="work"
        )
        self.add_operator(self.work)


@pytest.mark.parametrize("how", ["not", "sync", "callback", "spin"])
def test_a_pipeline_runs_on_the_machines_clock_whatever_its_operators_do(
    in_time: InTime, scheduler: MakeScheduler, how: str
) -> None:
    with sim.Machine("h200", time="paced") as machine:
        app = Flow(scheduler, how)
        began = time.perf_counter()
        in_time(app.run)
        assert isinstance(app.scheduler().clock, MachineClock)
        assert time.perf_counter() - began >= 8e-3  # four periods
        assert 8e-3 <= app.work.times[-1] <= machine.now


def test_a_timer_comes_beside_an_operator_that_never_waits(in_time: InTime) -> None:
    class Restless(Operator):
        def start(self) -> None:
            gpu.Device(0).set_current()

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            sim.launch(context.allocate_cuda_stream("own").stream, ONE_BLOCK, sim.Kernel("tiny", 1e-6))

    class App(Application):
        def compose(self) -> None:
            self.scheduler(GreedyScheduler(self, max_duration_ms=20))
            self.add_operator(Restless(self, CudaStreamPool(self, 0, name="streams"), name="restless"))

    with sim.Machine("h200", time="paced"):
        in_time(App().run)
