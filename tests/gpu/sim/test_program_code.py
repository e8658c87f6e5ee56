"""Code of the program that the simulated device calls: what it may do, and where its errors go."""

from __future__ import annotations

import sys
from typing import Any, Never

import pytest

from headrace import gpu
from headrace.gpu import sim
from tests.gpu.sim.in_time import InTime
from tests.gpu.sim.launches import LONG, ONE_BLOCK


@pytest.mark.parametrize("how", ["sync", "sleep"])
def test_a_host_function_must_not_wait_for_the_device(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(str(args.exc_value)))
    stream, other = sim.Device(0).create_stream(), sim.Device(0).create_stream()
    sim.launch(other, ONE_BLOCK, LONG)
    gpu.launch_host(stream, other.sync if how == "sync" else lambda: machine.sleep(1))
    stream.sync()
    assert "CUDA_ERROR_NOT_PERMITTED" in reported[0]


def test_a_kernel_whose_effect_raises_breaks_the_device_as_a_fault_does(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, sim.Kernel("bad", 1e-3, effect=lambda: 1 / 0))
    with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED.*'bad'.*ZeroDivisionError"):
        stream.sync()
    for call in (
        stream.sync,
        sim.Device(0).sync,
        sim.Device(0).create_stream,
        lambda: sim.launch(stream, ONE_BLOCK, LONG),
    ):
        with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED"):
            call()


def test_a_callback_may_ask_without_waiting(machine: sim.Machine) -> None:
    stream, other = sim.Device(0).create_stream(), sim.Device(0).create_stream()
    sim.launch(other, ONE_BLOCK, LONG)
    event, answers = other.record(), []
    gpu.launch_host(stream, lambda: answers.append(event.is_done))
    stream.sync()
    assert answers == [False]


def test_how_long_a_block_runs_is_asked_with_the_lock_free(machine: sim.Machine, in_time: InTime) -> None:
    def work() -> None:
        stream = sim.Device(0).create_stream()
        sim.launch(stream, ONE_BLOCK, sim.Kernel("k", lambda: 1.0 + machine.now))
        stream.sync()

    in_time(work)
    assert 1.0 <= machine.now < 1.1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["effect", "host function", "callback"])
def test_an_interrupt_in_the_programs_code_reaches_the_thread_that_waits(
    machine: sim.Machine, where: str, interrupt: Any
) -> None:
    def stop(*_: Any) -> Never:
        raise interrupt

    stream = sim.Device(0).create_stream()
    if where == "effect":
        sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3, effect=stop))
    elif where == "callback":
        gpu.when_done(stream, stop)
    else:
        gpu.launch_host(stream, stop)
    with pytest.raises(interrupt):
        machine.sleep(1.0)
    stream.sync()  # it went on to the next operation all the same
    machine.sleep(1.0)


def test_when_done_tells_of_the_failure(machine: sim.Machine) -> None:
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, sim.Kernel("bad", 1e-3, effect=lambda: 1 / 0))
    told = []
    gpu.when_done(stream, told.append)
    with pytest.raises(sim.CUDAError):
        stream.sync()
    machine.sleep(1e-3)
    assert "LAUNCH_FAILED" in str(told[0])


@pytest.mark.parametrize("where", ["effect", "host function", "callback"])
def test_the_programs_code_runs_with_its_own_device_current(where: str) -> None:
    with sim.Machine("l4", devices=2) as machine:
        first, second = sim.Device.get_all_devices()
        first.set_current()
        stream = first.create_stream()
        seen = []

        def look(*_: Any) -> None:
            seen.append(sim.Device())
            second.set_current()

        if where == "effect":
            sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3, effect=look))
        elif where == "callback":
            gpu.when_done(stream, look)
        else:
            gpu.launch_host(stream, look)
        (group,), _ = second.resources.sm.split(sim.SMResourceOptions(count=4))
        mine = second.create_context(sim.ContextOptions(resources=[group]))
        second.set_current(mine)
        machine.sleep(1.0)
        assert seen == [first]
        assert second.set_current(mine) is mine  # as it was before, to the very object
