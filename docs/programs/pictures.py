"""A camera and a reader on a simulated GPU: what the pages about streams use."""

from __future__ import annotations

import numpy as np

from headrace import Application, CountCondition, Operator, gpu
from headrace.gpu import sim

xp = gpu.arrays()
MS = 1e-3


def launch(stream, seconds, effect, *frames):
    sim.launch(
        stream.stream, sim.LaunchConfig(grid=64, block=256), sim.Kernel("work", seconds, effect), *frames
    )


class Camera(Operator):
    def setup(self, spec):
        spec.output("out")

    def start(self):
        self.number = 0

    def compute(self, op_input, op_output, context):
        self.number += 1
        frame = xp.empty(1, dtype=xp.int64)
        launch(gpu.current_stream(), 2 * MS, lambda out, n=self.number: out.view(np.int64).fill(n), frame)
        op_output.emit(frame, "out")


class Reader(Operator):
    def setup(self, spec):
        spec.input("in")

    def start(self):
        self.seen = []

    def stream(self, op_input, context):
        return op_input.receive_cuda_stream("in")

    def compute(self, op_input, op_output, context):
        frame = op_input.receive("in")
        stream = self.stream(op_input, context)
        launch(stream, 1 * MS, lambda data: self.seen.append(int(data.view(np.int64)[0])), frame)


class Pictures(Application):
    def __init__(self, reader=Reader, frames=5):
        super().__init__()
        self.reader, self.frames = reader, frames

    def compose(self):
        self.end = self.reader(self, name="reader")
        self.add_flow(Camera(self, CountCondition(self, self.frames), name="camera"), self.end)


def run(app):
    """Run on a simulated H200; return the milliseconds of its time that passed."""
    with sim.Machine("h200") as machine:
        app.run()
        return round(machine.now * 1000)
