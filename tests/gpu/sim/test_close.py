"""Closing a machine: whoever waits for it is let go with an error, and nothing hangs."""

from __future__ import annotations

import threading
import time
from typing import Any, Never

import pytest

from headrace import Application, Operator, PeriodicCondition, gpu
from headrace.conditions import AsynchronousCondition, AsynchronousEventState
from headrace.gpu import sim
from headrace.gpu.sim import paced_timeline
from headrace.resources import CudaStreamPool
from tests.gpu.sim.in_time import InTime
from tests.gpu.sim.launches import LONG, ONE_BLOCK
from tests.harness import PATIENCE, MakeScheduler
from tests.harness.processes import output_of
from tests.harness.threads import wait_until

KINDS = ["virtual", "paced"]
WAITS = {
    "wait": lambda machine, stream, event: machine.wait(lambda: False, timeout=3600.0),
    "sleep": lambda machine, stream, event: machine.sleep(3600.0),
    "stream": lambda machine, stream, event: stream.sync(),
    "event": lambda machine, stream, event: event.sync(),
    "device": lambda machine, stream, event: sim.Device(0).sync(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", WAITS)
@pytest.mark.parametrize("attached", [False, True], ids=["", "attached"])
def test_a_thread_that_waits_gets_an_error(kind: str, how: str, attached: Any, in_time: InTime) -> None:
    def program() -> None:
        with sim.Machine("h200", time=kind) as machine, machine.attach():
            sim.Device(0).set_current()
            stream = sim.Device(0).create_stream()
            sim.launch(stream, ONE_BLOCK, LONG)
            event, refused = stream.record(), []

            def wait() -> None:
                sim.Device(0).set_current()
                with pytest.raises(sim.CUDAError, match=r"CUDA_ERROR_DEINITIALIZED.*was closed"):
                    WAITS[how](machine, stream, event)
                refused.append(True)

            def work() -> None:
                if attached:
                    with machine.attach():
                        wait()
                else:
                    wait()

            thread = threading.Thread(target=work, daemon=True)
            thread.start()  # this thread is attached, so that virtual time stands still
            while not machine.timeline._waits:
                pass
            machine.close()
            thread.join()
            assert refused == [True]

    with sim.Machine("h200"):
        in_time(program)


def test_closing_does_not_wait_for_the_programs_code_for_ever(
    in_time: InTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced_timeline, "_JOIN_TIMEOUT", 0.01)
    inside, go = threading.Event(), threading.Event()

    def program() -> None:
        with sim.Machine("h200", time="paced"):
            sim.Device(0).set_current()
            stream = sim.Device(0).create_stream()
            gpu.launch_host(stream, lambda: (inside.set(), go.wait()))
            inside.wait()

    with sim.Machine("h200"):
        in_time(program)
    go.set()


class Waits(Operator):
    """Never has anything to do after the first time, or launches what never ends."""

    def __init__(self, fragment: Any, *args: Any, how: str, **kwargs: Any) -> None:
        self.how = how
        super().__init__(fragment, *args, **kwargs)

    def start(self) -> None:
        gpu.Device(0).set_current()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own").stream
        if self.how == "a kernel":
            sim.launch(stream, ONE_BLOCK, LONG)
            stream.sync()


class App(Application):
    def __init__(self, scheduler: MakeScheduler, how: str) -> None:
        super().__init__()
        self.make, self.how = scheduler, how

    def compose(self) -> None:
        self.scheduler(self.make(self))
        given = []
        if self.how == "an event":
            given = [AsynchronousCondition(self, name="event")]
            given[0].event_state = AsynchronousEventState.EVENT_WAITING
        elif self.how == "a time":
            given = [PeriodicCondition(self, 3600.0)]
        pool = CudaStreamPool(self, 0, name="streams")
        self.add_operator(Waits(self, pool, *given, how=self.how, name="waits"))


@pytest.mark.parametrize("how", ["an event", "a time", "a kernel"])
@pytest.mark.parametrize("kind", ["virtual", "paced"])
def test_a_run_on_a_machine_that_is_closed_ends_with_an_error(
    kind: str, scheduler: MakeScheduler, how: str, in_time: InTime
) -> None:
    with sim.Machine("h200", time=kind) as machine:

        def program() -> None:
            with pytest.raises(sim.CUDAError, match="was closed"):
                App(scheduler, how).run()

        def close() -> None:
            while not machine.timeline._waits:
                time.sleep(0)
            machine.close()

        closer = threading.Thread(target=close, daemon=True)
        with machine.attach():  # so that virtual time stands still until the machine is closed
            closer.start()
            in_time(program)
        closer.join()


@pytest.mark.parametrize("kind", ["virtual", "paced"])
def test_nothing_waits_for_a_machine_that_was_closed(in_time: InTime, kind: str) -> None:
    def work() -> None:
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


@pytest.mark.parametrize("kind", ["virtual", "paced"])
def test_closing_a_machine_lets_those_go_who_wait_for_it(kind: str) -> None:
    machine = sim.Machine("h200", time=kind)
    outcome = []

    def wait() -> None:
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
    thread.join(PATIENCE)
    assert "CUDA_ERROR_DEINITIALIZED" in outcome[0]


def test_a_bug_in_an_action_reaches_whoever_waits(in_time: InTime) -> None:
    def bug() -> Never:
        raise ValueError("a bug")

    def work() -> None:
        with sim.Machine("h200", time="paced") as machine:
            with machine.timeline.lock:
                machine.timeline.call_at(0, bug)
            wait_until(lambda: machine.timeline._failure is not None, "the action")
            for _ in range(2):
                with pytest.raises(sim.CUDAError, match="the simulation itself failed.*a bug") as raised:
                    machine.wait(lambda: False, timeout=10.0)
                assert type(raised.value.__cause__) is ValueError

    with sim.Machine("h200"):
        in_time(work)


def test_a_finalizer_submits_nothing_when_the_interpreter_ends() -> None:
    # The thread of the simulation is killed then and may hold the lock of the timeline.
    code = """
from headrace.gpu.backend import active

class Finalized:
    def __init__(self, name):
        self.name, self.may_submit = name, active().may_submit
    def __del__(self, print=print):
        print(self.name, self.may_submit())

Finalized("while it runs")
kept = Finalized("at the end")
"""
    assert output_of("-c", code) == "while it runs True\nat the end False\n"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_a_callback_is_reported_and_the_others_are_called(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: reported.append(told.exc_value))
    told: list[Exception | None] = []

    def fails(error: Exception | None) -> None:
        raise ValueError("of the program")

    with sim.Machine("h200", time=kind):
        sim.Device(0).set_current()
        stream = sim.Device(0).create_stream()
        sim.launch(stream, ONE_BLOCK, LONG)
        for callback in (fails, told.append):
            gpu.when_done(stream, callback)
    assert [str(error) for error in reported] == ["of the program"]
    assert [type(error) for error in told] == [sim.CUDAError]
