"""Measure the time to compose and start 1,000 operators."""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.common import machine, table
from headrace import Application, CountCondition, Operator, OperatorSpec


class Stage(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("factor", 1.0)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


class Source(Operator):
    began = 0

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        Source.began = time.perf_counter_ns()


class Long(Application):
    def __init__(self, operators: int) -> None:
        super().__init__([])
        self.operators = operators

    def compose(self) -> None:
        last: Operator = Source(self, CountCondition(self, 1))
        for _ in range(self.operators - 1):
            stage = Stage(self, factor=2.0)
            self.add_flow(last, stage)
            last = stage


def first_compute(operators: int) -> float:
    """Return the milliseconds from the call of run to the first compute."""
    app = Long(operators)
    began = time.perf_counter_ns()
    app.run()
    return (Source.began - began) / 1e6


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"machine: {machine()}")
    table(
        "milliseconds, the best of five",
        ["", "ms", "bound"],
        [
            [
                "from run() to the first compute, 1,000 operators in a chain",
                min(first_compute(1_000) for _ in range(5)),
                "1,000",
            ],
        ],
    )


if __name__ == "__main__":
    main()
