"""Compare random graphs of CuPy operators on their own streams with the same graphs on the default stream.

    python -m benchmarks.stream_graphs [--save] [--seeds 6]      needs a GPU and CuPy

Nine stages in layers, each connected to one or two stages of the layer before. A stage adds its inputs and spins on
one SM for a time of its own, so that stages can overlap. Another graph has three branches that each spin for
100 µs: on the default stream a frame takes 300 µs of the GPU, and 100 if all branches overlap. The last one is a
row of four stages that each spin for 100 µs: with a stream for each, the GPU works on four frames at once.

Each graph is also written by hand, as a loop of CuPy code: on the default stream, and with a stream for each stage,
which records an event after its work and waits for those of its inputs. That is the price of several streams that
no program avoids. The loop does not keep arrays alive for other streams. Its streams are non-blocking, that is, not
ordered with the default stream. Those of headrace are ordered with it unless their pool says otherwise, so one
column has such a pool. One more by hand is a single stream that is ordered with the default stream.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

import cupy

from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, GreedyScheduler, Operator, gpu
from headrace.resources import CudaStreamPool

# Each stage makes its events in the first few hundred frames.
SIZE, WARM, FRAMES, ROUNDS = 1_024, 300, 400, 3
BY_HAND = ("by hand, default stream", "by hand, one blocking stream", "by hand, a stream each")
MODES = {
    "default stream": "operator",
    "a stream per operator": "operator",
    "a stream per operator, non-blocking": "operator",
    "a stream per branch": "branch",
    "one stream": "program",
}
DEFAULT, NON_BLOCKING = "default stream", "a stream per operator, non-blocking"
SPIN = cupy.RawKernel(
    """extern "C" __global__ void spin(long long ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < ns);
}""",
    "spin",
)


class Stage(Operator):
    """Adds its inputs, and spins."""

    def __init__(
        self, *args: Any, microseconds: float, inputs: int, is_on_default: bool, **kwargs: Any
    ) -> None:
        self.nanoseconds = cupy.int64(1_000 * microseconds)
        self.names = [f"in{k}" for k in range(inputs)]
        self.is_on_default = is_on_default
        self.computes = 0
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        for name in self.names:
            spec.input(name)
        spec.output("out")
        if self.is_on_default:
            spec.default_stream()

    def start(self) -> None:
        self.zeros = cupy.zeros(SIZE, cupy.float32)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.computes += 1
        if self.computes == WARM and not self.names:
            self.fragment.began = time.perf_counter()
        total = self.zeros
        for name in self.names:
            total = total + op_input.receive(name)
        SPIN((1,), (32,), (self.nanoseconds,))
        op_output.emit(total + 1, "out")


class Graph(Application):
    """A graph, by the inputs and the time of each stage; stage 0 is the source."""

    def __init__(self, stages: list[tuple[list[int], float]], mode: str) -> None:
        super().__init__()
        self.stages, self.mode = stages, mode

    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self))
        self.stream_per = MODES[self.mode]
        pools = [CudaStreamPool(self, stream_flags=1)] if self.mode == NON_BLOCKING else []
        made: list[Stage] = []
        for number, (inputs, microseconds) in enumerate(self.stages):
            counts = [] if inputs else [CountCondition(self, WARM + FRAMES)]
            stage = Stage(
                self,
                *counts,
                *pools,
                microseconds=microseconds,
                inputs=len(inputs),
                is_on_default=self.mode == DEFAULT,
                name=f"stage{number}",
            )
            made.append(stage)
            for place, other in enumerate(inputs):
                self.add_flow(made[other], stage, {("out", f"in{place}")})
            if not inputs:
                self.add_operator(stage)


def random_stages(seed: int, longest: float) -> list[tuple[list[int], float]]:
    """Return a source and nine stages in three layers."""
    choose = random.Random(seed)
    stages: list[tuple[list[int], float]] = [([], 1.0)]
    before = [0]
    for _ in range(3):
        layer = []
        for _ in range(3):
            inputs = choose.sample(before, min(len(before), choose.choice((1, 1, 2))))
            stages.append((inputs, choose.uniform(1, longest)))
            layer.append(len(stages) - 1)
        before = layer
    return stages


def by_hand(stages: list[tuple[list[int], float]], streams: list[Any]) -> float:
    """Return the microseconds per frame of a loop of CuPy code, on the default stream unless there are others."""
    currents = [cupy.cuda.Stream.from_external(stream) for stream in streams]
    has_several = len(streams) > 1
    events = [gpu.Device().create_event() for _ in streams]
    zeros = [cupy.zeros(SIZE, cupy.float32) for _ in stages]
    times = [cupy.int64(1_000 * microseconds) for _, microseconds in stages]
    cupy.cuda.Device().synchronize()
    for frame in range(WARM + FRAMES):
        if frame == WARM:
            began = time.perf_counter()
        results: list[Any] = []
        for number, (inputs, _) in enumerate(stages):
            if streams:
                currents[number if has_several else 0].use()
            if has_several:
                for other in inputs:
                    streams[number].wait(events[other])
            total = zeros[number]
            for other in inputs:
                total = total + results[other]
            SPIN((1,), (32,), (times[number],))
            results.append(total + 1)
            if has_several:
                streams[number].record(events[number])
    cupy.cuda.Stream.null.use()
    cupy.cuda.Device().synchronize()
    return (time.perf_counter() - began) * 1e6 / FRAMES


def with_headrace(stages: list[tuple[list[int], float]], mode: str) -> float:
    """Return the microseconds per frame in one of the modes."""
    graph = Graph(stages, mode)
    graph.run()
    cupy.cuda.Device().synchronize()
    return (time.perf_counter() - graph.began) * 1e6 / FRAMES


def measure(stages: list[tuple[list[int], float]]) -> list[float]:
    """Return the microseconds per frame by hand and in each mode."""
    gpu.Device().set_current()
    streams = [gpu.Device().create_stream() for _ in stages]
    blocking = gpu.Device().create_stream(options=gpu.StreamOptions(nonblocking=False))
    rounds = [
        [
            by_hand(stages, []),
            by_hand(stages, [blocking]),
            by_hand(stages, streams),
            *(with_headrace(stages, mode) for mode in MODES),
        ]
        for _ in range(ROUNDS)
    ]
    return [min(column) for column in zip(*rounds, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--seeds", type=int, default=6)
    seeds = parser.parse_args().seeds
    SPIN((1,), (32,), (cupy.int64(1_000),))
    graphs = {
        f"random, seed {seed}, stages of up to {longest:.0f} µs": random_stages(seed, longest)
        for longest in (2.0, 40.0)
        for seed in range(seeds)
    }
    graphs["three branches of 100 µs"] = [([], 1.0), *[([0], 100.0)] * 3]
    graphs["four stages of 100 µs in a row"] = [([], 1.0), *[([place], 100.0) for place in range(4)]]
    rows, slower = [], 0
    for name, stages in graphs.items():
        hand, hand_one, hand_own, default, *own = measure(stages)
        slower += own[0] > default
        rows.append(
            [
                name,
                *(f"{cost:.0f}" for cost in (hand, hand_one, hand_own, default, *own)),
                f"{hand_one / hand:.2f}",
                f"{hand_own / hand:.2f}",
                *(f"{cost / default:.2f}" for cost in own),
            ]
        )
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Graphs of operators on their own streams",
        "",
        circumstances(device),
        "",
        f"µs per frame, best of {ROUNDS} rounds in turn. `python -m benchmarks.stream_graphs`. The last columns",
        "are shares of the time on the default stream: by hand of that by hand, the others of headrace's.",
        "",
        table(
            [
                *("", *BY_HAND, *MODES, "by hand, one", "by hand, each"),
                *("shared", "non-blocking", "per operator", "per branch"),
            ],
            rows,
        ),
    ]
    publish("stream_graphs", "\n".join(text))
    return slower


if __name__ == "__main__":
    sys.exit(main())
