"""Measure what a CUDA graph costs on the GPU and on the host, and compare the simulated H200 with a real one.

Graphs of spinning kernels run on both. The GPU time of a launch is the time between two events around it on an idle
stream. Two chains calibrate the two figures of the profile: ``graph_launch_overhead`` and ``graph_node_overhead``.
Nothing was fitted to the other shapes; their simulated times have to agree within the tolerance.

    python -m benchmarks.graph_costs [--save]      needs a GPU; without one it shows only the simulation
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.isolation import SPIN, WARM_UP, Bench
from benchmarks.report import circumstances, publish, table
from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.backend import find_backend
from headrace.gpu.capture import captured_frontier, instantiate_with_records

TOLERANCE = 0.20
TIMES = 400


@dataclass(frozen=True)
class Shape:
    """A graph: chains of kernels beside each other, perhaps between a first and a last kernel.

    Attributes
    ----------
    chains : tuple of int
        The number of kernels in each chain. The chains begin together, and the graph ends with all of them.
    microseconds : float
        How long each kernel runs.
    between : bool
        Whether one kernel comes before the chains and one after them.
    sliced : bool
        Whether each chain runs on SMs of its own.
    copies : bool
        Whether a copy of a megabyte on the device comes before the chains and another after them.
    recorded : bool
        Whether the graph records an event before and after each kernel.
    """

    chains: tuple[int, ...]
    microseconds: float = 5.0
    between: bool = False
    sliced: bool = False
    copies: bool = False
    recorded: bool = False


CALIBRATION = {"chain of 5": Shape((5,)), "chain of 20": Shape((20,))}
COMPARED = {
    "1 kernel": Shape((1,)),
    "chain of 10": Shape((10,)),
    "chain of 10, of 20 µs": Shape((10,), 20.0),
    "chain of 40": Shape((40,)),
    "fan-out and fan-in of 4": Shape((1, 1, 1, 1), between=True),
    "two chains of 5 joined": Shape((5, 5)),
    "two chains of 5, each on 32 SMs": Shape((5, 5), sliced=True),
    "chains of 2, 4 and 8 joined": Shape((2, 4, 8), between=True),
    "copy in, chain of 5, copy out": Shape((5,), copies=True),
}
RECORDED = Shape((10,), recorded=True)


def capture(bench: Bench, shape: Shape, origin: Any, resources: ExitStack) -> Any:
    """Return the executable graph of a shape, captured on a stream and on others that it forks to."""
    names, device = bench.names, bench.device
    kernel, config = SPIN.on(device), names.LaunchConfig(grid=16, block=128)
    duration = np.int64(round(shape.microseconds * 1e3))
    copied = [device.allocate(1 << 20, stream=origin) for _ in range(2)] if shape.copies else []
    streams = [origin]
    if shape.sliced:
        parts = resources.enter_context(gpu.partition(device, [32] * len(shape.chains)))
        streams = [part.create_stream() for part in parts[: len(shape.chains)]]
    elif len(shape.chains) > 1:
        streams = [device.create_stream() for _ in shape.chains]
    origin.sync()
    resources.callback(lambda: [buffer.close() for buffer in copied])

    records: list[tuple[dict[int, Any], Any]] = []

    def record(stream: Any) -> None:
        if shape.recorded:
            event = device.create_event()
            resources.callback(event.close)  # a graph does not keep its events
            records.append((captured_frontier(stream), event))

    def work(stream: Any) -> None:
        record(stream)
        names.launch(stream, config, kernel, duration)
        record(stream)

    builder = origin.create_graph_builder().begin_building()
    if copied:
        copied[1].copy_from(copied[0], stream=origin)
    if shape.between:
        work(origin)
    fork = origin.record()
    for stream, length in zip(streams, shape.chains, strict=True):
        if stream is not origin:
            stream.wait(fork)
        for _ in range(length):
            work(stream)
        if stream is not origin:
            origin.wait(stream.record())
    if shape.between:
        work(origin)
    if copied:
        copied[0].copy_from(copied[1], stream=origin)
    graph = instantiate_with_records(builder.end_building().graph_definition, records)
    builder.close()
    return graph


def gpu_time(bench: Bench, shape: Shape, times: int) -> float:
    """Return the µs (p50) between events before and after a launch on an idle stream."""
    bench.device.set_current()
    timed = bench.names.EventOptions(timing_enabled=True)
    begin, end = (bench.device.create_event(timed) for _ in range(2))
    stream = bench.device.create_stream()
    found = []
    with ExitStack() as resources:
        graph = capture(bench, shape, bench.device.create_stream(), resources)
        graph.upload(stream)
        for _ in range(WARM_UP + times):
            stream.record(begin)
            graph.launch(stream)
            stream.record(end)
            stream.sync()
            found.append((end - begin) * 1e3)
        graph.close()
    return float(np.percentile(found[WARM_UP:], 50))


def simulated_time(shape: Shape, profile: sim.Profile) -> float:
    """Return the µs that a launch takes on a simulated device."""
    with sim.Machine(profile) as machine:
        return gpu_time(Bench.simulated(machine), shape, 1)


def fit(measured: dict[str, float]) -> tuple[float, float]:
    """Return the two figures of the profile, in seconds, that the times of the two chains give."""
    (short, short_time), (long, long_time) = (
        (CALIBRATION[name].chains[0], measured[name]) for name in CALIBRATION
    )
    kernel = CALIBRATION["chain of 5"].microseconds
    node = (long_time - short_time) / (long - short) - kernel
    launch = short_time - short * kernel - (short - 1) * node
    return launch * 1e-6, node * 1e-6


def host_costs(bench: Bench) -> list[list[object]]:
    """Return rows of the µs that calls take on the host: p50 and p99."""
    names, device = bench.names, bench.device
    device.set_current()
    stream, other = device.create_stream(), device.create_stream()
    event = other.record()
    own = device.create_event()
    kernel, config = SPIN.on(device), names.LaunchConfig(grid=16, block=128)
    one, two = (device.allocate(1 << 20, stream=stream) for _ in range(2))
    shapes = {length: Shape((length,), 1.0) for length in (5, 20)}

    def one_launch() -> None:
        names.launch(stream, config, kernel, np.int64(1000))

    with ExitStack() as resources:
        graphs = {
            length: capture(bench, shape, device.create_stream(), resources)
            for length, shape in shapes.items()
        }
        recorded = capture(bench, Shape((5,), 1.0, recorded=True), device.create_stream(), resources)

        def frame() -> None:
            stream.wait(event)
            two.copy_from(one, stream=stream)
            graphs[5].launch(stream)
            stream.record(own)

        def record_anew() -> None:
            capture(bench, shapes[5], other, resources).close()

        calls: dict[str, Callable[[], object]] = {
            "launch of a kernel": one_launch,
            "five launches of a kernel": lambda: [one_launch() for _ in range(5)],
            "launch of a graph of 5 kernels": lambda: graphs[5].launch(stream),
            "launch of a graph of 20 kernels": lambda: graphs[20].launch(stream),
            "launch of a graph of 5 kernels and 10 event records": lambda: recorded.launch(stream),
            "wait for an event": lambda: stream.wait(event),
            "record of an event": lambda: stream.record(own),
            "record of a new event": stream.record,
            "copy of a megabyte on the device": lambda: two.copy_from(one, stream=stream),
            "wait, copy in, launch of 5 kernels, record": frame,
            "capture of 5 kernels, instantiation, close": record_anew,
        }
        rows: list[list[object]] = []
        for name, call in calls.items():
            times = []
            for index in range(WARM_UP + TIMES):
                began = time.perf_counter_ns()
                call()
                times.append((time.perf_counter_ns() - began) / 1e3)
                if index % 8 == 0:
                    stream.sync()  # the queue of the stream must not fill up
            p50, p99 = np.percentile(times[WARM_UP:], [50, 99])
            rows.append([name, f"{p50:.1f}", f"{p99:.1f}"])
        stream.sync()
        for graph in (*graphs.values(), recorded):
            graph.close()
    return rows


def main() -> int:
    real = Bench.real() if find_backend("cuda").why_not() is None else None
    profile = sim.PROFILES["h200"]
    lines = ["# What a graph costs, and the simulated H200 compared with a real one", ""]
    if real is None:
        rows = [
            [name, f"{simulated_time(shape, profile):.1f}"]
            for name, shape in {**CALIBRATION, **COMPARED}.items()
        ]
        publish("graph_costs", "\n".join([*lines, table(["graph", "simulated µs"], rows)]))
        return 0
    measured = {name: gpu_time(real, shape, TIMES) for name, shape in {**CALIBRATION, **COMPARED}.items()}
    launch, node = fit(measured)
    fitted = replace(profile, graph_launch_overhead=launch, graph_node_overhead=max(node, 0.0))
    rows = []
    worst = 0.0
    for name, truth in measured.items():
        model = simulated_time({**CALIBRATION, **COMPARED}[name], profile)
        again = simulated_time({**CALIBRATION, **COMPARED}[name], fitted)
        if name in COMPARED:
            worst = max(worst, abs(model / truth - 1))
        label = name if name in COMPARED else f"{name} (calibrated beside)"
        rows.append(
            [
                label,
                f"{truth:.1f}",
                f"{model:.1f}",
                f"{model / truth - 1:+.1%}",
                f"{again / truth - 1:+.1%}",
            ]
        )
    version = ".".join(map(str, find_backend("cuda").driver_version or ()))
    records = (gpu_time(real, RECORDED, TIMES) - measured["chain of 10"]) / 20
    how = f"({TIMES} measurements; the simulation is deterministic). `python -m benchmarks.graph_costs`."
    lines += [
        circumstances(f"{real.device.name}, driver {version}"),
        "",
        f"GPU time of a launch on an idle stream, p50 in µs {how}",
        "Kernels run for 5 µs unless the table says otherwise.",
        "",
        table(["graph", "measured", "simulated", "difference", "with the figures fitted now"], rows),
        "",
        "| figure | fitted µs | profile µs |",
        "| --- | --- | --- |",
        f"| launch to first node | {launch * 1e6:.2f} | {profile.graph_launch_overhead * 1e6:.2f} |",
        f"| node to node | {node * 1e6:.2f} | {profile.graph_node_overhead * 1e6:.2f} |",
        "",
        f"Largest difference {worst:.1%}, {TOLERANCE:.0%} allowed.",
        "",
        f"An event that the graph records takes {records:.2f} µs of the GPU's time (20 in a chain of 10 kernels).",
        "",
        f"On the host, µs a call ({TIMES} calls):",
        "",
        table(["call", "p50", "p99"], host_costs(real)),
    ]
    publish("graph_costs", "\n".join(lines))
    return worst > TOLERANCE


if __name__ == "__main__":
    sys.exit(main())
