"""Replicas on processes: Python code that computes at the same time as other Python code."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, OperatorSpec, PeriodicCondition, gpu
from headrace.application.listed_runs import listed_runs
from headrace.core.errors import CrossingError, GraphError, ParameterError, StuckError, WorkerProcessError
from headrace.core.log import RunFields
from headrace.gpu import sim
from headrace.operators import FeedOp, ResultsOp
from headrace.replicas import process_replica
from headrace.resources import CudaStreamPool
from tests.harness import PATIENCE, App, Step, run, sink, source, wait_until
from tests.harness.processes import run_python, signal_python
from tests.replicas.operators import (
    Fragile,
    Freezing,
    Scale,
    Sealed,
    Stuck,
    Tearing,
    Telling,
    TornFrame,
    Unwilling,
    count_down,
    leave,
    square,
    terminated,
    where,
)


def through(make: Any, values: Any, **options: Any) -> list[Any]:
    """Send values through an operator on a process; return what leaves it."""
    taken: list[Any] = []

    def compose(app: Any) -> None:
        options.setdefault("workers", 1)
        middle = make(app, name="middle", on="processes", **options)
        app.add_flow(source(app, values), middle)
        app.add_flow(middle, sink(app, taken), size=4)

    run(compose)
    return taken


def test_results_come_back_in_order_with_their_metadata() -> None:
    seen: list[Any] = []

    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        self.metadata["number"] = self.ticks
        if self.ticks == 5:
            self.fragment.middle.set_live("gain", 10)
        op_output.emit(np.full((2, 3), self.ticks), "out", acq_timestamp=self.ticks)

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        value = op_input.receive("in")
        value += 0  # it is writable
        seen.append((value[0, 0], dict(self.metadata), op_input.get_acquisition_timestamp("in")))

    def compose(app: Any) -> None:
        app.middle = Scale(app, name="middle", workers=2, on="processes")
        app.add_flow(Step(app, CountCondition(app, 9), outputs=["out"], body=emit, name="first"), app.middle)
        app.add_flow(app.middle, Step(app, inputs=["in"], body=take, name="last"))

    run(compose)
    assert [metadata["number"] for _, metadata, _ in seen] == list(range(1, 10))
    assert [timestamp for *_, timestamp in seen] == list(range(1, 10))
    assert [value for value, *_ in seen[-4:]] == [60, 70, 80, 90]
    processes = {metadata["process"] for _, metadata, _ in seen}
    assert os.getpid() not in processes
    assert sum(max(m["computes"] for _, m, _ in seen if m["process"] == each) for each in processes) == 9


def test_functions_run_on_processes_too() -> None:
    assert through(square, [1, 2, 3]) == [1, 4, 9]
    assert through(count_down, [2, 0, 3], workers=1) == [2, 1, 3, 2, 1]


def test_a_host_tensor_crosses_and_a_device_tensor_is_refused(machine: sim.Machine) -> None:
    seen = through(square, [np.arange(3)], workers=1)
    assert list(seen[0]) == [0, 1, 4]
    device = gpu.Device(0)
    device.set_current()
    stream = device.create_stream()
    with pytest.raises(
        CrossingError, match=r"'middle\[0\]': a message of it, at 'value': .* in the memory of a GPU"
    ) as raised:
        through(square, [device.allocate(8, stream=stream)])
    assert "copy it to the host first" in str(raised.value)


def test_an_error_comes_with_the_traceback_of_its_process() -> None:
    with pytest.raises(ValueError, match="-1 is negative") as raised:
        through(Fragile, [1, -1])
    assert any(
        "raised in the process of" in note and "operators.py" in note for note in raised.value.__notes__
    )


def test_an_exception_with_a_constructor_of_its_own_arrives_as_itself_with_its_cause() -> None:
    with pytest.raises(TornFrame, match="front is torn at line 3") as raised:
        through(Tearing, [1])
    assert raised.value.line == 3
    assert isinstance(raised.value.__cause__, OSError)
    assert str(raised.value.__cause__) == "no light"


def test_skipped_errors_keep_the_process_and_killed_ones_are_replaced() -> None:
    assert through(Fragile, [1, -1, 2, 13, 3], on_error="skip", workers=1) == [2, 4, 6]
    assert through(Fragile, [13, 13, 1, 2, 3, 4], on_error="skip", workers=2) == [2, 4, 6, 8]


def test_a_process_has_the_variables_that_the_program_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_COUNT", "1")  # not for it: it would end after one compute
    for value in ("small", "large"):
        monkeypatch.setenv("MODEL", value)
        assert [each[1:] for each in through(where, [1])] == [(value, None)]


def test_a_program_with_processes_is_one_run() -> None:
    found: list[Any] = []

    def compose(app: Any) -> None:
        middle = square(app, name="middle", workers=2, on="processes")
        app.add_flow(source(app, [1, 2]), middle)
        app.add_flow(middle, Step(app, inputs=["in"], body=look, name="last"))

    def look(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        found.append(listed_runs())

    app = App(compose)
    app.run()
    assert [each.process for each in found[-1] if each.run == app.run_id] == [os.getpid()]


def test_sigterm_for_all_processes_of_a_program_is_left_to_the_program() -> None:
    assert through(terminated, [1, 2, 3]) == [1, 2, 3]


def test_messages_that_cannot_cross_are_single_errors() -> None:
    found = through(where, [1, Sealed(), 2, "seal", 3], on_error="skip")
    assert [process == found[0][0] for process, *_ in found] == [True, True, False]
    with pytest.raises(CrossingError, match=r"'middle\[0\]': a message of it: .* \(LookupError: no key\)"):
        through(where, [Sealed()])
    with pytest.raises(CrossingError, match=r"'middle\[0\]': a result of it: .* \(LookupError: no key\)"):
        through(where, ["seal"])


def test_what_cannot_cross_is_named_with_its_port() -> None:
    with pytest.raises(CrossingError, match=r"a message of it, at 'value': <function .* cannot be pickled"):
        through(square, [lambda: 1])
    with pytest.raises(CrossingError, match=r"a result of it, at 'out': <function .* cannot be pickled"):
        through(leave, [1])


def test_a_process_that_leaves_the_program_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseProcess, "is_alive", lambda self: True)  # it takes its time
    with pytest.raises(SystemExit) as raised:
        through(leave, ["leave"])
    assert raised.value.code == 3
    assert not hasattr(raised.value, "other_errors")


def test_a_value_that_was_set_beside_a_message_that_cannot_cross_is_not_lost() -> None:
    taken: list[Any] = []

    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 1:
            self.fragment.middle.set_live("gain", 10)
        op_output.emit(self.ticks if self.ticks > 1 else lambda: 1, "out")

    def compose(app: Any) -> None:
        app.middle = Scale(app, name="middle", workers=1, on="processes", on_error="skip")
        app.add_flow(Step(app, CountCondition(app, 3), outputs=["out"], body=emit, name="first"), app.middle)
        app.add_flow(app.middle, sink(app, taken))

    run(compose)
    assert taken == [20, 30]


def test_a_killed_process_is_a_named_error() -> None:
    with pytest.raises(
        WorkerProcessError, match=r"'middle\[0\]': its process \d+ was ended by SIGKILL while it"
    ):
        through(Fragile, [13])


def test_an_error_in_start_is_raised_and_no_process_is_left() -> None:
    with pytest.raises(OSError, match="no such model"):
        through(Unwilling, [1], workers=2)
    assert multiprocessing.active_children() == []


def test_what_cannot_cross_is_refused() -> None:
    class Local(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None: ...

    with pytest.raises(
        GraphError, match="'middle' cannot run on processes: .* define the class or function at"
    ):
        through(Local, [1])
    with pytest.raises(GraphError, match="it was given the resource 'pool', which stays in this process"):
        through(lambda app, **options: Scale(app, CudaStreamPool(app, name="pool"), **options), [1])
    with pytest.raises(
        CrossingError, match=r"'middle\[0\]': a message of it, at 'value': .* cannot be pickled"
    ):
        through(square, [lambda: 1])


@pytest.mark.parametrize("on", ["threads", "processes"])
@pytest.mark.parametrize("stops", ["", "itself", "run "])
def test_a_run_is_the_same_on_threads_and_on_processes(
    on: str, stops: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[Any] = []
    wrong: list[Exception] = []

    def check(self: Any, op_input: Any, op_output: Any) -> None:
        taken.append(op_input.receive("in"))
        if len(taken) != 2:
            return
        try:
            self.fragment.middle.set_knob("nothing", 1)
        except ParameterError as error:
            wrong.append(error)

    def compose(app: Any) -> None:
        app.middle = Telling(app, name="middle", workers=2, on=on, stops=stops)
        app.middle.set_knob("level", 2)
        app.add_flow(source(app, range(1, 6), PeriodicCondition(app, "1s")), app.middle)
        app.add_flow(app.middle, Step(app, inputs=["in"], body=check, name="last"))

    handler = caplog.handler
    handler.addFilter(RunFields())
    app = App(compose)
    app.name = "telling"
    outcome = app.run()
    expected = [(number, (number - 1) * 10**9, "telling") for number in range(1, 6)]
    assert taken == (expected[:2] if stops.startswith("run") else expected)
    assert outcome.ended_by == ("stopped" if stops.startswith("run") else "finished")
    assert [str(error).partition(" has no knob")[0] for error in wrong][:1] == ["operator 'middle[0]'"]
    records: list[Any] = [each for each in caplog.records if each.name.startswith("headrace.operator.middle")]
    assert [each.getMessage() for each in records] == [
        f"at {n}" for n in range(1, 4 if stops.startswith("run") else 6)
    ]
    assert {(each.fragment, each.run) for each in records} == {("telling", app.run_id)}
    assert [each.operator for each in records[:3]] == ["middle[0]"] * 3
    if stops == "itself":
        assert [each.operator for each in records[3:]] == ["middle[1]"] * 2
    handler.setFormatter(logging.Formatter())
    assert all("KeyError: " in handler.format(each) for each in records)


def test_a_deadline_is_watched_from_here(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    told: list[Any] = []
    taken: list[Any] = []

    def on_stuck(stuck: Any) -> None:
        told.append(stuck.operator)
        path.write_text("released")

    class Watched(Application):
        def compose(self) -> None:
            middle = Stuck(self, name="middle", workers=1, on="processes", on_stuck=on_stuck)
            self.add_flow(source(self, [path]), middle)
            self.add_flow(middle, sink(self, taken))

    Watched().run()
    assert (told, taken) == (["middle[0]"], ["released"])


def test_the_process_of_a_run_that_is_given_up_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    class Waiting(Application):
        stop_timeout = "1ms"

        def compose(self) -> None:
            middle = Stuck(self, workers=1, on="processes", on_stuck=lambda _: self.stop_execution())
            self.add_flow(source(self, [tmp_path / "pipe"]), middle)

    with pytest.raises(StuckError):
        Waiting().run()
    wait_until(lambda: not multiprocessing.active_children(), "the end of its process")


def test_a_run_that_is_given_up_starts_no_further_process() -> None:
    is_over = threading.Event()
    senders: list[threading.Thread] = []

    class Slow(int):
        """Is sent to each process; while it is sent to the first one, the run is given up."""

        def __reduce__(self) -> Any:
            senders.append(threading.current_thread())
            app.stop_execution()
            assert is_over.wait(PATIENCE)
            return int, (2,)

    class Starting(Application):
        stop_timeout = "1ms"

        def compose(self) -> None:
            middle = Scale(self, gain=Slow(2), workers=2, on="processes", name="middle")
            self.add_flow(source(self, [1]), middle)

    app = Starting()
    with pytest.raises(StuckError):
        app.run()
    is_over.set()
    senders[0].join(PATIENCE)
    assert len(senders) == 1
    assert not multiprocessing.active_children()


def test_a_process_that_is_frozen_is_ended_and_another_one_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_replica, "_SILENT", 1)
    struck = str(tmp_path / "struck")
    make = partial(Freezing, struck=struck)
    with pytest.raises(
        WorkerProcessError, match=r"'middle\[0\]': its process \d+ has given no sign of life for 1 s"
    ):
        through(make, [1])
    os.remove(struck)
    assert through(make, [1, 2], on_error={"restart": 1})[-1:] == [2]


def test_a_process_that_is_frozen_and_takes_no_message_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_replica, "_SILENT", 1)
    app = Fed()
    with pytest.raises(WorkerProcessError, match="has given no sign of life"), app.running():
        app.feed("frames").put(1)
        os.kill(next(app.results("results"))[0], signal.SIGSTOP)
        app.feed("frames").put(np.zeros(1 << 23, np.uint8))  # more than a socket takes
        app.feed("frames").close()


class Fed(Application):
    """Sends what it is fed through an operator on a process."""

    def compose(self) -> None:
        frames = FeedOp(self, name="frames")
        middle = where(self, name="middle", workers=1, on="processes")
        self.add_flow(frames, middle)
        self.add_flow(middle, ResultsOp(self, name="results"))


PROGRAM = """
import os
from headrace import Application, op

