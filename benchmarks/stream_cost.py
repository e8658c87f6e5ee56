"""Measure what a stream of its own costs an operator of plain library code.

    python -m benchmarks.stream_cost [--save]      needs a GPU, CuPy and PyTorch

A chain of seven: a source, five stages ``x + 1`` on 1,024 floats, and a sink. Each line of the table is measured in
a process of its own, because a library that is only imported must cost nothing. The rounds of one line run in turn,
so that all columns see the same speed of the machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.report import circumstances, publish, table

STAGES, SIZE = 5, 1_024
WARM, FRAMES, ROUNDS = 300, 2_000, 5
KEPT = 8  # frames under way, by hand
LIBRARIES = {
    "CuPy": ("cupy", ()),
    "CuPy, PyTorch imported": ("cupy", ("torch",)),
    "CuPy, PyTorch used elsewhere": ("cupy", ("torch", "used")),
    "PyTorch": ("torch", ()),
    "PyTorch, CuPy imported": ("torch", ("cupy",)),
}
COLUMNS = (
    "by hand",
    "by hand, own streams",
    "default stream",
    "per operator",
    "per branch",
    "per program",
    "1 worker",
    "2 workers",
    "4 workers",
    "8 workers",
)


def measure(library: str, others: tuple[str, ...]) -> dict[str, list[float]]:
    """Return the microseconds per compute of each round, by column."""
    import cupy

    if library == "torch" or "torch" in others:
        import torch
    if "used" in others:
        torch.zeros(1, device="cuda")
    from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, op

    if library == "cupy":
        zeros, synchronize = cupy.zeros(SIZE, cupy.float32), cupy.cuda.Device().synchronize
    else:
        zeros, synchronize = torch.zeros(SIZE, device="cuda"), torch.cuda.synchronize
    times: list[float] = []

    def source() -> Any:
        if source.sent == WARM:
            times.append(time.perf_counter())
        source.sent += 1
        return zeros + 1

    def stage(x: Any) -> Any:
        return x + 1

    def sink(x: Any) -> None:
        x + 1

    def by_hand() -> float:
        source.sent = 0
        times.clear()
        for _ in range(WARM + FRAMES):
            x = source()
            for _ in range(STAGES):
                x = stage(x)
            sink(x)
        synchronize()
        return time.perf_counter() - times[0]

    def by_hand_on_own_streams() -> float:
        """The same with a stream for each stage, events between them, and the frames kept in a list until then.

        It is written with the streams and events of the library, as a program of it would be.
        """
        source.sent = 0
        times.clear()
        steps = [source, *[stage] * STAGES, sink]
        kept: list[list[Any]] = [[] for _ in range(KEPT)]
        if library == "cupy":
            streams = [cupy.cuda.Stream(non_blocking=True) for _ in steps]
            events = [[cupy.cuda.Event(disable_timing=True) for _ in range(KEPT)] for _ in steps]
        else:
            streams = [torch.cuda.Stream() for _ in steps]
            events = [[torch.cuda.Event() for _ in range(KEPT)] for _ in steps]
        for frame in range(WARM + FRAMES):
            turn = frame % KEPT
            if kept[turn]:
                events[-1][turn].synchronize()
                kept[turn].clear()
            x = None
            for number, step in enumerate(steps):
                with streams[number] if library == "cupy" else torch.cuda.stream(streams[number]):
                    if number:
                        streams[number].wait_event(events[number - 1][turn])
                        kept[turn].append(x)
                        x = step(x)
                    else:
                        x = step()
                    events[number][turn].record(streams[number])
        synchronize()
        return time.perf_counter() - times[0]

    class Chain(Application):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

        def compose(self) -> None:
            workers, _, rest = self.kind.partition(" ")
            if rest.startswith("worker"):
                self.scheduler(EventBasedScheduler(self, worker_thread_number=int(workers)))
            else:
                self.scheduler(GreedyScheduler(self))
            make = op(outputs="out")(source)
            operators = [
                make(self, CountCondition(self, WARM + FRAMES), name="source"),
                *[op(stage)(self, name=f"stage{k}") for k in range(STAGES)],
                op(sink)(self, name="sink"),
            ]
            for operator in operators:
                if self.kind == "default stream":
                    operator.spec.default_stream()
            if self.kind.startswith("per "):
                self.stream_per = self.kind.removeprefix("per ")
            for one, other in itertools.pairwise(operators):
                self.add_flow(one, other)

    def with_headrace(kind: str) -> float:
        source.sent = 0
        times.clear()
        Chain(kind).run()
        synchronize()
        return time.perf_counter() - times[0]

    found: dict[str, list[float]] = {column: [] for column in COLUMNS}
    for _ in range(ROUNDS):
        for column in COLUMNS:
            ways = {"by hand": by_hand, "by hand, own streams": by_hand_on_own_streams}
            took = ways[column]() if column in ways else with_headrace(column)
            found[column].append(took * 1e6 / (FRAMES * (STAGES + 2)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--line", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.line:
        print(json.dumps(measure(*LIBRARIES[options.line])))
        return 0
    rows = []
    for line in LIBRARIES:
        run = [sys.executable, "-m", "benchmarks.stream_cost", "--line", line]
        text = subprocess.run(run, check=True, capture_output=True, text=True).stdout
        found = json.loads(text.splitlines()[-1])
        best = {column: min(costs) for column, costs in found.items()}
        ratios = [
            best["per operator"] / best["by hand, own streams"],
            best["per program"] / best["by hand"],
        ]
        rows.append(
            [line, *(f"{best[column]:.1f}" for column in COLUMNS), *(f"{ratio:.2f}" for ratio in ratios)]
        )
    import cupy

    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# What a stream of its own costs",
        "",
        circumstances(device),
        "",
        f"µs per compute in a chain of seven, {FRAMES} frames, best of {ROUNDS} rounds in turn; greedy, but for",
        "the columns with workers. By hand on own streams, the frames are kept in a list until the device is done.",
        "`python -m benchmarks.stream_cost`.",
        "",
        table(["", *COLUMNS, "own streams, of by hand", "one stream, of by hand"], rows),
    ]
    publish("stream_cost", "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
