"""A random program in parts, for `benchmarks.parts_soak`: every process of a run executes it.

    parts_program.py KIND SEED FOLDER

Each stage writes to the folder what it has emitted and received; the process that called `run` writes the outcome.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from headrace import gpu
from headrace.tensor.copies import copy, simulated_memory, upload
from tests.harness import event_based, greedy, multi_thread
from tests.parts import plans
from tests.random_programs.graphs import Plan, Stage, orderly, unruly

SCHEDULERS = [greedy, multi_thread, *(partial(event_based, workers=workers) for workers in (2, 3, 5))]
PARTS = 3
SLOW = gpu.kernel("slow", source="", seconds=2e-4)


def plan_of(kind: str, seed: int) -> tuple[Plan, list[int], Any, str]:
    """Return a plan, the part of each of its stages, a scheduler, and the form of its messages."""
    random = Random(f"{kind} {seed}")
    plan = orderly(random) if kind == "orderly" else unruly(random, kind == "faulty")
    for stage in plan.stages:
        stage.asks_for_room = False  # in a queue that drops, which is refused between parts
    places = plans.places_of(plan, random, PARTS)
    return plan, places, SCHEDULERS[seed % len(SCHEDULERS)], random.choice(["tuple", "array", "device"])


class Emitting:
    """An output whose messages are arrays, or tensors that the device has yet to fill."""

    def __init__(self, output: Any, stream: gpu.StreamHandle | None) -> None:
        self._output, self._stream = output, stream

    def emit(self, message: tuple[int, int], port: str) -> None:
        origin, number = message
        frame: Any = np.full(1 + 700 * (number % 3), 1000 * origin + number, np.int32)
        if self._stream is not None:
            tensor = upload(np.zeros_like(frame), self._stream)
            gpu.launch(self._stream.stream, gpu.LaunchConfig(grid=1, block=32), SLOW.on(gpu.Device(0)))
            copy(tensor, frame, self._stream)
            frame = tensor
        self._output.emit(frame, port, acq_timestamp=number)


class Receiving:
    """An input that compares every element of what it receives."""

    def __init__(self, source: Any, is_on_device: bool) -> None:
        self._input, self._is_on_device = source, is_on_device

    def receive(self, port: str) -> Any:
        taken = self._input.receive(port)
        if taken is None:
            return None
        if self._is_on_device:
            stream = self._input.receive_cuda_stream(port)
            if stream is not None:
                stream.stream.sync()
        return tuple(map(self._open, taken)) if isinstance(taken, tuple) else self._open(taken)

    def _open(self, frame: Any) -> Any:
        if frame is None:
            return None
        values = simulated_memory(frame) if self._is_on_device else np.asarray(frame)
        origin, number = divmod(int(values[0]), 1000)
        if not (values == values[0]).all() or len(values) != 1 + 700 * (number % 3):
            raise AssertionError(f"frame {number} of stage {origin} has other elements than were sent")
        return origin, number


class WrittenStage(Stage):
    """A stage that writes what it has seen to a file when it stops."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let the messages travel in their form."""
        if FORM != "tuple":
            stream = None
            if FORM == "device":
                stream = context.allocate_cuda_stream("own")
                op_output.set_cuda_stream(stream, "out")
            op_input, op_output = Receiving(op_input, FORM == "device"), Emitting(op_output, stream)
        super().compute(op_input, op_output, context)

    def stop(self) -> None:
        """Write what was emitted and received."""
        for thread in self.outside:
            thread.join()
        seen = {"emitted": self.emitted, "received": self.received, "overlapped": self.overlapped}
        Path(FOLDER, f"{self.number}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    KIND, SEED, FOLDER = sys.argv[1:]
    PLAN, PLACES, SCHEDULER, FORM = plan_of(KIND, int(SEED))
    plans.Stage = WrittenStage  # type: ignore[misc]
    app = plans.PlanApp(PLAN, PLACES, SCHEDULER)
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
        "starved": sorted(each.operator for each in outcome.starved),
    }
    Path(FOLDER, "outcome.json").write_text(json.dumps(summary))
