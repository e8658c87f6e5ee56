"""Count what a stream of its own costs an operator in Python, without a GPU.

    python -m benchmarks.stream_steps [--functions]

The chain of `benchmarks.stream_cost`: a source, five stages and a sink, plain functions on arrays of a library with
a current stream. The streams do nothing, and their events are done at once. So what is left is headrace's own code:
the bytecodes and the calls of Python functions of one compute, which do not depend on the speed of the machine, and
the CPU time, which does. ``--functions`` lists the bytecodes of each function.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from operator import attrgetter
from types import FrameType
from typing import Any

from benchmarks.common import machine, table
from benchmarks.stream_chain import Frame, IdleStreams
from headrace import Application, CountCondition, GreedyScheduler, op
from headrace.tensor import Library, register_library

STAGES, WARM, COUNTED = 5, 200, 120
KINDS = ("default stream", "per operator", "per branch", "per program")


class _Current:
    """The current stream of the library, read and set as cheaply as CuPy's."""

    now: Any = None

    @classmethod
    def read(cls) -> Any:
        return cls.now


class Arrays(Library):
    name = "arrays"
    types = (Frame,)
    works_on_simulated_streams = True

    owner = attrgetter("data.mem")
    read_stream = staticmethod(_Current.read)

    def stream(self, handle: Any) -> Any:
        return handle

    def set_stream(self, state: Any) -> None:
        _Current.now = state


register_library(Arrays())


class Chain(Application):
    def __init__(self, kind: str, frames: int) -> None:
        super().__init__([])
        self.kind = kind
        self.frames = frames
        self.sent = 0
        self.began = self.took = 0

    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self))
        pool = IdleStreams(self)

        def source() -> Any:
            self.sent += 1
            if self.sent == WARM:
                self.began = time.thread_time_ns()
                self.warm()
            return Frame()

        def stage(x: Any) -> Any:
            return Frame()

        def sink(x: Any) -> None:
            if self.sent == self.frames:
                self.took = time.thread_time_ns() - self.began
                self.over()

        operators = [
            op(outputs="out")(source)(self, CountCondition(self, self.frames), pool, name="source"),
            *[op(stage)(self, pool, name=f"stage{k}") for k in range(STAGES)],
            op(sink)(self, pool, name="sink"),
        ]
        for operator in operators:
            if self.kind == "default stream":
                operator.spec.default_stream()
        self.stream_per = self.kind.removeprefix("per ") if self.kind != "default stream" else "operator"
        for one, other in itertools.pairwise(operators):
            self.add_flow(one, other)

    def warm(self) -> None:
        """Called when the run is steady."""

    def over(self) -> None:
        """Called at the end of the last frame."""


class Counted(Chain):
    """The same, with every bytecode counted."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, WARM + COUNTED)
        self.calls: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()

    def warm(self) -> None:
        frame: FrameType | None = sys._getframe()
        sys.settrace(self.enter)
        while frame is not None:
            frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes = self.count, False, True
            frame = frame.f_back

    def over(self) -> None:
        sys.settrace(None)

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.calls[_name(frame)] += 1
        return self.count

    def count(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.codes[_name(frame)] += 1
        return self.count


def _name(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.rpartition('headrace/')[2]}: {frame.f_code.co_qualname}"


def microseconds(kind: str, frames: int) -> float:
    """Return the CPU time of one compute."""
    chain = Chain(kind, frames)
    chain.run()
    return chain.took / 1e3 / ((frames - WARM) * (STAGES + 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--frames", type=int, default=3_000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    print(f"machine: {machine()}")
    computes = COUNTED * (STAGES + 2)
    counted = {kind: Counted(kind) for kind in KINDS}
    for chain in counted.values():
        chain.run()
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.repeats):
        for kind in KINDS:
            times[kind].append(microseconds(kind, options.frames))
    rows = [
        [
            kind,
            round(chain.codes.total() / computes, 1),
            round(chain.calls.total() / computes, 2),
            min(times[kind]),
        ]
        for kind, chain in counted.items()
    ]
    table("one compute, in Python alone", ["", "bytecodes", "calls", "µs of CPU time"], rows)
    if options.functions:
        names = Counter[str]()
        for chain in counted.values():
            names += chain.codes
        rows = [
            [name, *(round(chain.codes[name] / computes, 1) for chain in counted.values())]
            for name, _ in names.most_common(40)
        ]
        table("bytecodes of one compute by function", ["", *KINDS], rows)


if __name__ == "__main__":
    main()
