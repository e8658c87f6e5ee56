"""A random program in parts, for `benchmarks.parts_soak`: every process of a run executes it.

    parts_program.py KIND SEED FOLDER

Each stage writes to the folder what it has emitted and received, and its process; the process that called `run`
writes the outcome.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks import parts_graphs as plans
from benchmarks.parts_graphs import EndingStage, Plan, Stage, looped, orderly, unruly
from headrace import gpu
from headrace.core import MetadataPolicy
from headrace.tensor.copies import copy, simulated_memory, upload
from tests.harness import event_based, greedy, multi_thread

SCHEDULERS = [greedy, multi_thread, *(partial(event_based, workers=workers) for workers in (2, 3, 5))]
PARTS = 3
SLOW = gpu.kernel("slow", source="", seconds=2e-4)


KINDS = ("orderly", "looped", "frozen", "killed", "unruly", "faulty")
PACE = 0.004  # seconds of a compute in a program whose processes get signals


def plan_of(kind: str, seed: int) -> tuple[Plan, list[int], Any, str]:
    """Return a plan, the part of each of its stages, a scheduler, and the form of its messages."""
    random = Random(f"{kind} {seed}")
    if kind in ("unruly", "faulty"):
        plan = unruly(random, kind == "faulty")
    else:
        plan = orderly(random) if kind == "orderly" else looped(random)
    for stage in plan.stages:
        stage.asks_for_room = False  # in a queue that drops, which is refused between parts
    places = plans.places_of(plan, random, PARTS)
    return plan, places, SCHEDULERS[seed % len(SCHEDULERS)], random.choice(["tuple", "array", "device"])


def policies_of(kind: str, seed: int) -> list[str]:
    """Return what becomes of the run if each part is lost."""
    if kind != "killed":
        return ["stop"] * PARTS
    return Random(f"policies {seed}").choices(("restart", "go_on", "stop"), weights=(3, 2, 1), k=PARTS)


class Emitting:
    """An output whose messages have metadata: tuples, arrays, or tensors that the device has yet to fill."""

    def __init__(self, output: Any, stage: Stage, stream: gpu.StreamHandle | None) -> None:
        self._output, self._stage, self._stream = output, stage, stream

    def emit(self, message: tuple[int, int], port: str) -> None:
        origin, number = message
        self._stage.metadata[f"s{origin}"] = number
        frame: Any = message
        if FORM != "tuple":
            frame = np.full(1 + 700 * (number % 3), 1000 * origin + number, np.int32)
        if self._stream is not None:
            tensor = upload(np.zeros_like(frame), self._stream)
            gpu.launch(self._stream.stream, gpu.LaunchConfig(grid=1, block=32), SLOW.on(gpu.Device(0)))
            copy(tensor, frame, self._stream)
            frame = tensor
        self._output.emit(frame, port, acq_timestamp=number)


class Receiving:
    """An input that compares every element of what it receives, its time and its metadata."""

    def __init__(self, source: Any, stage: Stage) -> None:
        self._input, self._stage = source, stage

    def receive(self, port: str) -> Any:
        taken = self._input.receive(port)
        if taken is None:
            return None
        if FORM == "device":
            stream = self._input.receive_cuda_stream(port)
            if stream is not None:
                stream.stream.sync()
        if self._stage.spec.inputs[port].gives_tuple:
            return tuple(map(self._open, taken))
        found = self._open(taken)
        if self._input.get_acquisition_timestamp(port) != found[1]:
            raise AssertionError(
                f"message {found} has the time {self._input.get_acquisition_timestamp(port)}"
            )
        declared = self._stage.stage.inputs
        if len(declared) == 1 and self._stage.metadata.get(f"s{found[0]}") != found[1]:
            raise AssertionError(f"message {found} has the metadata {dict(self._stage.metadata)}")
        return found

    def _open(self, frame: Any) -> Any:
        if frame is None or FORM == "tuple":
            return frame
        values = simulated_memory(frame) if FORM == "device" else np.asarray(frame)
        origin, number = divmod(int(values[0]), 1000)
        if not (values == values[0]).all() or len(values) != 1 + 700 * (number % 3):
            raise AssertionError(f"frame {number} of stage {origin} has other elements than were sent")
        return origin, number


class WrittenStage(Stage):
    """A stage that writes what it has seen to a file when it stops."""

    def start(self) -> None:
        """Note the process."""
        Path(FOLDER, f"{self.number}.started").touch()
        Path(FOLDER, f"p{PLACES[self.number]}.{os.getpid()}").touch()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let the messages travel in their form."""
        if KIND in ("frozen", "killed"):
            time.sleep(PACE)
        super().compute(Receiving(op_input, self), self._emitting(op_output, context), context)

    def _emitting(self, op_output: Any, context: Any) -> Emitting:
        stream = None
        if FORM == "device":
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
        return Emitting(op_output, self, stream)

    def stop(self) -> None:
        """Write what was emitted and received."""
        for thread in self.outside:
            thread.join()
        seen = {"emitted": self.emitted, "received": self.received, "overlapped": self.overlapped}
        Path(FOLDER, f"{self.number}.json").write_text(json.dumps(seen))


class WrittenEnd(WrittenStage, EndingStage):
    """A stage that also emits one more message when it ends."""

    def end(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let the last message travel in its form."""
        super().end(op_input, self._emitting(op_output, context), context)


def make_stage(fragment: Any, number: int, plan: Plan) -> Stage:
    """Return a stage that writes what it has seen."""
    return (WrittenEnd if plan.stages[number].says_end else WrittenStage)(fragment, number, plan)


if __name__ == "__main__":
    KIND, SEED, FOLDER = sys.argv[1:]
    PLAN, PLACES, SCHEDULER, FORM = plan_of(KIND, int(SEED))
    plans.make_stage = make_stage
    app = plans.PlanApp(PLAN, PLACES, SCHEDULER, policies_of(KIND, int(SEED)))
    app.metadata_policy = MetadataPolicy.UPDATE
    try:
        app.run()
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    else:
        raised = ""
    outcome = app.outcome
    assert outcome is not None, raised
    summary = {
        "ended by": str(outcome.ended_by),
        "raised": raised,
        "dropped": outcome.dropped,
        "undelivered": outcome.undelivered,
        "lost": outcome.lost,
        "repeated": outcome.repeated,
        "starved": sorted(each.operator for each in outcome.starved),
    }
    Path(FOLDER, "outcome.json").write_text(json.dumps(summary))
