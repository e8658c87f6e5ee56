"""Measure whether branches on their own slices of the GPU overlap, and whether they disturb each other.

    python -m benchmarks.gpu_branches [--save]     needs a GPU

The latency of the critical kernel is the time between two events around it. The host needs some microseconds
between recording the first event and launching the kernel, and many more if another thread holds the interpreter
then. To exclude that time, a small kernel is launched first and holds the stream until all three are submitted.
Without it (`--no-hold`) the host's time is included.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.isolation import SPIN
from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, EventBasedScheduler, Operator, gpu
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool

MS = 1_000_000
HOLD = 200_000  # nanoseconds


class Spinner(Operator):
    """Launches blocks that spin, on its own stream, and records how long each launch took on the GPU."""

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        blocks: int,
        nanoseconds: int,
        count: int,
        hold: int = 0,
        **kwargs: Any,
    ) -> None:
        self.blocks, self.nanoseconds, self.count, self.hold = blocks, nanoseconds, count, np.int64(hold)
        super().__init__(fragment, *args, **kwargs)

    def start(self) -> None:
        device = gpu.Device(0)
        device.set_current()
        self.kernel = SPIN.on(device)
        self.config = gpu.LaunchConfig(grid=self.blocks, block=1024)
        self.one_warp = gpu.LaunchConfig(grid=1, block=32)
        self.duration = np.int64(self.nanoseconds)
        # Created in advance: host time between the two records of a launch would count as latency.
        options = gpu.EventOptions(timing_enabled=True)
        self.spare = [(device.create_event(options), device.create_event(options)) for _ in range(self.count)]
        self.events: list[tuple[Any, Any]] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own").stream
        begin, end = pair = self.spare.pop()
        self.events.append(pair)
        if self.hold:
            gpu.launch(stream, self.one_warp, self.kernel, self.hold)
        stream.record(begin)
        gpu.launch(stream, self.config, self.kernel, self.duration)
        stream.record(end)

    def stop(self) -> None:
        self.latencies = [(end - begin) * 1e3 for begin, end in self.events]
        self.span = self.events[-1][1] - self.events[0][0]


class Branches(Application):
    """Spinners side by side, each on a slice of the device or, without slices, on all of it."""

    def __init__(self, sms: list[int] | None, *branches: dict[str, Any]) -> None:
        super().__init__()
        self.sms, self.branches = sms, branches

    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=4))
        slices = None if self.sms is None else CudaGreenContextPool(self, 0, sms_per_partition=self.sms)
        self.spinners = []
        for number, branch in enumerate(self.branches):
            given: list[Any] = [CountCondition(self, branch["count"])]
            if slices is not None:
                context = CudaGreenContext(self, slices, number)
                given.append(CudaStreamPool(self, 0, 1, cuda_green_context=context))
            else:
                given.append(CudaStreamPool(self, 0, 1))
            in_flight = branch.pop("in_flight", 8)
            spinner = Spinner(self, *given, name=f"branch{number}", **branch)
            spinner.max_in_flight = in_flight
            self.spinners.append(spinner)
            self.add_operator(spinner)


def spans(sms: list[int] | None, *branches: dict[str, Any]) -> list[float]:
    app = Branches(sms, *(dict(branch) for branch in branches))
    app.run()
    first = min(
        (s.events[0][0] for s in app.spinners), key=lambda event: event - app.spinners[0].events[0][0]
    )
    return [s.span for s in app.spinners] + [max(s.events[-1][1] - first for s in app.spinners)]


def critical(sms: list[int] | None, *branches: dict[str, Any]) -> tuple[float, float]:
    app = Branches(sms, *(dict(branch) for branch in branches))
    app.run()
    latencies = app.spinners[0].latencies[10:]
    return float(np.percentile(latencies, 50)), float(np.percentile(latencies, 99))


def main() -> int:
    small = {"blocks": 32, "nanoseconds": MS, "count": 200}
    large = {"blocks": 232, "nanoseconds": MS, "count": 200}
    one, other, both = spans([16], small, large)
    overlap = both / max(one, other)
    hold = 0 if "--no-hold" in sys.argv else HOLD
    urgent = {"blocks": 16, "nanoseconds": MS // 10, "count": 600, "in_flight": 1, "hold": hold}
    noise = {"blocks": 464, "nanoseconds": MS, "count": 200}
    alone = critical([16], urgent)
    apart = critical([16], urgent, noise)
    beside = critical(None, urgent, noise)
    ratio = apart[1] / alone[1]
    text = [
        "# Branches of a pipeline on their own slices",
        "",
        circumstances(gpu.Device(0).name),
        "",
        "`python -m benchmarks.gpu_branches`. Two branches of 200 kernels of 1 ms, on 16 and on 116 SMs:",
        "",
        table(
            ["", "ms"],
            [
                ["first branch", f"{one:.1f}"],
                ["second branch", f"{other:.1f}"],
                ["both, from the first start to the last end", f"{both:.1f}"],
                ["of the longer one (1.10 allowed)", f"{overlap:.3f}"],
            ],
        ),
        "",
        "GPU latency of a critical operator's 100 µs kernel, µs, beside a branch that fills the GPU"
        + (":" if hold else ", including the host's time to launch it:"),
        "",
        table(
            ["", "p50", "p99"],
            [
                ["alone, 16 SMs", *(f"{value:.0f}" for value in alone)],
                ["beside the noisy branch, 16 and 116 SMs", *(f"{value:.0f}" for value in apart)],
                ["beside the noisy branch, not partitioned", *(f"{value:.0f}" for value in beside)],
                ["p99 partitioned, of alone (1.15 allowed)", "", f"{ratio:.2f}"],
            ],
        ),
    ]
    publish("gpu_branches", "\n".join(text))
    return overlap > 1.1 or ratio > 1.15


if __name__ == "__main__":
    sys.exit(main())
