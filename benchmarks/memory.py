"""Measure whether memory grows in a long run: resident memory after ten thousand to a million messages."""

from __future__ import annotations

import argparse
import gc
from typing import Any

from benchmarks.common import machine, resident, table
from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator, OperatorSpec
from headrace.core import MetadataPolicy

MARKS = (10_000, 100_000, 300_000, 1_000_000)


class Source(Operator):
    """Emits new objects, every tenth with a timestamp and metadata, so that those paths are measured too."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def start(self) -> None:
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.sent += 1
        if self.sent % 10:
            op_output.emit([self.sent], "out")
        else:
            self.metadata.set("frame", self.sent)
            op_output.emit([self.sent], "out", acq_timestamp=self.sent)


class Through(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


class Sink(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.marks: dict[int, float] = {}

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number = op_input.receive("in")[0]
        if number in MARKS:
            gc.collect()
            self.marks[number] = resident()


class Long(Application):
    def __init__(self, scheduler: str, messages: int) -> None:
        super().__init__([])
        self.wanted, self.messages = scheduler, messages
        self.metadata_policy = MetadataPolicy.UPDATE

    def compose(self) -> None:
        if self.wanted == "greedy":
            self.scheduler(GreedyScheduler(self))
        else:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        source, sink = Source(self, CountCondition(self, self.messages)), Sink(self, name="sink")
        through = Through(self)
        self.add_flow(source, through)
        self.add_flow(through, sink)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MARKS[-1])
    messages = parser.parse_args().messages
    print(f"machine: {machine()}")
    rows = []
    for scheduler in ("greedy", "event-based"):
        app = Long(scheduler, messages)
        app.run()
        marks = app.graph.find("sink").marks  # type: ignore[attr-defined]
        sizes = [marks[mark] for mark in MARKS if mark in marks]
        rows.append([scheduler, *sizes, f"{sizes[-1] - sizes[0]:+.2f}"])
    columns = [f"after {mark:,}" for mark in MARKS if mark <= messages]
    table("resident memory in MiB", ["scheduler", *columns, "growth since 10,000"], rows)


if __name__ == "__main__":
    main()