@op
def numbers():
    while True:
        yield 1

@op
def tell(value):
    os.write(1, f"{os.getpid()}\\n".encode())  # one write: the other process writes to the same pipe
    STUCK

class App(Application):
    def compose(self):
        self.add_flow(numbers(self), tell(self, workers=2, on="processes"))

if __name__ == "__main__":
    App().run()
"""


@pytest.mark.parametrize(
    ("number", "stuck"),
    [
        (signal.SIGTERM, ""),
        (signal.SIGKILL, "__import__('threading').Event().wait()"),
        (signal.SIGTERM, "os.kill(os.getpid(), 19)"),  # SIGSTOP
        (signal.SIGKILL, "os.kill(os.getpid(), 19)"),
    ],
)
def test_no_process_outlives_the_program(number: signal.Signals, stuck: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("STUCK", stuck))
    done = signal_python(number, program)
    assert done.returncode in (-number, 128 + number), done.stderr
    for line in set(done.stdout.split()):
        wait_until(partial(_has_ended, int(line)), f"the end of process {line}")


def test_a_program_may_end_beside_its_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    stuck = "__import__('threading').Event().wait()"
    wait = "while 'tell[0]' not in app.progress().computing: __import__('time').sleep(0.001)"
    end = f"app = App(); app.run_async()\n    {wait}"
    program.write_text(PROGRAM.replace("STUCK", stuck).replace("App().run()", end))
    done = run_python(program)
    assert done.returncode == 0, done.stderr


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
