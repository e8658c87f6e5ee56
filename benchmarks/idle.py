"""The CPU time of an idle application, by workers and by what it waits for. `headrace bench idle` measures it.

Each program runs for the given seconds of real time and computes next to nothing. The CPU time of the process is
scaled to a minute. The cost of starting and ending is measured with a run of zero seconds and subtracted.
"""

from __future__ import annotations

import resource
from typing import Any

from benchmarks.common import load


def cpu_seconds(package: str, waits_for: str, workers: int, seconds: float) -> float:
    """Return the CPU seconds of a program that waits for the given number of seconds."""
    sdk = load(package)

    class Nothing(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            pass

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            pass

    class Idle(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            settings = {"max_duration_ms": round(seconds * 1e3), "name": "scheduler"}
            if workers == 0:
                self.scheduler(sdk.GreedyScheduler(self, **settings))
            else:
                self.scheduler(sdk.EventBasedScheduler(self, worker_thread_number=workers, **settings))
            if waits_for == "event":
                condition = sdk.AsynchronousCondition(self, name="event")
                condition.event_state = sdk.AsynchronousEventState.EVENT_WAITING
                self.add_operator(Nothing(self, condition, name="waits"))
                return
            for number, period in enumerate([500] if waits_for == "period" else [10, 15]):
                condition = sdk.PeriodicCondition(self, period * 1_000_000, name=f"period{number}")
                self.add_operator(Nothing(self, condition, name=f"ticks{number}"))

    before = resource.getrusage(resource.RUSAGE_SELF)
    Idle().run()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def per_minute(package: str, waits_for: str, workers: int, seconds: float) -> float:
    """Return the CPU seconds per idle minute, without the cost of starting and ending."""
    cpu_seconds(package, waits_for, workers, 0.05)
    overhead = cpu_seconds(package, waits_for, workers, 0.05)
    used = cpu_seconds(package, waits_for, workers, seconds)
    return max(used - overhead, 0.0) * 60 / seconds
