"""Measure the time from `emit` on one thread to the start of `compute` on an idle worker: p50 and p99.

    python -m benchmarks.wake_up [--holoscan PYTHON]

The source and the sink have a pinned thread each. The source emits every two milliseconds, so that the thread of
the sink is asleep each time.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.common import elsewhere, load, machine, result, table


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--holoscan", metavar="PYTHON", help="an interpreter that has the Holoscan SDK")
    parser.add_argument("--ticks", type=int, default=2000)
    parser.add_argument("--one", metavar="PACKAGE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        result(latencies(options.one, options.ticks))
        return
    print(f"machine: {machine()}")
    measured = {"headrace": latencies("headrace", options.ticks)}
    if options.holoscan:
        arguments = ["--ticks", str(options.ticks), "--one", "holoscan"]
        measured["Holoscan"] = elsewhere(options.holoscan, "wake_up", arguments)
    rows = [[name, times[len(times) // 2], times[len(times) * 99 // 100]] for name, times in measured.items()]
    table("from emit to compute on an idle worker, event-based", ["", "p50 µs", "p99 µs"], rows)


if __name__ == "__main__":
    main()
