"""Time on a simulated machine: virtual time jumps when everything waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim import timeline
from tests.gpu.sim.in_time import InTime
from tests.gpu.sim.launches import LONG, ONE_BLOCK
from tests.harness import PATIENCE, wait_until


def test_an_hour_of_virtual_time_takes_none(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, LONG)
    stream.sync()
    assert machine.now >= 3600  # and no test may take an hour


def test_time_stands_still_while_nobody_waits(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, LONG)
    event = stream.record()
    assert machine.now == 0
    machine.sleep(3599)
    assert not event.is_done
    machine.sleep(2)
    assert event.is_done


def test_asking_in_a_loop_gets_there(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, sim.Kernel("short", 100e-6))
    event = stream.record()
    questions = 1
    while not event.is_done:
        questions += 1
    assert 50 < questions < 200  # a microsecond each


def test_a_wait_with_a_timeout_gives_up(machine: sim.Machine) -> None:
    assert machine.wait(lambda: False, timeout=5.0) is False
    assert machine.now == 5.0


def test_a_wait_for_nothing_is_an_error_not_a_hang(machine: sim.Machine) -> None:
    with pytest.raises(RuntimeError, match="clock cannot advance"):
        machine.wait(lambda: False)


def test_an_attached_thread_that_has_become_ready_goes_before_time_does(machine: sim.Machine) -> None:
    done = []

    def work() -> None:
        with machine.attach():
            attached.set()
            machine.wait(lambda: bool(done))
            times.append(machine.now)

    attached, times = threading.Event(), []
    thread = threading.Thread(target=work)
    with machine.attach():
        thread.start()
        attached.wait()
        stream = sim.Device(0).create_stream()
        sim.launch(stream, ONE_BLOCK, sim.Kernel("first", 1.0, effect=lambda: done.append(True)))
        sim.launch(stream, ONE_BLOCK, sim.Kernel("second", 1000.0))
        stream.sync()
    thread.join()
    assert times[0] < 2


def test_an_attached_thread_may_join_one_that_waits_for_the_device(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "STANDSTILL", 0.01)
    stream = sim.Device(0).create_stream()
    times = []

    def work() -> None:
        sim.Device(0).set_current()
        for _ in range(3):
            sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1.0))
            sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1.0))
            stream.sync()
            times.append(int(machine.now))

    with machine.attach():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert times == [2, 4, 6]


def test_a_thread_that_has_waited_too_long_lets_an_attached_one_submit_what_it_waits_for(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "STANDSTILL", 0.01)
    device = sim.Device(0)
    asked: list[bool] = []
    done: list[bool] = []

    def is_done() -> bool:
        asked.append(bool(done))
        return bool(done)

    thread = threading.Thread(target=lambda: machine.wait(is_done))
    with machine.attach():
        thread.start()
        wait_until(lambda: len(asked) > 9, "the thread to find again and again that nothing is scheduled")
        sim.launch(device.create_stream(), ONE_BLOCK, sim.Kernel("k", 1.0, effect=lambda: done.append(True)))
        thread.join()


def test_a_thread_that_attaches_twice_is_attached_until_it_leaves_the_outer_block(
    machine: sim.Machine,
) -> None:
    def ask() -> None:
        sim.Device(0).set_current()
        stream = sim.Device(0).create_stream()
        sim.launch(stream, ONE_BLOCK, LONG)
        assert not stream.record().is_done
        times.append(machine.now)

    def ask_beside() -> None:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()

    times: list[float] = []
    with machine.attach():
        with machine.attach():
            ask_beside()
        ask_beside()
    ask_beside()
    assert times[:2] == [0, 0]
    assert times[2] > 0  # asking takes time, unless somebody is attached


# -- threads -----------------------------------------------------------------------------------------


def test_a_thread_that_leaves_with_an_error_lets_another_carry_on(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    in_host, go = threading.Event(), threading.Event()
    gpu.launch_host(stream, lambda: (in_host.set(), go.wait()))
    event = stream.record()
    refused = []

    def wait_for_nothing() -> None:
        try:
            machine.wait(lambda: False)
        except RuntimeError as error:
            refused.append(str(error))

    first = threading.Thread(target=wait_for_nothing, daemon=True)
    second = threading.Thread(target=event.sync, daemon=True)
    first.start()
    in_host.wait()
    second.start()
    while len(machine.timeline._waits) < 2:
        pass  # until the second thread waits too
    go.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert "cannot advance" in refused[0]
    assert not second.is_alive()


def test_asking_in_a_loop_gets_there_on_an_attached_thread_too(machine: sim.Machine, in_time: InTime) -> None:
    def work() -> None:
        with machine.attach():
            stream = sim.Device(0).create_stream()
            sim.launch(stream, ONE_BLOCK, sim.Kernel("short", 100e-6))
            event = stream.record()
            while not event.is_done:
                pass

    in_time(work)


# -- what is due -------------------------------------------------------------------------------------


def test_waits_and_launches_leave_nothing_behind(machine: sim.Machine) -> None:
    stream, other = sim.Device(0).create_stream(), sim.Device(0).create_stream()
    sim.launch(other, ONE_BLOCK, LONG)
    for _ in range(100):
        sim.launch(stream, ONE_BLOCK, sim.Kernel("short", 1e-6))
        fence = stream.record()._fence
        machine.wait(lambda fence=fence: fence.is_signaled, timeout=3600.0)
    assert len(machine.timeline._due) < 5


def test_the_device_waits_for_what_was_submitted_before(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    rounds = []

    def again(error: Any) -> None:
        rounds.append(error)
        if len(rounds) < 1000:  # two kernels, and the next two are submitted while the second runs
            sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-6))
            event = stream.record()
            sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3))
            gpu.when_done(stream, again, event=event)

    again(None)
    sim.Device(0).sync()
    assert 1 <= len(rounds) < 10
