"""Measure what tracking costs, part by part, with and without GPU times, in one run.

    python -m benchmarks.observe [--rounds 9] [--long 3] [--seconds 3] [--save]
    python -m benchmarks.observe --short         only what recording costs

The chain of `benchmarks.chain` runs with and without a tracker, in turn. On a GPU with CuPy the chain of
`benchmarks.gpu_chain` does, too, whose operators ask for their streams, and a chain of functions, which share one
stream as long as the GPU keeps up. The columns, in microseconds per compute until the sink has its last message:

- *recording*: the computes write down what happens, and nobody reads it. Short runs: what a compute itself pays.
  The machine varies by more than that. So a run on the GPU counts by the median over blocks of 25 frames. A round
  runs every way once, beginning with another one each time. Two figures are shown: *more, least* is the difference
  of the least of all rounds, and *more, median* the median over the rounds of the difference from the untracked run
  of the same round. The median counts.
- *with the reader*: as in a program. Long runs, in which the reader's thread works several times: what the run
  pays for its own work, for that of the reader, and for the threads that wait for each other.
- *reader*: the processor time of the reader's thread in these runs.
- *at the end*: what is read after the last compute, in the same runs.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.chain import chain
from benchmarks.common import machine
from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, EventBasedScheduler, Fragment, GreedyScheduler, gpu, op
from headrace.observe import attachment
from headrace.observe.events import observation
from headrace.observe.events.reader import Reader
from headrace.observe.figures.data_flow_tracker import DataFlowTracker

MESSAGES, FRAMES = 4_000, 1_000
WARM_UP, BLOCK = (
    200,
    25,
)  # frames of a chain of functions that do not count, and frames that are timed together
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
    """Microseconds per compute, of each round."""

    running: list[float] = field(default_factory=list)
    in_rounds: list[float] = field(default_factory=list)
    at_end: list[float] = field(default_factory=list)

    def more(self, before: Cost) -> tuple[float, float]:
        """Return by how much this is more, by the least and by the median over the rounds."""
        pairs = zip(self.running, before.running, strict=True)
        return min(self.running) - min(before.running), statistics.median(one - other for one, other in pairs)


def measure(
    ways: list[str], rounds: int, once: Callable[[int], float], messages: int, is_idle: bool
) -> dict[str, Cost]:
    """Return what a compute costs in each way."""
    found = {way: Cost() for way in ways}
    MeasuredReader.is_idle = is_idle
    with Watching() as watching:
        for number in range(rounds):  # in turn, because the speed of the machine varies
            first = number % len(ways)
            for way in (*ways[first:], *ways[:first]):
                cost = found[way]
                watching.way = way
                MeasuredReader.in_rounds = MeasuredReader.at_end = 0.0
                cost.running.append(once(messages))
                cost.in_rounds.append(MeasuredReader.in_rounds * 1e6 / (messages * 5))
                cost.at_end.append(MeasuredReader.at_end * 1e6 / (messages * 5))
    return found


def rows_of(
    name: str, ways: list[str], once: Callable[[int], float], messages: int, options: argparse.Namespace
) -> list[list[str]]:
    """Return the rows of a chain; `once` runs it with a number of messages."""
    once(messages)  # the first run loads what later ones find loaded
    short = measure(["off", *ways], options.rounds, once, messages, is_idle=True)
    costs = [short]
    if not options.short:
        many = max(round(options.seconds * 1e6 / (min(short["off"].running) * 5)), messages)
        costs.append(measure(["off", *ways], options.long, once, many, is_idle=False))

    def row(name: str, way: str) -> list[str]:
        found = [name, way]
        for cost in costs:
            more = cost[way].more(cost["off"])
            found.append(f"{min(cost[way].running):.2f}")
            found += ["", ""] if way == "off" else [f"{each:+.2f}" for each in more]
        if not options.short:
            read = (costs[1][way].in_rounds, costs[1][way].at_end)
            found += ["", ""] if way == "off" else [f"{min(each):.2f}" for each in read]
        return [*found, "" if way == "off" else f"{LIMITS[way]:.1f}"]

    return [row(name, "off"), *[row("", way) for way in ways]]


def function_chain(kind: str, frames: int) -> float:
    """Run a chain of five functions with a CuPy kernel each; return the microseconds per compute."""
    import cupy

    zeros = cupy.zeros(4_096, cupy.float32)
    times: list[float] = []
    sent = itertools.count()

    @op(outputs="out")
    def source() -> Any:
        number = next(sent)
        if number >= WARM_UP and number % BLOCK == 0:
            times.append(time.perf_counter())
        return zeros + 1

    @op
    def stage(x: Any) -> Any:
        return x + 1

    @op
    def sink(x: Any) -> None:
        x + 1

    class Chain(Application):
        def compose(self) -> None:
            is_greedy = kind == "greedy"
            self.scheduler(
                GreedyScheduler(self) if is_greedy else EventBasedScheduler(self, worker_thread_number=4)
            )
            operators = [
                source(self, CountCondition(self, WARM_UP + frames), name="source"),
                *[stage(self, name=f"stage{k}") for k in range(3)],
                sink(self, name="sink"),
            ]
            for one, other in itertools.pairwise(operators):
                self.add_flow(one, other)

    Chain().run()
    return median_of(times)


def kernel_chain(kind: str, frames: int) -> float:
    """Run the chain of `benchmarks.gpu_chain`; return the microseconds per compute."""
    from benchmarks import gpu_chain

    gpu_chain.FRAMES = frames
    gpu_chain.with_headrace(kind)
    return median_of(gpu_chain.times[:-1])


def median_of(times: list[float]) -> float:
    """Return the microseconds per compute of the median block, from the times at which the source began each."""
    return (
        statistics.median(after - before for before, after in itertools.pairwise(times)) * 1e6 / (BLOCK * 5)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="of short runs")
    parser.add_argument("--long", type=int, default=3, help="rounds of long runs")
    parser.add_argument("--seconds", type=float, default=3.0, help="that a long run takes, untracked")
    parser.add_argument(
        "--short", action="store_true", help="no long runs: what the reader costs is not shown"
    )
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
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
        for name, run in (("CuPy kernels", kernel_chain), ("functions", function_chain)):
            for kind in gpu_chain.LIMITS:
                if "plain" in kind and run is function_chain:
                    continue  # functions are plain
                rows += rows_of(
                    f"chain of five {name}, {kind}", list(LIMITS), partial(run, kind), FRAMES, options
                )
    runs = f"{options.rounds} short runs"
    more = ["more, least", "more, median"]
    header = ["", "", "recording", *more, "with the reader", *more, "reader", "at the end", "allowed"]
    if options.short:
        del header[5:10]
    else:
        runs += f" and {options.long} runs of {options.seconds:g} s"
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
