"""Closing a machine: whoever waits for it is let go with an error, and nothing hangs."""

import threading
import time

import pytest

from penstock import Application, Operator, PeriodicCondition, gpu
from penstock.conditions import AsynchronousCondition, AsynchronousEventState
from penstock.gpu import sim
from penstock.gpu.sim import wall_timeline
from penstock.resources import CudaStreamPool

ONE_BLOCK = sim.LaunchConfig(grid=1, block=32)
KINDS = ["virtual", "paced", "real"]
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
def test_a_thread_that_waits_gets_an_error(kind, how, attached, in_time):
    def program():
        with sim.Machine("h200", time=kind) as machine, machine.attach():
            sim.Device(0).set_current()
            stream = sim.Device(0).create_stream()
            sim.launch(stream, ONE_BLOCK, sim.Kernel("long", 3600.0))
            event, refused = stream.record(), []

            def wait():
                sim.Device(0).set_current()
                with pytest.raises(sim.CUDAError, match=r"CUDA_ERROR_DEINITIALIZED.*was closed"):
                    WAITS[how](machine, stream, event)
                refused.append(True)

            def work():
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


@pytest.mark.parametrize("kind", ["paced", "real"])
def test_closing_does_not_wait_for_the_programs_code_for_ever(kind, in_time, monkeypatch):
    monkeypatch.setattr(wall_timeline, "_PATIENCE", 0.01)
    inside, go = threading.Event(), threading.Event()

    def program():
        with sim.Machine("h200", time=kind):
            sim.Device(0).set_current()
            stream = sim.Device(0).create_stream()
            gpu.launch_host(stream, lambda: (inside.set(), go.wait()))
            inside.wait()

    with sim.Machine("h200"):
        in_time(program)
    go.set()


class Waits(Operator):
    """Never has anything to do after the first time, or launches what never ends."""

    def __init__(self, fragment, *args, how, **kwargs):
        self.how = how
        super().__init__(fragment, *args, **kwargs)

    def start(self):
        gpu.Device(0).set_current()

    def compute(self, op_input, op_output, context):
        stream = context.allocate_cuda_stream("own").stream
        if self.how == "a kernel":
            sim.launch(stream, ONE_BLOCK, sim.Kernel("long", 3600.0))
            stream.sync()


class App(Application):
    def __init__(self, scheduler, how):
        super().__init__()
        self.make, self.how = scheduler, how

    def compose(self):
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
def test_a_run_on_a_machine_that_is_closed_ends_with_an_error(kind, scheduler, how, in_time):
    with sim.Machine("h200", time=kind) as machine:

        def program():
            with pytest.raises(sim.CUDAError, match="was closed"):
                App(scheduler, how).run()

        def close():
            while not machine.timeline._waits:
                time.sleep(0)
            machine.close()

        closer = threading.Thread(target=close, daemon=True)
        with machine.attach():  # so that virtual time stands still until the machine is closed
            closer.start()
            in_time(program)
        closer.join()
