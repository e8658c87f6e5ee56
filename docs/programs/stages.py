"""A camera, stages and a reader on a simulated GPU: what the page about captured segments uses."""

from __future__ import annotations

import numpy as np

from headrace import Application, CountCondition, Operator, UnboundedAllocator, declared, gpu
from headrace.gpu import sim

SIZE = 1024


def _affine(out, frame, times, plus):
    out.view(np.float32)[:] = frame.view(np.float32) * times + plus


# The source would be CUDA; the simulated device needs the time that a block takes, and what it does.
affine = gpu.kernel("affine", source="out[i] = frame[i] * times + plus;", seconds=5e-6, effect=_affine)


def launch(stream, out, frame, times, plus, kernel=affine):
    """Launch ``out = times * frame + plus`` on a stream."""
    config = gpu.LaunchConfig(grid=SIZE // 256, block=256)
    gpu.launch(
        stream.stream, config, kernel.on(stream.device), out, frame, np.float32(times), np.float32(plus)
    )


@declared
class Camera(Operator):
    """Emits frames of 0, 1, 2, ..."""

    memory: UnboundedAllocator

    def setup(self, spec):
        spec.output("out")

    def start(self):
        self.number = 0

    def compute(self, op_input, op_output, context):
        stream = context.allocate_cuda_stream("camera")
        op_output.set_cuda_stream(stream, "out")
        frame = self.memory.allocate_tensor((SIZE,), "float32", "device", stream=stream)
        launch(stream, frame, frame, 0, self.number)
        op_output.emit(frame, "out")
        self.number += 1


@declared
class Stage(Operator):
    """Emits ``times * frame + plus``."""

    memory: UnboundedAllocator
    times: float = 1.0
    plus: float = 0.0

    capturable = True

    def setup(self, spec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.memory.allocate_tensor(frame.shape, "float32", "device", stream=stream)
        launch(stream, result, frame, self.times, self.plus)
        op_output.emit(result, "out")


class Reader(Operator):
    """Keeps the first element of each frame in `seen`."""

    capturable = "it keeps what it reads on the host"

    def setup(self, spec):
        spec.input("in")

    def start(self):
        self.seen = []

    def compute(self, op_input, op_output, context):
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        read = sim.Kernel("read", 1e-6, lambda data: self.seen.append(float(data.view(np.float32)[0])))
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), read, frame)


class Chain(Application):
    """A camera, a stage, an operator of the page, and a reader; the two in the middle are a segment."""

    def __init__(self, kind, count=40, camera=Camera, **parameters):
        super().__init__()
        self.kind, self.count, self.camera, self.parameters = kind, count, camera, parameters

    def compose(self):
        memory = UnboundedAllocator(self)
        camera = self.camera(self, CountCondition(self, self.count), memory=memory, name="camera")
        first = Stage(self, memory=memory, name="first", plus=1.0)
        self.second = self.kind(self, memory=memory, name="second", **self.parameters)
        self.reader = Reader(self, name="reader")
        self.add_flow(camera, first)
        self.add_flow(first, self.second)
        self.add_flow(self.second, self.reader)
        self.segment = self.capture(first, self.second, name="enhance")
