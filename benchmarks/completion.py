"""Compare ways to learn that a stream has passed a point, on a GPU.

``headrace.gpu.when_done`` is one of them; its file explains why it was chosen.

    python -m benchmarks.completion [--save]       needs a GPU
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.isolation import SPIN
from benchmarks.report import circumstances, publish, table
from headrace import gpu
from headrace.gpu import cuda

KERNEL_NS = 300_000
TIMES = 400


def main() -> int:
    device = cuda.Device(0)
    device.set_current()
    kernel, config = SPIN.on(device), cuda.LaunchConfig(grid=16, block=128)
    stream, side = device.create_stream(), device.create_stream()
    known = threading.Event()
    told = lambda *_: known.set()  # noqa: E731

    def work(on: Any) -> None:
        cuda.launch(on, config, kernel, np.int64(KERNEL_NS))

    def beside() -> None:
        side.wait(stream.record())
        gpu.launch_host(side, told)

    inline: list[Any] = [None]

    def keep() -> None:
        inline[0] = stream.record()

    def poll() -> None:
        while not inline[0].is_done:
            pass

    ways: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
        "asking `event.is_done` in a loop": (keep, poll),
        "`event.sync()` on the worker": (keep, lambda: inline[0].sync()),
        "`launch_host` on the stream": (lambda: gpu.launch_host(stream, told), known.wait),
        "`launch_host` on a second stream": (beside, known.wait),
        "`when_done`": (lambda: gpu.when_done(stream, told), known.wait),
    }
    rows = []
    for name, (prepare, wait) in ways.items():
        latency = []
        processor, wall = time.process_time(), time.perf_counter()
        for _ in range(TIMES):
            known.clear()
            start = time.perf_counter()
            work(stream)
            prepare()
            wait()
            latency.append((time.perf_counter() - start) * 1e6)
            stream.sync()
            time.sleep(0.0005)
        busy = (time.process_time() - processor) / (time.perf_counter() - wall)
        rows.append(
            [
                name,
                *(f"{np.percentile(latency, p):.0f}" for p in (50, 99)),
                f"{call_cost(stream, kernel, prepare):.1f}",
                f"{gap(device, stream, kernel, prepare):.1f}",
                f"{busy:.2f}",
            ]
        )
    rows_many = [[name, *many(device, work, how)] for name, how in MANY.items()]
    text = [
        "# Learning that a stream has passed a point",
        "",
        circumstances(device.name),
        "",
        f"µs from the launch of a {KERNEL_NS // 1000} µs kernel to the notification of the host; the cost of",
        "a request; the gap that it leaves in the stream; CPU time over wall time.",
        "`python -m benchmarks.completion`.",
        "",
        table(["way", "p50", "p99", "call µs", "gap µs", "cores busy"], rows),
        "",
        "Eight streams at once:",
        "",
        table(["way", "p50", "p99", "cores busy"], rows_many),
    ]
    publish("completion", "\n".join(text))
    return 0


def call_cost(stream: Any, kernel: Any, ask: Callable[[], object]) -> float:
    """Return the microseconds that a request takes the caller, over many requests in a row."""
    config = cuda.LaunchConfig(grid=1, block=32)
    found = []
    for _ in range(20):
        cuda.launch(stream, config, kernel, np.int64(5_000_000))
        start = time.perf_counter()
        for _ in range(50):
            ask()
        found.append((time.perf_counter() - start) * 1e6 / 50)
        stream.sync()
    return float(np.percentile(found, 50))


def gap(device: Any, stream: Any, kernel: Any, between: Callable[[], object]) -> float:
    """Return the microseconds by which a request between two kernels delays the second."""
    timed, config = cuda.EventOptions(timing_enabled=True), cuda.LaunchConfig(grid=1, block=32)
    first, second = device.create_event(timed), device.create_event(timed)
    found = []
    for _ in range(100):
        cuda.launch(stream, config, kernel, np.int64(500_000))
        stream.record(first)
        between()
        cuda.launch(stream, config, kernel, np.int64(10_000))
        stream.record(second)
        device.sync()
        found.append((second - first) * 1e3 - 10)
    return float(np.percentile(found, 50))


def _by_host_function(stream: Any, side: Any, told: Callable[..., object]) -> None:
    side.wait(stream.record())
    gpu.launch_host(side, told)


MANY: dict[str, Callable[..., None]] = {
    "`launch_host` on second streams": _by_host_function,
    "`when_done`": lambda stream, side, told: gpu.when_done(stream, told),
}


def many(device: Any, work: Callable[[Any], None], how: Callable[..., None]) -> list[str]:
    streams = [(device.create_stream(), device.create_stream()) for _ in range(8)]
    latency: list[float] = []
    all_known = threading.Semaphore(0)
    processor, wall = time.process_time(), time.perf_counter()
    for _ in range(100):
        for stream, side in streams:
            start = time.perf_counter()

            def told(*_: object, start: float = start) -> None:
                latency.append((time.perf_counter() - start) * 1e6)
                all_known.release()

            work(stream)
            how(stream, side, told)
        for _ in streams:
            all_known.acquire()
    busy = (time.process_time() - processor) / (time.perf_counter() - wall)
    return [*(f"{np.percentile(latency, p):.0f}" for p in (50, 99)), f"{busy:.2f}"]


if __name__ == "__main__":
    sys.exit(main())
