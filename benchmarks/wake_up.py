"""The time from `emit` on one thread to `compute` on an idle worker. `headrace bench wake-up` measures it.

The source and the sink have a pinned thread each. The source emits every two milliseconds, so that the thread of
the sink is asleep each time.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import load


def latencies(package: str, ticks: int) -> list[float]:
    """Return the microseconds from emit to compute, sorted."""
    sdk = load(package)
    seen: list[float] = []

    class Source(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(time.perf_counter_ns(), "out")

    class Sink(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            now = time.perf_counter_ns()
            seen.append((now - op_input.receive("in")) / 1e3)

    class WakeUp(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            self.scheduler(sdk.EventBasedScheduler(self, worker_thread_number=1, name="scheduler"))
            period = sdk.PeriodicCondition(self, 2_000_000, name="period")
            source = Source(self, period, sdk.CountCondition(self, ticks), name="source")
            sink = Sink(self, name="sink")
            self.add_flow(source, sink)
            for operator in (source, sink):
                self.make_thread_pool(f"pool_{operator.name}", 1).add(operator, True)

    WakeUp().run()
    return sorted(seen[len(seen) // 10 :])
