"""Count wrong frames in random graphs of CuPy and PyTorch operators.

    python -m benchmarks.random_frames [--save] [--seeds 8] [--frames 1000]      needs a GPU, CuPy and PyTorch

Stages in layers receive from one to three stages of the layer before, add what they receive, and drop it at once. A
stage is plain, or works on the stream that it asks for, or adds what it received three frames ago, or passes a view
on, or makes its result on a side stream that it joins. It spins before it reads, so that memory that is used again
too early shows. A model tells what each frame has to be; a sink compares on the device.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import deque
from typing import Any

import cupy
import torch

from benchmarks.report import circumstances, publish, table
from benchmarks.stream_graphs import SPIN
from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator

SIZE, DELAY = 1 << 14, 3
KINDS = ("plain", "explicit", "late", "view", "side")
LAYOUTS = ("operator", "branch", "program", "shares")


class Stage(Operator):
    """Adds its inputs and its own number."""

    def __init__(self, *args: Any, kind: str, is_torch: bool, inputs: int, seed: int, **kwargs: Any) -> None:
        self.kind, self.is_torch, self.count = kind, is_torch, inputs
        self.nanoseconds = cupy.int64(1_000 * random.Random(seed).choice((0, 5, 20, 60)))
        self.number, self.sent = seed % 7, 0
        self.held: deque[Any] = deque(maxlen=DELAY + 1)
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        for number in range(self.count):
            spec.input(f"in{number}")
        spec.output("out")

    def start(self) -> None:
        self.side = cupy.cuda.Stream(non_blocking=True)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if not self.count:
            frame = self.full(self.sent)
            self.sent += 1
            op_output.emit(frame, "out")
            return
        received = [op_input.receive(f"in{number}") for number in range(self.count)]
        if self.kind == "explicit":
            with op_input.receive_cuda_stream("in0").cupy():
                result = self.add(received)
        elif self.kind == "late":
            self.held.append(received)
            received = None
            result = self.add(self.held[0])
        elif self.kind == "side":
            here = cupy.cuda.get_current_stream()
            self.side.wait_event(here.record())
            with self.side:
                result = self.add(received)
            here.wait_event(self.side.record())
            self.kept = result  # made on the side stream: this stream must have passed it before it goes
        else:
            result = self.add(received)
        op_output.emit(result[:] if self.kind == "view" else result, "out")

    def full(self, number: int) -> Any:
        if self.is_torch:
            return torch.full((SIZE,), number, dtype=torch.int64, device="cuda")
        return cupy.full(SIZE, number, cupy.int64)

    def add(self, received: list[Any]) -> Any:
        SPIN((1,), (32,), (self.nanoseconds,))
        if self.is_torch and self.kind != "side" and self.kind != "explicit":
            arrays = [
                each if isinstance(each, torch.Tensor) else torch.from_dlpack(each) for each in received
            ]
        else:
            arrays = [cupy.from_dlpack(each) if isinstance(each, torch.Tensor) else each for each in received]
        total = arrays[0] + self.number
        for each in arrays[1:]:
            total = total + each
        return total


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def __init__(self, *args: Any, expected: Any, **kwargs: Any) -> None:
        self.expected, self.number = expected, 0
        super().__init__(*args, **kwargs)

    def start(self) -> None:
        self.wrong = cupy.zeros((), cupy.int64)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        frame = cupy.from_dlpack(frame) if isinstance(frame, torch.Tensor) else frame
        self.wrong += (frame != self.expected(self.number)).any()
        self.number += 1

    def stop(self) -> None:
        self.count = int(self.wrong)


class Graph(Application):
    def __init__(self, seed: int, layout: str, workers: int, frames: int) -> None:
        super().__init__()
        self.seed, self.layout, self.workers, self.frames = seed, layout, workers, frames

    def compose(self) -> None:
        choose = random.Random(self.seed)
        self.stream_per = "operator" if self.layout == "shares" else self.layout
        if self.workers:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=self.workers))
        else:
            self.scheduler(GreedyScheduler(self))
        made = [
            Stage(
                self,
                CountCondition(self, self.frames),
                kind="plain",
                is_torch=choose.random() < 0.5,
                inputs=0,
                seed=0,
                name="source",
            )
        ]
        models: list[Any] = [lambda n: n]
        before = [0]
        for layer in range(choose.randint(2, 4)):
            added = []
            for place in range(choose.randint(1, 3)):
                inputs = choose.sample(before, min(len(before), choose.randint(1, 3)))
                kind = choose.choice(KINDS)
                stage = Stage(
                    self,
                    kind=kind,
                    is_torch=choose.random() < 0.5,
                    inputs=len(inputs),
                    seed=choose.randrange(1_000),
                    name=f"stage{layer}_{place}",
                )
                for number, other in enumerate(inputs):
                    self.add_flow(made[other], stage, {("out", f"in{number}")})
                delay = DELAY if kind == "late" else 0
                models.append(_model(stage.number, delay, [models[other] for other in inputs]))
                made.append(stage)
                added.append(len(made) - 1)
            before = added
        self.sinks = []
        leaves = [
            k for k, stage in enumerate(made) if not any(flow.source is stage for flow in self.graph.flows)
        ]
        for k in leaves:
            sink = Sink(self, expected=models[k], name=f"sink{k}")
            self.add_flow(made[k], sink)
            self.sinks.append(sink)
        if self.layout == "shares" and len(made) > 3:
            self.share_stream(*choose.sample(made, 3))


def _model(own: int, delay: int, inputs: list[Any]) -> Any:
    return lambda n: own + sum(model(max(n - delay, 0)) for model in inputs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--frames", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no further graph after this time")
    options = parser.parse_args()
    began, rows, wrong = time.monotonic(), [], 0
    for layout in LAYOUTS:
        for workers in (0, 3):
            frames = bad = graphs = 0
            for seed in range(options.seeds):
                if time.monotonic() - began > options.seconds:
                    break
                graph = Graph(seed, layout, workers, options.frames)
                graph.run()
                graphs += 1
                frames += options.frames * len(graph.sinks)
                bad += sum(sink.count for sink in graph.sinks)
            wrong += bad
            rows.append(
                [
                    layout,
                    "greedy" if not workers else f"{workers} workers",
                    str(graphs),
                    str(frames),
                    str(bad),
                ]
            )
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Wrong frames in random graphs",
        "",
        circumstances(device),
        "",
        "Random layered graphs of CuPy and PyTorch operators. `python -m benchmarks.random_frames`.",
        "",
        table(["stream_per", "scheduler", "graphs", "frames", "wrong"], rows),
    ]
    publish("random_frames", "\n".join(text))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
