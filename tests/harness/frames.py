"""Operators whose frames are right only if streams are ordered and buffers stay alive.

Frames are arrays on the simulated device. Their memory is freed when the last reference goes, and given out again
at once to the stream they were allocated on. A kernel has its effect when it ends, a millisecond after it began, so
a wait that is missing or an array that is let go too early shows as a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import gpu
from headrace.core import Operator
from headrace.gpu import sim

MS = 1e-3
FRAME_BYTES = 512
"""The memory of a frame: the smallest block of the pool."""


def launch(handle: Any, seconds: float, effect: Callable[..., object], *args: Any, grid: int = 1) -> None:
    """Run a simulated kernel on a stream."""
    sim.launch(handle.stream, sim.LaunchConfig(grid=grid, block=256), sim.Kernel("k", seconds, effect), *args)


def write(target: np.ndarray, value: int) -> None:
    """Write a number to the memory of a frame."""
    target.view(np.int64)[0] = value


def write_frame(handle: Any, seconds: float, data: Any, number: int) -> None:
    """Fill a frame with a number on a stream, which takes a while."""
    launch(handle, seconds, lambda out: write(out, number), data)


def read_frame(handle: Any, seconds: float, data: Any, seen: list[int]) -> None:
    """Read the number in a frame on a stream, after a while, and append it to what was seen."""
    launch(handle, seconds, lambda source: seen.append(int(source.view(np.int64)[0])), data)


def frame(handle: Any) -> Any:
    """Return a frame, an array of one number whose memory a stream may use."""
    with gpu.use_stream(handle):
        return gpu.arrays().empty(1, np.int64)


class Producer(Operator):
    """Fills a fresh frame with its number, slowly, on its own stream."""

    seconds = MS

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        data = frame(stream)
        write_frame(stream, self.seconds, data, self.number)
        op_output.emit(data, "out")
        self.number += 1


class Consumer(Operator):
    """Reads what it received a while later, on its own stream, and drops it."""

    seconds = MS
    order = True  # whether it orders itself after what it received

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in") if self.order else context.allocate_cuda_stream("own")
        read_frame(stream, self.seconds, data, self.seen)


class Doubler(Operator):
    """Writes twice what it received to a fresh frame, on its own stream."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = frame(stream)

        def double(target: np.ndarray, source: np.ndarray) -> None:
            write(target, 2 * int(source.view(np.int64)[0]))

        launch(stream, MS, double, result, data)
        op_output.emit(result, "out")
