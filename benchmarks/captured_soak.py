"""Replay a captured segment a million times with late readers, and count wrong frames.

    python -m benchmarks.captured_soak [--frames N] [--save]        needs a GPU and CuPy

The source writes the number of the frame into every element. Five captured operators add one each. The sink keeps
frames for a while, a different one for each, and then compares every element on the device.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from typing import Any

import cupy
import numpy as np

from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, EventBasedScheduler, Operator, gpu

SIZE, STAGES, HELD = 4_096, 5, 6

write = gpu.kernel(
    "write",
    source=r"""
extern "C" __global__ void write(float* to, float value, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) to[i] = value;
}
""",
    seconds=1e-6,
)
check = gpu.kernel(
    "check",
    source=r"""
extern "C" __global__ void check(const float* data, float value, int size, int* wrong) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size && data[i] != value) atomicAdd(wrong, 1);
}
""",
    seconds=1e-6,
)
CONFIG = gpu.LaunchConfig(grid=(SIZE + 255) // 256, block=256)
COUNT = np.int32(SIZE)


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.sent = 0
        self.write = write.on(gpu.Device())

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        with stream.cupy():
            frame = cupy.empty(SIZE, cupy.float32)
        value = np.float32(self.sent % 1_000_000)
        gpu.launch(stream.stream, CONFIG, self.write, frame.data.ptr, value, COUNT)
        op_output.emit(frame, "out", acq_timestamp=self.sent)
        self.sent += 1


class AddOne(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        with op_input.receive_cuda_stream("in").cupy():
            op_output.emit(data + cupy.float32(1), "out")


class Sink(Operator):
    """Reads each frame up to six frames late."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.check = check.on(gpu.Device())
        self.wrong = cupy.zeros(1, cupy.int32)
        self.held: list[tuple[int, Any]] = []
        self.random = random.Random(1)
        self.seen = self.out_of_order = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        self.stream = op_input.receive_cuda_stream("in")
        number = op_input.get_acquisition_timestamp("in")
        self.out_of_order += number != self.seen
        self.seen += 1
        self.held.append((number, data))
        while len(self.held) > HELD or (self.held and self.random.random() < 0.5):
            self.look(self.random.randrange(len(self.held)))

    def look(self, position: int) -> None:
        number, data = self.held.pop(position)
        value = np.float32(number % 1_000_000 + STAGES)
        gpu.launch(self.stream.stream, CONFIG, self.check, data.data.ptr, value, COUNT, self.wrong.data.ptr)

    def stop(self) -> None:
        while self.held:
            self.look(0)
        cupy.cuda.Device().synchronize()
        self.wrong_elements = int(self.wrong.get()[0])


class Soak(Application):
    def __init__(self, frames: int, workers: int) -> None:
        super().__init__()
        self.frames, self.workers = frames, workers

    def compose(self) -> None:
        if self.workers:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=self.workers))
        source = Source(self, CountCondition(self, self.frames), name="source")
        stages = [AddOne(self, name=f"stage{k}") for k in range(STAGES)]
        self.sink = Sink(self, name="sink")
        for one, other in itertools.pairwise([source, *stages, self.sink]):
            self.add_flow(one, other)
        self.segment = self.capture(*stages)


def used() -> int:
    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free)


def soak(frames: int, workers: int) -> list[Any]:
    warm = Soak(2_000, workers)
    warm.run()
    before = used()
    app = Soak(frames, workers)
    began = time.perf_counter()
    app.run()
    seconds = time.perf_counter() - began
    grown = used() - before
    segment, sink = app.segment, app.sink
    bad = sink.wrong_elements or sink.out_of_order or sink.seen != frames or segment.state != "captured"
    name = f"{workers} workers" if workers else "greedy"
    row = [name, frames, segment.replayed, sink.wrong_elements, sink.out_of_order, f"{grown / 2**20:+.1f}"]
    return [*row, f"{seconds * 1e6 / frames:.1f}", bool(bad)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay a captured segment with late readers.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--save", action="store_true", help="write the report to benchmarks/results")
    arguments = parser.parse_args()
    few = max(arguments.frames // 10, 1_000)
    found: list[list[Any]] = []
    for frames, workers in ((arguments.frames, 0), (few, 2)):
        found.append(soak(frames, workers))
        print(*found[-1][:-1], sep="  ", file=sys.stderr)
    header = ["", "frames", "replayed", "wrong elements", "out of order", "MiB more at the end", "µs a frame"]
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Replays with late readers",
        "",
        circumstances(device),
        "",
        (
            f"Frames of {SIZE} floats through {STAGES} captured operators; each is read up to {HELD} frames late. "
            "`python -m benchmarks.captured_soak`."
        ),
        "",
        table(header, [row[:-1] for row in found]),
    ]
    publish("captured_soak", "\n".join(text))
    return any(row[-1] for row in found)


if __name__ == "__main__":
    sys.exit(main())
