"""Compare the simulated H200 with a real one.

Every scenario runs on both, in one process, and the GPU latency (p50) of the critical kernel is compared. The
first scenario was used to calibrate ``launch_overhead`` of the profile. The others were written afterwards, with
other grids, block sizes, delays and splits, and nothing was fitted to them.

    python -m benchmarks.agreement [--save]        needs a GPU; without one it shows only the simulation
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.isolation import ISOLATION, Bench, Scenario, Work, measure, run
from benchmarks.report import circumstances, publish, table
from headrace.gpu import sim
from headrace.gpu.backend import find_backend

SCENARIOS = {
    "isolation (calibrated beside)": ISOLATION,
    "four waves": Scenario(
        # Four waves of blocks in one launch; the critical kernel arrives during the second.
        load=Work(blocks=1056, threads=1024, seconds=500e-6),
        critical=Work(blocks=32, threads=512, seconds=150e-6),
        delay=0.7e-3,
        critical_sms=24,
    ),
    "room left over": Scenario(
        # Three blocks of 640 threads leave 128 on each SM: too few for a block of the critical kernel.
        load=Work(blocks=396, threads=640, seconds=1.2e-3, launches=2),
        critical=Work(blocks=200, threads=256, seconds=200e-6),
        delay=0.4e-3,
        critical_sms=40,
    ),
    "small blocks": Scenario(
        # Blocks of 64 threads: 32 fit on an SM, by slots and by threads alike.
        load=Work(blocks=3 * 132 * 32, threads=64, seconds=300e-6),
        critical=Work(blocks=264, threads=128, seconds=60e-6),
        delay=0.35e-3,
        critical_sms=64,
    ),
}
TOLERANCE = 0.20


def launch_overhead(bench: Bench) -> float:
    """Return the seconds between two events on an idle stream beyond the kernel between them."""
    bench.device.set_current()
    work = Work(blocks=16, threads=1024, seconds=100e-6)
    alone = measure(bench, Scenario(work, work, 1e-3, 16), bench.device.create_stream(), None, 400)
    return float(np.percentile(alone.gpu, 50)) * 1e-6 - work.seconds


def main() -> int:
    real = Bench.real() if find_backend("cuda").why_not() is None else None
    times = 300
    rows = []
    worst = 0.0
    for name, scenario in SCENARIOS.items():
        with sim.Machine("h200") as machine:
            simulated = run(Bench.simulated(machine), scenario, 3)
        measured = run(real, scenario, times) if real else {}
        for case, latencies in simulated.items():
            model = float(np.percentile(latencies.gpu, 50))
            if measured:
                truth = float(np.percentile(measured[case].gpu, 50))
                off = model / truth - 1
                worst = max(worst, abs(off))
                rows.append([name, case, f"{truth:.0f}", f"{model:.0f}", f"{off:+.1%}"])
            else:
                rows.append([name, case, "-", f"{model:.0f}", "-"])
    lines = ["# The simulated H200 compared with a real one", ""]
    if real:
        version = ".".join(map(str, find_backend("cuda").driver_version or ()))
        lines += [circumstances(f"{real.device.name}, driver {version}"), ""]
    how = f"({times} measurements; the simulation is deterministic). `python -m benchmarks.agreement`."
    lines += [
        f"GPU latency of the critical kernel, p50 in µs {how}",
        "",
        table(["scenario", "critical kernel", "measured", "simulated", "difference"], rows),
        "",
    ]
    if real:
        overhead = launch_overhead(real)
        profile = sim.PROFILES["h200"].launch_overhead
        lines.append(
            f"Launch overhead: {overhead * 1e6:.1f} µs measured, {profile * 1e6:.1f} µs in the profile. "
            f"Largest difference {worst:.1%}, {TOLERANCE:.0%} allowed."
        )
    publish("agreement", "\n".join(lines))
    return worst > TOLERANCE


if __name__ == "__main__":
    sys.exit(main())
