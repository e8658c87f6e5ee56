"""Time on a simulated machine: virtual time jumps when everything waits; real time takes its time."""

import gc
import sys
import threading
import time
import weakref

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
        sim.launch(stream, ONE_BLOCK, sim.Kernel("slow", 20e-3))  # while it runs the rest is submitted
        stream.record(begin)
        sim.launch(stream, ONE_BLOCK, sim.Kernel("slow", 20e-3))
        stream.record(end)
        sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3, effect=lambda: order.append("kernel")))
        gpu.launch_host(stream, lambda: order.append("host"))
        gpu.when_done(stream, lambda error: (order.append("told"), done.set()))
        assert not end.is_done
        assert done.wait(10)
        assert time.monotonic() - started >= 41e-3
        assert order == ["kernel", "host", "told"]
        assert end - begin == 20.0  # the device's own time is exact, however late the host looks
        stream.sync()
        assert machine.now >= 41e-3


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


# -- stopping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["virtual", "real"])
def test_nothing_waits_for_a_machine_that_was_closed(in_time, kind):
    def work():
        with sim.Machine("h200", time=kind) as machine:
            device = sim.Device(0)
            device.set_current()
            stream, idle = device.create_stream(), device.create_stream()
            sim.launch(stream, ONE_BLOCK, LONG)
            event = stream.record()
        for call in (
            stream.sync,
            event.sync,
            lambda: event.is_done,
            lambda: machine.sleep(1),
            lambda: sim.launch(idle, ONE_BLOCK, LONG),
        ):
            with pytest.raises(sim.CUDAError, match="CUDA_ERROR_DEINITIALIZED"):
                call()

    with sim.Machine("h200"):
        in_time(work)


@pytest.mark.parametrize("kind", ["virtual", "real"])
def test_closing_a_machine_lets_those_go_who_wait_for_it(kind):
    machine = sim.Machine("h200", time=kind)
    outcome = []

    def wait():
        with machine.attach():
            attached.set()
            try:
                machine.wait(lambda: False, timeout=3600.0)
            except sim.CUDAError as error:
                outcome.append(str(error))

    attached = threading.Event()
    thread = threading.Thread(target=wait, daemon=True)
    with machine.attach():  # so that virtual time stands still until the machine is closed
        thread.start()
        attached.wait()
        machine.close()
    thread.join(20)
    assert "CUDA_ERROR_DEINITIALIZED" in outcome[0]


def test_a_bug_in_an_action_reaches_whoever_waits(in_time):
    def bug():
        raise ValueError("a bug")

    def work():
        with sim.Machine("h200", time="real") as machine:
            with machine.timeline.lock:
                machine.timeline.at(0, bug)
            for _ in range(2):
                with pytest.raises(sim.CUDAError, match="the simulation itself failed.*a bug") as raised:
                    machine.wait(lambda: False, timeout=10.0)
                assert type(raised.value.__cause__) is ValueError

    with sim.Machine("h200"):
        in_time(work)


# -- threads -----------------------------------------------------------------------------------------


def test_a_thread_that_leaves_with_an_error_lets_another_carry_on(machine):
    stream = sim.Device(0).create_stream()
    in_host, go = threading.Event(), threading.Event()
    gpu.launch_host(stream, lambda: (in_host.set(), go.wait()))
    event = stream.record()
    refused = []

    def wait_for_nothing():
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
    first.join(20)
    second.join(20)
    assert "cannot move" in refused[0]
    assert not second.is_alive()


def test_a_thread_whose_wait_is_over_is_woken_by_the_next_that_waits(machine, in_time):
    done, attached = [], threading.Event()

    def work():
        with machine.attach():
            attached.set()
            machine.wait(lambda: bool(done))

    def program():
        thread = threading.Thread(target=work, daemon=True)
        with machine.attach():
            thread.start()
            attached.wait()
            while not machine.timeline._waits:
                pass  # until it waits
            done.append(True)  # and nobody calls notify
            stream = sim.Device(0).create_stream()
            sim.launch(stream, ONE_BLOCK, LONG)
            stream.sync()
        thread.join()

    in_time(program)


def test_asking_in_a_loop_gets_there_on_an_attached_thread_too(machine, in_time):
    def work():
        with machine.attach():
            stream = sim.Device(0).create_stream()
            sim.launch(stream, ONE_BLOCK, sim.Kernel("short", 100e-6))
            event = stream.record()
            while not event.is_done:
                pass

    in_time(work)


def test_asking_never_waits_for_another_thread(machine, in_time):
    held = threading.Lock()  # the program's own, which the thread that asks holds and another wants
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, LONG)
    event, attached = stream.record(), threading.Event()

    def want():
        with machine.attach():
            attached.set()
            with held:
                pass

    def program():
        thread = threading.Thread(target=want, daemon=True)
        with machine.attach():
            with held:
                thread.start()
                attached.wait()
                assert not any(event.is_done for _ in range(5000))
                assert machine.now == 0
            thread.join()

    in_time(program)


def test_a_look_in_passing_runs_nothing_of_the_programs(machine):
    stream = sim.Device(0).create_stream()
    ran = []
    gpu.when_done(stream, ran.append)
    sim.launch(stream, ONE_BLOCK, LONG)
    event = stream.record()
    with machine.attach():
        for _ in range(3):
            assert not any(event.is_done for _ in range(500))
            sim.launch(stream, ONE_BLOCK, LONG)
        assert not ran
        assert machine.now == 0


