"""Measure what a program pays for running through the compatibility layer, beside the same program for headrace.

    python -m benchmarks.holoscan_layer

The programs are chains of operators that do no work: what they cost is the cost of the system. Each is written
once, as one writes it for the Holoscan SDK. It imports its names from `holoscan`, which is the layer, or from
`headrace`. The time is the CPU time of the process from the first compute of the source to the last of the sink. It
is the least of several runs that take turns, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.common import load, machine, table

MESSAGES = 20_000


@contextmanager
def names_of(package: str) -> Iterator[SimpleNamespace]:
    """The names of a package; `holoscan` is the layer."""
    if package == "headrace":
        yield load(package)
        return
    from headrace_holoscan.alias import install, uninstall

    install()
    try:
        yield load(package)
    finally:
        uninstall()


def source(sdk: Any, times: list[int], make: Callable[[int], Any], has_metadata: bool) -> type:
    """Make the class of a source, which notes when it begins."""

    class Source(sdk.Operator):  # type: ignore[name-defined, misc]
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.sent = 0
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if not self.sent:
                times.append(time.process_time_ns())
            self.sent += 1
            if has_metadata:
                self.metadata["number"] = self.sent
            op_output.emit(make(self.sent), "out")

    return Source


def through(sdk: Any) -> type:
    """Make the class of an operator that passes on what it receives, and has parameters."""

    class Through(sdk.Operator):  # type: ignore[name-defined, misc]
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")
            spec.param("factor", 1)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")

    return Through


def sink(sdk: Any, messages: int, times: list[int], **port: Any) -> type:
    """Make the class of a sink, which notes when it has the last message."""

    class Sink(sdk.Operator):  # type: ignore[name-defined, misc]
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.received = 0
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            spec.input("in", **port)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            self.received += 1
            if self.received == messages:
                times.append(time.process_time_ns())

    return Sink


ARRAY = np.zeros((4, 4), np.float32)
CHAINS: dict[str, tuple[Callable[[int], Any], str, dict[str, Any]]] = {
    "numbers, greedy": (lambda number: number, "greedy", {}),
    "numbers, event-based, 2 workers": (lambda number: number, "event", {}),
    "dicts of tensors, greedy": (lambda number: {"image": ARRAY}, "greedy", {}),
    "numbers with metadata, greedy": (lambda number: number, "greedy", {"metadata": True}),
    "into an input for any number of flows, greedy": (lambda number: number, "greedy", {"any": True}),
}


def chain(package: str, name: str, messages: int) -> float:
    """Run a chain; return the microseconds of CPU time per compute."""
    make, scheduler, options = CHAINS[name]
    times: list[int] = []
    with names_of(package) as sdk:

        class Chain(sdk.Application):  # type: ignore[name-defined, misc]
            def compose(self) -> None:
                first = source(sdk, times, make, "metadata" in options)
                last = first(self, sdk.CountCondition(self, messages), name="source")
                for number in range(3):
                    stage = through(sdk)(self, name=f"through{number}")
                    self.add_flow(last, stage, {("out", "in")})
                    last = stage
                port = {"size": sdk.IOSpec.ANY_SIZE} if options.get("any") else {}
                self.add_flow(last, sink(sdk, messages, times, **port)(self, name="sink"), {("out", "in")})

        app = Chain()
        if options.get("metadata"):
            app.enable_metadata(True)
        if scheduler == "greedy":
            app.scheduler(sdk.GreedyScheduler(app, name="scheduler"))
        else:
            app.scheduler(sdk.EventBasedScheduler(app, worker_thread_number=2, name="scheduler"))
        app.run()
    return (times[1] - times[0]) / 1e3 / (5 * messages)


def start(package: str, operators: int = 200) -> float:
    """Make, compose and run a long chain for one message; return the microseconds of CPU time per operator."""
    with names_of(package) as sdk:

        class Long(sdk.Application):  # type: ignore[name-defined, misc]
            def compose(self) -> None:
                first = source(sdk, [], lambda number: number, has_metadata=False)
                last = first(self, sdk.CountCondition(self, 1), name="source")
                stage = through(sdk)
                for number in range(operators - 2):
                    following = stage(self, name=f"through{number}", factor=2)
                    self.add_flow(last, following)
                    last = following
                self.add_flow(last, sink(sdk, 1, [])(self, name="sink"))

        began = time.process_time_ns()
        Long().run()
    return (time.process_time_ns() - began) / 1e3 / operators


def compare(measure: Callable[[str], float], repeats: int) -> tuple[float, float]:
    """Return the least cost for headrace and through the layer, in turns."""
    costs: dict[str, list[float]] = {"headrace": [], "holoscan": []}
    for _ in range(repeats):
        for package, taken in costs.items():
            taken.append(measure(package))
    return min(costs["headrace"]), min(costs["holoscan"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"machine: {machine()}")
    rows = []
    for name in CHAINS:
        costs = compare(lambda package, name=name: chain(package, name, options.messages), options.repeats)  # type: ignore[misc]
        rows.append([name, *costs, costs[1] / costs[0]])
    columns = ["for headrace, µs", "through the layer, µs", "ratio"]
    table(
        "CPU time of one compute in a chain of five",
        ["messages and scheduler", *columns],
        rows,
    )
    costs = compare(start, options.repeats)
    table(
        "CPU time of each of 200 operators in a chain, made, composed, started, run once and stopped",
        ["", *columns],
        [["one message", *costs, costs[1] / costs[0]]],
    )


if __name__ == "__main__":
    main()
