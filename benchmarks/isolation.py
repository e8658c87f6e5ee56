"""Measure the latency of a small, urgent kernel beside a big one, without a pipeline.

    python -m benchmarks.isolation [--times N] [--out PNG]

A load fills the GPU with two launches, one after the other, of blocks that run for 2 ms each. During the first, a
critical kernel of 16 blocks of 100 µs arrives. It is measured without the load, beside the load on plain streams,
on a stream of high priority, and with the GPU partitioned: 16 SMs for the critical kernel and the rest for the
load.

The program runs on a GPU, or on a simulated one where there is none, and says which. Simulated figures, including
those of the host, are in virtual time, where the host takes no time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from examples.shared.needs import needs
from headrace import gpu
from headrace.gpu import sim

SPIN = gpu.kernel(
    "spin",
    source=r"""
extern "C" __global__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
}
""",
    seconds=lambda nanoseconds: nanoseconds * 1e-9,
)


@dataclass(frozen=True)
class Work:
    """A number of blocks of a number of threads, how long each block runs, and how often they are launched."""

    blocks: int
    threads: int
    seconds: float
    launches: int = 1


@dataclass(frozen=True)
class Scenario:
    """A load, a critical kernel, the delay between them, and the SMs of the critical kernel's partition."""

    load: Work
    critical: Work
    delay: float
    critical_sms: int


WARM_UP = 10  # repetitions that are not counted
ISOLATION = Scenario(
    load=Work(blocks=264, threads=1024, seconds=2e-3, launches=2),
    critical=Work(blocks=16, threads=1024, seconds=100e-6),
    delay=1.5e-3,
    critical_sms=16,
)


@dataclass
class Latencies:
    """The latencies of the critical kernel in µs: by the host's clock, and between two events on the GPU."""

    host: list[float] = field(default_factory=list)
    gpu: list[float] = field(default_factory=list)


@dataclass
class Bench:
    """A device, its classes, and the host's clock, which is virtual for a simulated device."""

    device: Any
    names: Any
    now: Callable[[], float]
    sleep: Callable[[float], None]

    @classmethod
    def simulated(cls, machine: sim.Machine) -> Bench:
        return cls(sim.Device(0), sim, lambda: machine.now, machine.sleep)

    @classmethod
    def real(cls) -> Bench:
        from headrace.gpu import cuda

        return cls(cuda.Device(0), cuda, time.perf_counter, _spin_for)


def _spin_for(seconds: float) -> None:
    end = time.perf_counter() + seconds  # a sleep would end late by a varying time
    while time.perf_counter() < end:
        pass


def launcher(bench: Bench, stream: Any, work: Work) -> Callable[[], None]:
    """Return a function that launches the work; it is prepared here, because host time counts as latency."""
    launch, kernel = bench.names.launch, SPIN.on(bench.device)
    config = bench.names.LaunchConfig(grid=work.blocks, block=work.threads)
    duration = np.int64(round(work.seconds * 1e9))

    def submit() -> None:
        for _ in range(work.launches):
            launch(stream, config, kernel, duration)

    return submit


def measure(bench: Bench, scenario: Scenario, critical: Any, load: Any, times: int) -> Latencies:
    """Run a scenario `times` times, with the load on a stream or (None) without it; return the latencies."""
    result = Latencies()
    timed = bench.names.EventOptions(timing_enabled=True)
    begin, end = bench.device.create_event(timed), bench.device.create_event(timed)
    submit_load = None if load is None else launcher(bench, load, scenario.load)
    submit_critical = launcher(bench, critical, scenario.critical)
    for _ in range(WARM_UP + times):
        if submit_load is not None:
            submit_load()
        bench.sleep(scenario.delay)
        start = bench.now()
        critical.record(begin)
        submit_critical()
        critical.record(end)
        critical.sync()
        result.host.append((bench.now() - start) * 1e6)
        result.gpu.append((end - begin) * 1e3)
        bench.device.sync()
    del result.host[:WARM_UP], result.gpu[:WARM_UP]
    return result


def run(bench: Bench, scenario: Scenario, times: int) -> dict[str, Latencies]:
    """Return the critical kernel's latencies alone, beside the load, and partitioned from it."""
    device = bench.device
    device.set_current()
    critical, load = device.create_stream(), device.create_stream()
    urgent = device.create_stream(options=bench.names.StreamOptions(priority=-5))
    results = {
        "alone": measure(bench, scenario, critical, None, times),
        "beside the load": measure(bench, scenario, critical, load, times),
        "beside it, high priority": measure(bench, scenario, urgent, load, times),
    }
    with gpu.partition(device, [scenario.critical_sms]) as (small, rest):
        results["beside it, partitioned"] = measure(
            bench, scenario, small.create_stream(), rest.create_stream(), times
        )
    return results


def show(title: str, clock: str, results: dict[str, Latencies]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=f"in {clock} time")
    table.add_column("critical kernel")
    for column in ("host p50 µs", "host p99 µs", "GPU p50 µs", "GPU p99 µs"):
        table.add_column(column, justify="right")
    for name, latencies in results.items():
        figures = [np.percentile(which, p) for which in (latencies.host, latencies.gpu) for p in (50, 99)]
        table.add_row(name, *(f"{figure:.0f}" for figure in figures))
    Console().print(table)


def plot(title: str, clock: str, results: dict[str, Latencies], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(results)[::-1]
    middle = [float(np.percentile(results[name].gpu, 50)) for name in names]
    worst = [float(np.percentile(results[name].gpu, 99)) for name in names]
    figure, axes = pyplot.subplots(figsize=(8, 2.8), layout="constrained")
    colours = ["#d1495b" if value > 2 * middle[-1] else "#2e7d6b" for value in middle]
    axes.barh(names, middle, color=colours, height=0.6)
    axes.hlines(names, middle, worst, color="black", linewidth=1.5)
    for row, (value, extreme) in enumerate(zip(middle, worst, strict=True)):
        axes.text(max(value, extreme) + 6, row, f"{value:.0f}", va="center")
    axes.set_xlabel(f"GPU latency of the critical kernel, µs of {clock} time (bar: p50, line: to p99)")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=0, help="repetitions (400 on a GPU, 20 simulated)")
    parser.add_argument("--out", type=Path, default=Path("out/isolation.png"), help="file for the plot")
    options = parser.parse_args()
    needs("rich", "matplotlib")
    if gpu.backend() == "cuda":
        bench, kind, times = Bench.real(), "measured", options.times or 400
        results = run(bench, ISOLATION, times)
    else:
        with sim.Machine("h200") as machine:
            bench, kind, times = Bench.simulated(machine), "SIMULATED, not measured", options.times or 20
            results = run(bench, ISOLATION, times)
    clock = "real" if kind == "measured" else "virtual"
    title = f"{bench.device.name}: {kind}, {times} times"
    show(title, clock, results)
    plot(title, clock, results, options.out)
    print(f"These figures are {kind}, in {clock} time. The plot is in {options.out}.")


if __name__ == "__main__":
    main()