def test_a_callback_may_ask_without_waiting(machine):
    stream, other = sim.Device(0).create_stream(), sim.Device(0).create_stream()
    sim.launch(other, ONE_BLOCK, LONG)
    event, answers = other.record(), []
    gpu.launch_host(stream, lambda: answers.append(event.is_done))
    stream.sync()
    assert answers == [False]


# -- the program's code ------------------------------------------------------------------------------


class Guard:
    """What a program's code may hold: asks the machine something when it is dropped."""

    def __init__(self, machine):
        self._machine = machine
        self.dropped_at = []

    def __del__(self):
        self.dropped_at.append(self._machine.now)


@pytest.mark.parametrize("where", ["effect", "host function", "callback", "abandoned"])
def test_what_the_programs_code_holds_is_dropped_with_the_lock_free(in_time, where):
    def work():
        with sim.Machine("h200") as machine:
            device = sim.Device(0)
            device.set_current()
            stream = device.create_stream()
            guard = Guard(machine)
            dropped, alive = guard.dropped_at, weakref.ref(guard)
            if where == "effect":
                sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3, effect=lambda guard=guard: None))
            elif where == "callback":
                gpu.when_done(stream, lambda error, guard=guard: None)
            else:
                gpu.launch_host(stream, lambda guard=guard: None)
            del guard
            if where == "abandoned":
                machine.close()
                del stream
            else:
                stream.sync()
                machine.sleep(1e-3)
            gc.collect()
            assert alive() is None
            assert len(dropped) == 1

    with sim.Machine("h200"):
        in_time(work)


def test_how_long_a_block_runs_is_asked_with_the_lock_free(machine, in_time):
    def work():
        stream = sim.Device(0).create_stream()
        sim.launch(stream, ONE_BLOCK, sim.Kernel("k", lambda: 1.0 + machine.now))
        stream.sync()

    in_time(work)
    assert 1.0 <= machine.now < 1.1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["effect", "host function", "callback"])
def test_an_interrupt_in_the_programs_code_reaches_the_thread_that_waits(machine, where, interrupt):
    def stop(*_):
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


def test_in_real_time_an_interrupt_in_the_programs_code_is_reported_and_the_clock_goes_on(monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    with sim.Machine("h200", time="real"):
        device = sim.Device(0)
        device.set_current()
        stream = device.create_stream()
        sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3, effect=sys.exit))
        stream.sync()
    assert reported == [SystemExit]


def test_in_real_time_a_host_function_takes_as_long_as_it_takes():
    def spin():
        end = time.monotonic() + 20e-3
        while time.monotonic() < end:
            pass

    with sim.Machine("h200", time="real"):
        device = sim.Device(0)
        device.set_current()
        stream, other = device.create_stream(), device.create_stream()
        begin, middle, end, second = (device.create_event({"timing_enabled": True}) for _ in range(4))
        started = time.monotonic()
        stream.record(begin)
        gpu.launch_host(stream, spin)
        stream.record(middle)
        gpu.launch_host(other, spin)  # by the same thread, so after the first
        other.record(second)
        sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 15e-3))
        stream.record(end)
        device.sync()
        assert time.monotonic() - started >= 40e-3
        assert middle - begin >= 20.0
        assert second - begin >= 40.0
        assert end - middle == 15.0


def test_when_done_tells_of_the_failure(machine):
    stream = sim.Device(0).create_stream()
    sim.launch(stream, ONE_BLOCK, sim.Kernel("bad", 1e-3, effect=lambda: 1 / 0))
    told = []
    gpu.when_done(stream, told.append)
    with pytest.raises(sim.CUDAError):
        stream.sync()
    machine.sleep(1e-3)
    assert "LAUNCH_FAILED" in str(told[0])


@pytest.mark.parametrize("where", ["effect", "host function", "callback"])
def test_the_programs_code_runs_with_its_own_device_current(where):
    with sim.Machine("l4", devices=2) as machine:
        first, second = sim.Device.get_all_devices()
        first.set_current()
        stream = first.create_stream()
        seen = []

        def look(*_):
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


# -- what is due -------------------------------------------------------------------------------------


def test_waits_and_launches_leave_nothing_behind(machine):
    stream, other = sim.Device(0).create_stream(), sim.Device(0).create_stream()
    sim.launch(other, ONE_BLOCK, LONG)
    for _ in range(100):
        sim.launch(stream, ONE_BLOCK, sim.Kernel("short", 1e-6))
        mark = stream.record()._mark
        machine.wait(lambda mark=mark: mark.passed, timeout=3600.0)
    assert len(machine.timeline._due) < 5


def test_the_device_waits_for_what_was_submitted_before(machine):
    stream = sim.Device(0).create_stream()
    rounds = []

    def again(error):
        rounds.append(error)
        if len(rounds) < 1000:  # two kernels, and the next two are submitted while the second runs
            sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-6))
            event = stream.record()
            sim.launch(stream, ONE_BLOCK, sim.Kernel("k", 1e-3))
            gpu.when_done(stream, again, event=event)

    again(None)
    sim.Device(0).sync()
    assert 1 <= len(rounds) < 10
