"""Measure what tracking costs, with and without GPU times, in one run.

    python -m benchmarks.observe [--save]

The chain of `benchmarks.chain` runs with and without a tracker, in turn. On a GPU with CuPy the chain of
`benchmarks.gpu_chain` does, too. `while running` is what a compute takes more until the sink has its last message:
the recording, and the share of the resolver's thread in that time. `in all` adds the processor time of everything
that is resolved after the run.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.chain import chain
from benchmarks.common import machine
from benchmarks.report import circumstances, publish, table
from penstock import gpu
from penstock.core import Fragment
from penstock.core.registry import registry
from penstock.observe.data_flow_tracker import DataFlowTracker
from penstock.observe.observation import Observation

MESSAGES, ROUNDS = 30_000, 9
LIMITS = {"tracked": 1.0, "tracked with GPU times": 2.0}


class Watching:
    """Has runs watched in one of several ways."""

    def __init__(self) -> None:
        self.way = "off"
        self._observe = registry.observe
        registry.observe = self.observe  # type: ignore[method-assign]

    def observe(self, fragment: Fragment) -> Any:
        if self.way == "off":
            return self._observe(fragment)
        return Observation(fragment, [DataFlowTracker()], gpu_times=self.way != "tracked")


def measure(ways: list[str], once: Any, computes: int) -> dict[str, tuple[float, float]]:
    """Return for each way the microseconds per compute while running, and of processor time in all."""
    watching = Watching()
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(ROUNDS):  # in turn, because the speed of the machine varies
        for way in ways:
            watching.way = way
            began = time.process_time_ns()
            running = once()
            found[way].append((running, (time.process_time_ns() - began) / 1e3 / computes))
    registry.observe = watching._observe  # type: ignore[method-assign]
    return {
        way: (min(run for run, _ in costs), min(all_ for _, all_ in costs)) for way, costs in found.items()
    }


def rows_of(name: str, found: dict[str, tuple[float, float]]) -> list[list[str]]:
    running, total = found["off"]
    rows = [[name, "off", f"{running:.2f}", "", "", ""]]
    for way, (cost, cost_in_all) in found.items():
        if way != "off":
            rows.append(
                [
                    "",
                    way,
                    f"{cost:.2f}",
                    f"{cost - running:+.2f}",
                    f"{cost_in_all - total:+.2f}",
                    f"{LIMITS[way]:.1f}",
                ]
            )
    return rows


def main() -> None:
    rows: list[list[str]] = []
    for scheduler in ("greedy", "event-based"):
        found = measure(
            ["off", "tracked"],
            lambda s=scheduler: chain("penstock", s, MESSAGES),
            MESSAGES * 5,
        )
        rows += rows_of(f"chain of five, {scheduler}", found)
    device = "no GPU"
    if gpu.backend() == "cuda":
        import cupy

        from benchmarks import gpu_chain

        device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        for kind in gpu_chain.LIMITS:
            found = measure(
                ["off", "tracked", "tracked with GPU times"],
                lambda k=kind: gpu_chain.with_penstock(k),
                (gpu_chain.FRAMES + 200) * 5,
            )
            rows += rows_of(f"chain of five CuPy kernels, {kind}", found)
    text = [
        "# What tracking costs",
        "",
        circumstances(f"{device}; {machine()}"),
        "",
        f"µs per compute, the least of {ROUNDS} rounds in turn. `python -m benchmarks.observe`.",
        "",
        table(["", "", "while running", "more", "more in all", "allowed"], rows),
    ]
    publish("observe", "\n".join(text))


if __name__ == "__main__":
    main()
