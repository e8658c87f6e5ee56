"""Measure replicas: how many messages a second pass an operator with 1, 2 and 4 of them.

    python -m benchmarks.replicas

One operator computes in Python and holds the interpreter lock: only processes help. The other one waits, as for a
server: threads help. The third has nothing to do, and shows what a message costs on its way to a replica and back,
empty and with a picture of 6 MB.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.common import machine, table
from headrace import Application, CountCondition, Operator, OperatorSpec


class Source(Operator):
    """Emits the same object again and again."""

    content: Any

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")
        spec.param("content")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(self.content, "out")


class Python(Operator):
    """Computes in Python for some milliseconds."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") + sum(number * number for number in range(100_000)), "out")


class Waiting(Python):
    """Waits for 5 ms."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        time.sleep(0.005)
        op_output.emit(value, "out")


class Nothing(Python):
    """Passes on what it receives."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


class Sink(Operator):
    """Notes when the first and the last message came."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.times: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        self.times.append(time.perf_counter_ns())


class Pipeline(Application):
    """A source, the operator, a sink."""

    def __init__(self, kind: type[Operator], content: Any, messages: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.kind, self.content, self.messages, self.options = kind, content, messages, options

    def compose(self) -> None:
        middle = self.kind(self, name="middle", **self.options)
        self.sink = Sink(self, name="sink")
        self.add_flow(Source(self, CountCondition(self, self.messages), content=self.content), middle, size=4)
        self.add_flow(middle, self.sink, size=4)


def measure(kind: type[Operator], content: Any, messages: int, **options: Any) -> float:
    """Return the messages per second, from the first result to the last."""
    app = Pipeline(kind, content, messages, options)
    app.run()
    times = app.sink.times
    return (len(times) - 1) * 1e9 / (times[-1] - times[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=200)
    count = parser.parse_args().messages
    print(machine())
    picture = np.zeros((1080, 1920, 3), np.uint8)
    cases = [
        ("Python code", Python, 1, count),
        ("waits for 5 ms", Waiting, 1, count),
        ("nothing", Nothing, 1, count * 5),
        ("nothing, 6 MB", Nothing, picture, count),
    ]
    rows: list[list[Any]] = []
    for name, kind, content, messages in cases:
        for place in ("threads", "processes"):
            rates = [measure(kind, content, messages, workers=workers, on=place) for workers in (1, 2, 4)]
            rows.append([name, place, *rates])
    table("Messages per second", ["the operator", "on", "1 worker", "2 workers", "4 workers"], rows)


if __name__ == "__main__":
    main()
