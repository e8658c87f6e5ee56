"""Ctrl-C and SIGTERM in a process of its own: every operator is stopped, and the process ends as it should."""

from __future__ import annotations

import signal

import pytest

from tests.harness.processes import signal_python

FOREVER = """
import atexit, signal, sys, threading
from headrace import Application, Operator, schedulers

class Forever(Operator):
    def compute(self, op_input, op_output, context):
        if not ready.is_set():
            ready.set()
            print("running", flush=True)

    def stop(self):
        print("stopped", flush=True)

class App(Application):
    def compose(self):
        self.scheduler(getattr(schedulers, sys.argv[1])(self))
        self.add_operator(Forever(self))

ready = threading.Event()
# A parent that runs in the background may have left the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(print, "exit")
app = App()
try:
    app.run()
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
finally:
    print(app.outcome.ended_by, threading.active_count(), flush=True)
"""


@pytest.mark.parametrize("scheduler", ["GreedyScheduler", "MultiThreadScheduler", "EventBasedScheduler"])
def test_ctrl_c_stops_every_operator_and_comes_out_of_run(scheduler: str) -> None:
    ended = signal_python(signal.SIGINT, "-c", FOREVER, scheduler)
    printed = ["stopped", "KeyboardInterrupt", "interrupted 1", "exit"]
    assert (ended.stdout.splitlines(), ended.returncode) == (printed, 0), ended.stderr


@pytest.mark.parametrize("scheduler", ["GreedyScheduler", "EventBasedScheduler"])
def test_sigterm_stops_every_operator_and_ends_the_process_with_143(scheduler: str) -> None:
    ended = signal_python(signal.SIGTERM, "-c", FOREVER, scheduler)
    printed = ["stopped", "interrupted 1", "exit"]
    assert (ended.stdout.splitlines(), ended.returncode) == (printed, 143), ended.stderr


ELSEWHERE = """
import signal, sys, threading
from headrace import Application, Operator, schedulers
from headrace.conditions import AsynchronousCondition, AsynchronousEventState

class Waiting(Operator):
    def compute(self, op_input, op_output, context):
        event.event_state = AsynchronousEventState.EVENT_WAITING
        threading.Thread(target=take_signals, args=[self._headrace.node.ready_queue], daemon=True).start()

class App(Application):
    def compose(self):
        global event
        self.scheduler(getattr(schedulers, sys.argv[1])(self))
        event = AsynchronousCondition(self)
        self.add_operator(Waiting(self, event))

def take_signals(ready_queue):
    while not ready_queue.parked:
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    print("running", flush=True)
    threading.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)
# The system gives the signal to another thread, and what the main thread waits for is not interrupted.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
app = App()
try:
    app.run()
except KeyboardInterrupt:
    print(app.outcome.ended_by, flush=True)
"""


@pytest.mark.parametrize("scheduler", ["GreedyScheduler", "MultiThreadScheduler"])
def test_a_signal_that_interrupts_no_wait_is_handled(scheduler: str) -> None:
    ended = signal_python(signal.SIGINT, "-c", ELSEWHERE, scheduler)
    assert (ended.stdout.splitlines(), ended.returncode) == (["interrupted"], 0), ended.stderr
