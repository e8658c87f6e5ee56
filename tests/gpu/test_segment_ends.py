"""The ends of runs with captured segments: stops, interrupts and errors, in every state of a segment."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.core import EndedBy
from tests.gpu.bench import Bench
from tests.gpu.segment_programs import (
    COUNT,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    both,
    chain,
    count_up,
    launch,
    run_with,
)
from tests.harness import App, MakeScheduler, event_based, greedy

pytestmark = pytest.mark.usefixtures("of_this_process")


@pytest.mark.parametrize("frame", range(2, 7))
def test_an_operator_that_stops_itself(frame: int) -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data, number = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            launch(stream, affine, data, data, COUNT, 2, 1)
            if number:
                self.stop_execution()
            op_output.emit(data, "out")

        member, last = Work(app, body=body, name="member"), Stage(app, name="last")
        source = Source(app, make=lambda data, number: (data, number == frame), name="source")
        chain(app, source, member, last, Sink(app, name="sink"))
        app.capture(member, last)

    ran = both(compose)
    assert len(ran.seen["sink"]) == frame + 1


@pytest.mark.parametrize("where", ["start", "compute", "stop"])
@pytest.mark.parametrize("scheduler", [greedy, event_based])
def test_an_error_of_a_member_names_it(where: str, scheduler: MakeScheduler) -> None:
    class Faulty(Stage):
        capturable = True

        def start(self) -> None:
            if where == "start":
                raise ValueError("faulty")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if where == "compute":
                raise ValueError("faulty")
            super().compute(op_input, op_output, context)

        def stop(self) -> None:
            if where == "stop":
                raise ValueError("faulty")

    def compose(app: Any) -> None:
        first, faulty = Stage(app, name="first"), Faulty(app, name="faulty")
        chain(app, Source(app, name="source"), first, faulty, Sink(app, name="sink"))
        app.capture(first, faulty, name="segment")

    with pytest.raises(ValueError, match="faulty") as raised:
        run_with(compose, scheduler=scheduler)
    assert raised.value.__notes__[0] == f"raised in {where} of operator 'faulty' (Faulty)"


def test_an_error_that_comes_late_in_compute_names_the_operator() -> None:
    """Frames of another shape run as without capture, and fail as without."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        if frame.shape[0] > COUNT:
            raise ValueError("too large")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 1)
        op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        member, last = Work(app, body=body, name="member"), Stage(app, name="last")
        chain(
            app, Source(app, counts=[COUNT] * 9 + [99], name="source"), member, last, Sink(app, name="sink")
        )
        app.capture(member, last)

    app = App(compose, greedy)
    with pytest.raises(ValueError, match="too large") as raised:
        app.run()
    assert raised.value.__notes__[0] == "raised in compute of operator 'member' (Work)"
    assert app.segments[0].replayed == 8
    assert app.outcome.ended_by is EndedBy.FAILED


def test_an_error_while_recording_and_in_the_ordinary_run_is_that_error() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, number = op_input.receive("in")
        if number:
            raise ValueError("this frame")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 1)
        op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        member = Work(app, body=body, name="member")
        source = Source(app, make=lambda data, number: (data, number >= 7), name="source")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member, warmup=1)

    with pytest.raises(ValueError, match="this frame"):
        run_with(compose)


def test_a_device_error_in_a_replay_ends_the_run(bench: Bench) -> None:
    if not bench.is_simulated:
        pytest.skip("a faulting kernel ends the process's use of a real device")
    from headrace.gpu import sim

    faults = threading.Event()

    def effect(out: np.ndarray, source: np.ndarray) -> None:
        if faults.is_set():
            raise ZeroDivisionError("in a kernel")
        out.view(np.int32)[:] = source.view(np.int32) * 2

    kernel = sim.Kernel("faulty", 1e-5, effect)

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel, result, frame)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        def control(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == 10:
                faults.set()
            self.number += 1
            op_output.emit(op_input.receive("in"), "out")

        controls, member = Work(app, body=control, name="control"), Work(app, body=body, name="member")
        controls.number = 0
        chain(app, Source(app, frames=40, name="source"), controls, member, Sink(app, name="sink"))
        app.segment = app.capture(member)

    app = App(compose, greedy)
    with pytest.raises(gpu.CUDAError, match="LAUNCH_FAILED"):
        app.run()
    assert app.segment.replayed >= 5
    assert app.outcome.ended_by is EndedBy.FAILED


class Flushing(Stage):
    """A stage whose end emits two more frames."""

    capturable = True

    def end(self, op_input: Any, op_output: Any, context: Any) -> Any:
        for number in range(2):
            stream = context.allocate_cuda_stream()
            result = self.new(stream)
            launch(stream, count_up, result, COUNT, 7 * number)
            op_output.set_cuda_stream(stream, "out")
            op_output.emit(result, "out")
            yield


@pytest.mark.parametrize("scheduler", [greedy, event_based])
@pytest.mark.parametrize("place", range(3))
def test_the_end_of_a_captured_operator_passes_the_others_of_its_segment(
    scheduler: MakeScheduler, place: int
) -> None:
    def compose(app: Any) -> None:
        stages = [
            (Flushing if number == place else Stage)(app, name=f"stage {number}") for number in range(3)
        ]
        chain(app, Source(app, name="source", frames=12), *stages, Sink(app, name="sink"))
        app.capture(*stages)

    ran = both(compose, scheduler=scheduler)
    assert ran.app.outcome.ended_by is EndedBy.FINISHED
    assert len(ran.seen["sink"]) == 14
    assert ran.segment.replayed > 0
    assert ran.app.outcome.operators[f"stage {place}"].computes == 12
