"""Measure what knobs cost a captured segment: unchanged, and with a new value for every frame.

    python -m benchmarks.knobs [--save]        needs a GPU and CuPy

A chain of five stages, each of which multiplies 4,096 floats by a knob, is captured and replayed. The forms differ
in the number of knobs that another operator sets before each frame.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any

import cupy
import numpy as np

from benchmarks.captured_chain import FRAMES, ROUNDS, SIZE, WARM_UP, Sink, Source, Stage, times
from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, Operator
from headrace.resources import CudaStreamPool

LENGTH = 5


class Scale(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.buffer = cupy.zeros(SIZE, cupy.float32)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        gain = context.knob("gain", np.float32, 1)
        with op_input.receive_cuda_stream("in").cupy():
            cupy.multiply(data, cupy.asarray(gain), out=self.buffer)
        op_output.emit(self.buffer, "out")


class Control(Source):
    """Sets the knobs of the first stages before it sends a frame."""

    changed = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        for operator in self.fragment.stages[: self.changed]:
            operator.set_knob("gain", 0.5 + self.sent)
        super().compute(op_input, op_output, context)


class Chain(Application):
    def __init__(self, kind: type[Operator], changed: int) -> None:
        super().__init__([])
        self.kind, self.changed = kind, changed

    def compose(self) -> None:
        pool = CudaStreamPool(self, stream_flags=1)
        source = Control(self, CountCondition(self, WARM_UP + FRAMES), pool, name="source")
        source.changed = self.changed
        self.stages = [self.kind(self, pool, name=f"stage{k}") for k in range(LENGTH)]
        sink = Sink(self, pool, name="sink")
        for one, other in itertools.pairwise([source, *self.stages, sink]):
            self.add_flow(one, other)
        self.segment = self.capture(*self.stages)


def measured(kind: type[Operator], changed: int) -> float:
    """Return the microseconds of a frame."""
    times.clear()
    app = Chain(kind, changed)
    app.run()
    if app.segment.replayed < FRAMES:
        raise RuntimeError(app.segment.report())
    return (times[1] - times[0]) * 1e6 / FRAMES


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what knobs cost a captured segment.")
    parser.add_argument("--save", action="store_true", help="write the report to benchmarks/results")
    parser.parse_args()
    forms: dict[str, tuple[type[Operator], int]] = {
        "no knobs": (Stage, 0),
        "five knobs, unchanged": (Scale, 0),
        "five knobs, one changed for each frame": (Scale, 1),
        "five knobs, all changed for each frame": (Scale, 5),
    }
    best = dict.fromkeys(forms, 1e9)
    for _ in range(ROUNDS):  # in turn, because the speed of the machine varies
        for name, form in forms.items():
            best[name] = min(best[name], measured(*form))
    least = best["no knobs"]
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Knobs of a captured segment",
        "",
        circumstances(device),
        "",
        (
            f"µs per frame of {LENGTH} stages over {FRAMES} frames, best of {ROUNDS} rounds in turn. `python -m "
            "benchmarks.knobs`."
        ),
        "",
        table(
            ["", "µs a frame", "more than without"],
            [[name, f"{cost:.1f}", f"{cost - least:.1f}"] for name, cost in best.items()],
        ),
    ]
    publish("knobs", "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
