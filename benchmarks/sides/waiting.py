"""Operators that wait: how soon they are woken, what waiting costs, and what a long run leaves behind."""

from __future__ import annotations

import gc
from typing import Any

from benchmarks import idle as idles
from benchmarks import wake_up as wake_ups
from benchmarks.common import load, resident


def wake_up(package: str, *, share: float) -> tuple[float, int]:
    """Return the median microseconds from emit to compute; every tick must have been received."""
    ticks = max(int(2_000 * share), 100)
    found = wake_ups.latencies(package, ticks)
    return found[len(found) // 2], ticks


def idle(package: str, *, share: float) -> tuple[float, None]:
    """Return the CPU seconds per minute of an application with two periodic operators."""
    return idles.per_minute(package, "periods", 1, max(10 * share, 1.0)), None


def memory(package: str, *, share: float) -> tuple[float, int, str]:
    """Return the MiB of the process after a million messages, their number, and what it has grown by."""
    sdk = load(package)
    messages = max(int(1_000_000 * share), 20_000)
    sizes: list[float] = []
    received = [0]

    class Source(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def start(self) -> None:
            self.sent = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.sent += 1
            op_output.emit([self.sent], "out")

    class Through(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")

    class Sink(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            received[0] = op_input.receive("in")[0]
            if received[0] in (10_000, messages):
                gc.collect()
                sizes.append(resident())

    class Long(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            self.scheduler(sdk.GreedyScheduler(self, name="scheduler"))
            source = Source(self, sdk.CountCondition(self, messages), name="source")
            through, sink = Through(self, name="through"), Sink(self, name="sink")
            self.add_flow(source, through)
            self.add_flow(through, sink)

    Long().run()
    return sizes[-1], received[0], grown(sizes)


def grown(sizes: list[float]) -> str:
    """Return in words what a process has grown by between two sizes."""
    return f"{sizes[-1] - sizes[0]:+.2f} MiB since message 10,000"
