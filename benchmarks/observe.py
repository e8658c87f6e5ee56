"""Measure what tracking costs, part by part, with and without GPU times, in one run.

    python -m benchmarks.observe [--rounds 9] [--long 3] [--seconds 3] [--save]
    python -m benchmarks.observe --short         only what recording costs, in fewer rounds

The chain of `benchmarks.chain` runs with and without a tracker, in turn. On a GPU with CuPy the chain of
`benchmarks.gpu_chain` does, too. The columns, in microseconds per compute until the sink has its last message:

- *recording*: the computes write down what happens, and nobody reads it. Short runs: what a compute itself pays.
- *with the reader*: as in a program. Long runs, in which the reader's thread works several times: what the run
  pays for its own work, for that of the reader, and for the threads that wait for each other.
- *reader*: the processor time of the reader's thread in these runs.
- *at the end*: what is read after the last compute, in the same runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.chain import chain
from benchmarks.common import machine
from benchmarks.report import circumstances, publish, table
from headrace import Fragment, gpu
from headrace.observe import attachment
from headrace.observe.events import observation
from headrace.observe.events.reader import Reader
from headrace.observe.figures.data_flow_tracker import DataFlowTracker

MESSAGES, FRAMES = 10_000, 3_000
LIMITS = {"tracked": 1.0, "tracked with GPU times": 2.0}


class MeasuredReader(Reader):
    """Notes how long the reader works."""

    is_idle = False
    in_rounds = at_end = 0.0

    def start(self) -> None:
        """Begin to read, unless only recording is measured."""
        if not self.is_idle:
            super().start()

    def finish(self) -> None:
        """Read the rest."""
        began = time.perf_counter()
        super().finish()
        MeasuredReader.at_end = time.perf_counter() - began

    def _round(self, most: int, is_last: bool = False) -> bool:
        began = time.thread_time()
        try:
            return super()._round(most, is_last)
        finally:
            if not is_last:
                MeasuredReader.in_rounds += time.thread_time() - began


class Watching:
    """Has runs watched in one of several ways."""

    def __init__(self) -> None:
        self.way = "off"
        self._observe, self._reader = attachment.observer_of, observation.Reader

    def __enter__(self) -> Watching:
        attachment.observer_of = self.observe
        observation.Reader = MeasuredReader  # type: ignore[misc]
        return self

    def __exit__(self, *error: object) -> None:
        attachment.observer_of = self._observe
        observation.Reader = self._reader  # type: ignore[misc]

    def observe(self, fragment: Fragment) -> Any:
        if self.way == "off":
            return self._observe(fragment)
        return observation.Observation(
            fragment, [DataFlowTracker()], gpu_times=self.way == "tracked with GPU times"
        )


@dataclass
class Cost:
    """Microseconds per compute: the least of several runs."""

    running: float = float("inf")
    in_rounds: float = float("inf")
    at_end: float = float("inf")


def measure(
    ways: list[str], rounds: int, once: Callable[[int], float], messages: int, is_idle: bool
) -> dict[str, Cost]:
    """Return what a compute costs in each way."""
    found = {way: Cost() for way in ways}
    MeasuredReader.is_idle = is_idle
    with Watching() as watching:
        for _ in range(rounds):  # in turn, because the speed of the machine varies
            for way, cost in found.items():
                watching.way = way
                MeasuredReader.in_rounds = MeasuredReader.at_end = 0.0
                cost.running = min(cost.running, once(messages))
                cost.in_rounds = min(cost.in_rounds, MeasuredReader.in_rounds * 1e6 / (messages * 5))
                cost.at_end = min(cost.at_end, MeasuredReader.at_end * 1e6 / (messages * 5))
    return found


def rows_of(
    name: str, ways: list[str], once: Callable[[int], float], messages: int, options: argparse.Namespace
) -> list[list[str]]:
    """Return the rows of a chain; `once` runs it with a number of messages."""
    short = measure(["off", *ways], options.rounds, once, messages, is_idle=True)
    many = max(round(options.seconds * 1e6 / (short["off"].running * 5)), messages)
    long = {way: Cost() for way in short}
    if not options.short:
        long = measure(["off", *ways], options.long, once, many, is_idle=False)

    def row(name: str, way: str) -> list[str]:
        costs = [short[way]] if options.short else [short[way], long[way]]
        befores = [short["off"], long["off"]]
        found = [name, way]
        for cost, before in zip(costs, befores, strict=False):
            more = "" if way == "off" else f"{cost.running - before.running:+.2f}"
            found += [f"{cost.running:.2f}", more]
        if not options.short:
            found += ["", ""] if way == "off" else [f"{long[way].in_rounds:.2f}", f"{long[way].at_end:.2f}"]
        return [*found, "" if way == "off" else f"{LIMITS[way]:.1f}"]

    rows = [row(name, "off"), *[row("", way) for way in ways]]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="of short runs: 9, or 4 with --short")
    parser.add_argument("--long", type=int, default=3, help="rounds of long runs")
    parser.add_argument("--seconds", type=float, default=3.0, help="that a long run takes, untracked")
    parser.add_argument(
        "--short", action="store_true", help="no long runs: what the reader costs is not shown"
    )
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    options.rounds = options.rounds or (4 if options.short else 9)
    rows: list[list[str]] = []
    for scheduler in ("greedy", "event-based"):

        def once(messages: int, scheduler: str = scheduler) -> float:
            return chain("headrace", scheduler, messages)

        rows += rows_of(f"chain of five, {scheduler}", ["tracked"], once, MESSAGES, options)
    device = "no GPU"
    if gpu.backend() == "cuda":
        import cupy

        from benchmarks import gpu_chain

        device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        for kind in gpu_chain.LIMITS:

            def once(messages: int, kind: str = kind) -> float:
                gpu_chain.FRAMES = messages
                return gpu_chain.with_headrace(kind)

            rows += rows_of(f"chain of five CuPy kernels, {kind}", list(LIMITS), once, FRAMES, options)
    runs = f"the least of {options.rounds} short runs"
    header = ["", "", "recording", "more", "with the reader", "more", "reader", "at the end", "allowed"]
    if options.short:
        del header[4:8]
    else:
        runs += f" and of {options.long} runs of {options.seconds:g} s"
    text = [
        "# What tracking costs",
        "",
        circumstances(f"{device}; {machine()}"),
        "",
        f"µs per compute, {runs}, in turn. The module `benchmarks.observe` says what the columns are.",
        "",
        table(header, rows),
    ]
    publish("observe", "\n".join(text))


if __name__ == "__main__":
    main()
