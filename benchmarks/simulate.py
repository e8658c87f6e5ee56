"""Measure the cost of simulating, which grows with kernels, not blocks, and is higher if streams contend for SMs.

python -m benchmarks.simulate [--save]
"""

from __future__ import annotations

import sys
import time

from benchmarks.report import circumstances, publish, table
from headrace.gpu import sim

CASES = {  # kernels, blocks of each, threads of a block, streams
    "one block": (100_000, 1, 256, 1),
    "a thousand blocks": (100_000, 1_000, 256, 1),
    "a million blocks": (100_000, 1_000_000, 256, 1),
    "a thousand blocks, 2 streams contending": (10_000, 1_000, 256, 2),
    "a thousand blocks, 8 streams contending": (10_000, 1_000, 256, 8),
    "a thousand blocks, 16 streams contending": (10_000, 1_000, 256, 16),
    "a million blocks, 8 streams contending": (1_000, 1_000_000, 256, 8),
}

LIMIT = """\
The goal of 100,000 kernels of 1,000 blocks in 10 s is met if streams do not contend for SMs: on one stream, or
on separate partitions. Streams that fill the same SMs with blocks of different lengths split each other's grids
into cohorts that end at different times, and each end is a step of the simulation. A kernel then costs
several times as much, and the last rows show by how much the goal is missed."""


def main() -> int:
    rows = []
    for name, (kernels, blocks, threads, lanes) in CASES.items():
        with sim.Machine("h200"):
            device = sim.Device(0)
            device.set_current()
            streams = [device.create_stream() for _ in range(lanes)]
            config = sim.LaunchConfig(grid=blocks, block=threads)
            models = [sim.Kernel("spin", (10_000 + i) * 1e-9) for i in range(100)]
            start = time.perf_counter()
            for i in range(kernels):
                sim.launch(streams[i % lanes], config, models[i % 100])
            device.sync()
            seconds = time.perf_counter() - start
        rows.append([name, f"{kernels:,}", f"{seconds:.1f}", f"{seconds / kernels * 1e6:.0f}"])
    text = [
        "# The cost of simulating",
        "",
        circumstances("no GPU"),
        "",
        "Virtual time, profile h200. `python -m benchmarks.simulate`.",
        "",
        table(["kernels of", "how many", "seconds", "µs per kernel"], rows),
        "",
        LIMIT,
    ]
    publish("simulate", "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
