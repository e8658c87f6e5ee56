"""Compare a chain of five operators, each with a stream and a CuPy kernel, with the same written by hand.

    python -m benchmarks.gpu_chain [--save]        needs a GPU and CuPy

The version by hand has a stream for each stage, records an event after each kernel and waits for it before the
next. The kernel adds one to 4,096 floats. Every frame is a fresh array, since one that is used again would change
under its reader. By hand, a frame is kept in a list until its last reader is done: without that, CuPy gives its
memory to the next frame while the reader's stream has not passed it.

The operators are of two kinds. Those that handle streams ask for theirs and make it current, as by hand. Plain ones
have CuPy's code and nothing else: headrace makes their stream current.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import cupy

from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator
from headrace.resources import CudaStreamPool

LENGTH, FRAMES, SIZE, ROUNDS = 5, 3_000, 4_096, 7
KEPT = 8  # frames under way, by hand
WARM_UP, BLOCK = 200, 25  # frames that do not count, and frames between two times of the source
LIMITS = {
    "greedy": 1.25,
    "event-based, 4 workers": 1.6,
    "plain operators, greedy": 1.25,
    "plain operators, event-based, 4 workers": 1.6,
}
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
        if self.sent >= WARM_UP and self.sent % BLOCK == 0:
            times.append(time.perf_counter())
        self.sent += 1
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        with stream.cupy():
            data = self.input + 1
        op_output.emit(data, "out")


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

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        with op_input.receive_cuda_stream("in").cupy():
            self.result = data + 1

    def stop(self) -> None:
        times.append(time.perf_counter())  # the device is done by now
        answers.append(float(self.result[0]))


class PlainSource(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.input = cupy.zeros(SIZE, cupy.float32)
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.sent >= WARM_UP and self.sent % BLOCK == 0:
            times.append(time.perf_counter())
        self.sent += 1
        op_output.emit(self.input + 1, "out")


class PlainStage(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") + 1, "out")


class PlainSink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.result = op_input.receive("in") + 1

    def stop(self) -> None:
        times.append(time.perf_counter())  # the device is done by now
        answers.append(float(self.result[0]))


KINDS = ((Source, Stage, Sink), (PlainSource, PlainStage, PlainSink))  # that handle streams, and plain ones


class Chain(Application):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def compose(self) -> None:
        if "greedy" in self.kind:
            self.scheduler(GreedyScheduler(self))
        else:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=4))
        first, middle, last = KINDS["plain" in self.kind]
        is_plain = first is PlainSource
        pools = [] if is_plain else [CudaStreamPool(self, stream_flags=1)]  # non-blocking, as by hand
        stages: list[Any] = [first(self, CountCondition(self, WARM_UP + FRAMES), *pools, name="source")]
        stages += [middle(self, *pools, name=f"stage{k}") for k in range(LENGTH - 2)]
        stages.append(last(self, *pools, name="sink"))
        for one, other in itertools.pairwise(stages):
            self.add_flow(one, other)


def with_headrace(kind: str) -> float:
    times.clear()
    Chain(kind).run()
    return (times[-1] - times[0]) * 1e6 / (FRAMES * LENGTH)


def main() -> int:
    found: dict[str, list[float]] = {"by hand": [], **{kind: [] for kind in LIMITS}}
    for _ in range(ROUNDS):  # in turn, because the speed of the machine varies
        found["by hand"].append(by_hand())
        for kind in LIMITS:
            found[kind].append(with_headrace(kind))
    best = {name: min(costs) for name, costs in found.items()}
    hand = best["by hand"]
    rows = [["by hand, CuPy", f"{hand:.1f}", "1.00", ""]]
    failed = False
    for kind, limit in LIMITS.items():
        cost = best[kind]
        failed |= cost > limit * hand
        rows.append([f"headrace, {kind}", f"{cost:.1f}", f"{cost / hand:.2f}", f"{limit:.2f}"])
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# A chain of five with a CuPy kernel each",
        "",
        circumstances(device),
        "",
        f"µs per compute over {FRAMES} frames, best of {ROUNDS} rounds in turn. `python -m benchmarks.gpu_chain`.",
        "",
        table(["", "µs per compute", "of by hand", "allowed"], rows),
    ]
    publish("gpu_chain", "\n".join(text))
    return failed


if __name__ == "__main__":
    sys.exit(main())
