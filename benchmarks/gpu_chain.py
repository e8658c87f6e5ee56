"""A chain of five operators with a CuPy kernel each: plain operators of headrace, and the same written by hand.

The version by hand has a stream for each stage, records an event after each kernel and waits for it before the
next. The kernel adds one to 4,096 floats. Every frame is a fresh array, since one that is used again would change
under its reader. By hand, a frame is kept in a list until its last reader is done: without that, CuPy gives its
memory to the next frame while the reader's stream has not passed it. The operators have CuPy's code and nothing
else: headrace makes their stream current.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import cupy

from headrace import Application, CountCondition, GreedyScheduler, Operator

LENGTH, FRAMES, SIZE = 5, 3_000, 4_096
KEPT = 8  # frames under way, by hand
WARM_UP = 200  # frames that do not count
times: list[float] = []
answers: list[float] = []  # an element of the last frame of each run


def by_hand() -> float:
    """Return the microseconds per stage."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(LENGTH)]
    events = [cupy.cuda.Event(disable_timing=True) for _ in range(LENGTH)]
    zeros = cupy.zeros(SIZE, cupy.float32)
    done = [cupy.cuda.Event(disable_timing=True) for _ in range(KEPT)]
    kept: list[list[Any]] = [[] for _ in range(KEPT)]
    for count in (WARM_UP, FRAMES):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for frame in range(count):
            turn = frame % KEPT
            if kept[turn]:
                done[turn].synchronize()
                kept[turn].clear()
            data = zeros
            for k in range(LENGTH):
                stream = streams[k]
                if k:
                    stream.wait_event(events[k - 1])
                    kept[turn].append(data)
                with stream:
                    data = data + 1
                events[k].record(stream)
            done[turn].record(streams[-1])
        cupy.cuda.Device().synchronize()
    cost = (time.perf_counter() - start) * 1e6 / (FRAMES * LENGTH)
    answers.append(float(data[0]))
    return cost


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.input = cupy.zeros(SIZE, cupy.float32)
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.sent == WARM_UP:
            times.append(time.perf_counter())
        self.sent += 1
        op_output.emit(self.input + 1, "out")


class Stage(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") + 1, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.result = op_input.receive("in") + 1

    def stop(self) -> None:
        times.append(time.perf_counter())  # the device is done by now
        answers.append(float(self.result[0]))


class Chain(Application):
    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self))
        stages: list[Any] = [Source(self, CountCondition(self, WARM_UP + FRAMES), name="source")]
        stages += [Stage(self, name=f"stage{k}") for k in range(LENGTH - 2)]
        stages.append(Sink(self, name="sink"))
        for one, other in itertools.pairwise(stages):
            self.add_flow(one, other)


def with_headrace() -> float:
    """Return the microseconds per operator."""
    times.clear()
    Chain().run()
    return (times[1] - times[0]) * 1e6 / (FRAMES * LENGTH)
