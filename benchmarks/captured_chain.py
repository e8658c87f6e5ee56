"""A chain of CuPy operators as a captured segment, and the least that a replayed frame needs, by hand.

Each stage is one kernel that adds one to 4,096 floats. So the time is the cost of the system around it. In both
forms a frame comes with an event to wait for, and ends with one that is recorded.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import cupy

from headrace import Application, CountCondition, Operator, gpu
from headrace.resources import CudaStreamPool

FRAMES, SIZE, WARM_UP, BUFFERS = 5_000, 4_096, 300, 4

times: list[float] = []
answers: list[float] = []  # an element of the last frame of each run


def by_hand_graph(length: int) -> float:
    """Return the microseconds of wait, copy in, launch and record: the least that a replayed frame needs."""
    device = gpu.Device(0)
    device.set_current()
    stream = device.create_stream(options=gpu.StreamOptions(nonblocking=True))
    handle = gpu.StreamHandle(stream)
    buffers = [cupy.zeros(SIZE, cupy.float32) for _ in range(length + 1)]
    frames = [cupy.zeros(SIZE, cupy.float32) for _ in range(BUFFERS)]
    with handle.cupy():
        cupy.add(buffers[0], 1, out=buffers[1])
    stream.sync()
    builder = stream.create_graph_builder()
    builder.begin_building("relaxed")
    with handle.cupy():
        for k in range(length):
            cupy.add(buffers[k], 1, out=buffers[k + 1])
    graph = builder.end_building().complete()
    event = device.create_event()
    stream.record(event)
    named: Any = gpu.Buffer
    inside = named.from_handle(buffers[0].data.ptr, 4 * SIZE, owner=buffers[0])
    outside = itertools.cycle([named.from_handle(f.data.ptr, 4 * SIZE, owner=f) for f in frames])
    for count in (WARM_UP, FRAMES):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(count):
            stream.wait(event)
            inside.copy_from(next(outside), stream=stream)
            graph.launch(stream)
            stream.record(event)
        cupy.cuda.Device().synchronize()
    cost = (time.perf_counter() - start) * 1e6 / FRAMES
    answers.append(float(buffers[-1][0]))
    return cost


class Source(Operator):
    """Sends buffers in turn, which nobody changes, each with an event, and launches nothing."""

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.buffers = itertools.cycle([cupy.zeros(SIZE, cupy.float32) for _ in range(BUFFERS)])
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.sent == WARM_UP:
            times.append(time.perf_counter())
        self.sent += 1
        op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
        op_output.emit(next(self.buffers), "out", constant=True)


class Stage(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        with op_input.receive_cuda_stream("in").cupy():
            result = data + 1
        op_output.emit(result, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.left = WARM_UP + FRAMES

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        self.left -= 1
        if not self.left:
            self.frame = frame

    def stop(self) -> None:
        times.append(time.perf_counter())  # the device is done by now
        answers.append(float(self.frame[0]))


class Chain(Application):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def compose(self) -> None:
        pool = CudaStreamPool(self, stream_flags=1)  # non-blocking, as by hand
        source = Source(self, CountCondition(self, WARM_UP + FRAMES), pool, name="source")
        stages = [Stage(self, pool, name=f"stage{k}") for k in range(self.length)]
        sink = Sink(self, pool, name="sink")
        for one, other in itertools.pairwise([source, *stages, sink]):
            self.add_flow(one, other)
        self.segment = self.capture(*stages)


def with_headrace(length: int) -> float:
    """Return the microseconds of a frame."""
    times.clear()
    app = Chain(length)
    app.run()
    if app.segment.replayed < FRAMES:
        raise RuntimeError(app.segment.report())
    return (times[1] - times[0]) * 1e6 / FRAMES
