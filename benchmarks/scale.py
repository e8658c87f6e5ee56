"""Measure whether a step costs more in a larger graph: longer chains, idle operators, producers of one queue."""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.chain import chain
from benchmarks.common import machine, table
from headrace import Application, CountCondition, Operator, OperatorSpec


class Source(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(1, "out")


class Sink(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")


def pair(messages: int, idle: int) -> float:
    """Return the microseconds per compute of a busy pair beside operators that wait forever."""
    marks: list[int] = []

    class First(Source):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            marks.append(time.perf_counter_ns())
            op_output.emit(1, "out")

    class Pair(Application):
        def compose(self) -> None:
            if idle:
                silent = Source(self, CountCondition(self, 0), name="silent")
                for number in range(idle):
                    self.add_flow(silent, Sink(self, name=f"idle{number}"))
            self.add_flow(First(self, CountCondition(self, messages), name="busy"), Sink(self, name="sink"))

    Pair([]).run()
    return (marks[-1] - marks[0]) / 1e3 / ((messages - 1) * 2)


def shared(messages: int, producers: int) -> float:
    """Return the microseconds per compute of producers that share a queue of one place, and of its consumer."""
    marks: list[int] = []

    class Producer(Source):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            marks.append(time.perf_counter_ns())
            op_output.emit(1, "out")

    class Shared(Application):
        def compose(self) -> None:
            sink = Sink(self, name="sink")
            for number in range(producers):
                count = CountCondition(self, messages // producers)
                self.add_flow(Producer(self, count, name=f"producer{number}"), sink)

    Shared([]).run()
    return (marks[-1] - marks[0]) / 1e3 / ((len(marks) - 1) * 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"machine: {machine()}")
    # Measured in turn, so that other load on the machine affects both.
    chains = {5: [], 300: []}
    pairs = {0: [], 1000: []}
    producers = {25: [], 400: []}
    for _ in range(repeats):
        for length, times in chains.items():
            times.append(chain("headrace", "greedy", 300_000 // length, length))
        for idle, times in pairs.items():
            times.append(pair(100_000, idle))
        for number, times in producers.items():
            times.append(shared(40_000, number))
    five, many = min(chains[5]), min(chains[300])
    alone, crowded = min(pairs[0]), min(pairs[1000])
    few, most = min(producers[25]), min(producers[400])
    table(
        "cost of one compute, greedy scheduler",
        ["", "µs per compute", "ratio"],
        [
            ["a chain of 5", five, ""],
            ["a chain of 300", many, f"{many / five:.2f} (bound: 1.25)"],
            ["a busy pair alone", alone, ""],
            ["a busy pair beside 1,000 idle operators", crowded, f"{crowded / alone:.3f} (bound: 1.05)"],
            ["25 producers of one queue", few, ""],
            ["400 producers of one queue", most, f"{most / few:.2f} (bound: 1.25)"],
        ],
    )


if __name__ == "__main__":
    main()
