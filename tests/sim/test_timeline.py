"""Time on a simulated machine: virtual time jumps when everything waits; real time takes its time."""

import threading
import time

import pytest

from penstock import gpu
from penstock.gpu import sim

LONG = sim.Kernel("long", 3600.0)
ONE_BLOCK = sim.LaunchConfig(grid=1, block=32)


def test_an_hour_of_virtual_time_takes_none(machine):
    stream = sim.Device(0).create_stream()
    started = time.monotonic()
    sim.launch(stream, ONE_BLOCK, LONG)
    stream.sync()
    assert machine.now >= 3600
    assert time.monotonic() - started < 60


def test_time_stands_still_while_nobody_waits(machine):
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, LONG)
    event = stream.record()
    assert machine.now == 0
    machine.sleep(3599)
    assert not event.is_done
    machine.sleep(2)
    assert event.is_done


def test_asking_in_a_loop_gets_there(machine):
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, sim.Kernel("short", 100e-6))
    event = stream.record()
    questions = 1
    while not event.is_done:
        questions += 1
    assert 50 < questions < 200  # a microsecond each


def test_a_wait_with_a_timeout_gives_up(machine):
    assert machine.wait(lambda: False, timeout=5.0) is False
    assert machine.now == 5.0


def test_a_wait_for_nothing_is_an_error_not_a_hang(machine):
    with pytest.raises(RuntimeError, match="clock cannot move"):
        machine.wait(lambda: False)


def test_time_waits_for_attached_threads(machine):
    # The worker counts as running until it waits itself, however long the host takes to schedule it.
    stream = sim.Device(0).create_stream()
    let_go = threading.Event()
    seen = []

    def work():
        with machine.attach():
            ready.set()
            let_go.wait()
            seen.append(machine.now)
            machine.sleep(1.0)
            seen.append(machine.now)

    ready = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    sim.launch(stream, ONE_BLOCK, LONG)
    waiter = threading.Thread(target=stream.sync)
    waiter.start()
    assert machine.now == 0  # the waiter waits, but the attached worker does not
    let_go.set()
    thread.join()
    waiter.join()
    assert seen == [0.0, 1.0]
    assert machine.now >= 3600


def test_an_attached_thread_that_has_become_ready_goes_before_time_does(machine):
    done = []

    def work():
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


def test_attaching_twice_is_refused(machine):
    with machine.attach(), pytest.raises(RuntimeError, match="attached"), machine.attach():
        pass


@pytest.mark.parametrize("how", ["sync", "sleep"])
def test_a_host_function_must_not_wait_for_the_device(machine, monkeypatch, how):
    import sys

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(str(args.exc_value)))
    stream, other = sim.Device(0).create_stream(), sim.Device(0).create_stream()
    sim.launch(other, ONE_BLOCK, LONG)
    gpu.launch_host(stream, other.sync if how == "sync" else lambda: machine.sleep(1))
    stream.sync()
    assert "CUDA_ERROR_NOT_PERMITTED" in reported[0]


def test_a_kernel_whose_effect_raises_breaks_the_device_as_a_fault_does(machine):
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


def test_in_real_time_a_kernel_takes_as_long_as_it_says():
    with sim.Machine("h200", time="real") as machine:
        device = sim.Device(0)
        device.set_current()
        stream = device.create_stream()
        options = sim.EventOptions(timing_enabled=True)
        begin, end = device.create_event(options), device.create_event(options)
        done, order = threading.Event(), []
        started = time.monotonic()
        stream.record(begin)
        sim.launch(stream, ONE_BLOCK, sim.Kernel("slow", 20e-3, effect=lambda: order.append("kernel")))
        stream.record(end)
        gpu.launch_host(stream, lambda: order.append("host"))
        gpu.when_done(stream, lambda error: (order.append("told"), done.set()))
        assert not end.is_done
        assert done.wait(10)
        assert time.monotonic() - started >= 20e-3
        assert order == ["kernel", "host", "told"]
        assert 20.0 <= end - begin < 21.0  # the device's own time is exact, however late the host looks
        stream.sync()
        assert machine.now >= 20e-3


def test_in_real_time_callbacks_may_submit_and_threads_may_share_a_stream():
    with sim.Machine("h200", time="real"):
        device = sim.Device(0)
        device.set_current()
        stream = device.create_stream()
        finished, counts = threading.Event(), []

        def again(error):
            counts.append(1)
            if len(counts) == 20:
                finished.set()
            else:
                sim.launch(stream, ONE_BLOCK, sim.Kernel("tiny", 1e-5))
                gpu.when_done(stream, again)

        gpu.when_done(stream, again)
        threads = [
            threading.Thread(
                target=lambda: [sim.launch(stream, ONE_BLOCK, sim.Kernel("t", 1e-5)) for _ in range(50)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert finished.wait(10)
        device.sync()
