"""``headrace demo``: a critical kernel beside a noisy one, with and without its own slice of the GPU.

The critical flow makes a frame every 2.5 ms, with a kernel of 16 blocks that run for 100 µs. The noisy flow makes
frames as fast as it can, each with a kernel of more blocks than fit on the GPU. A reader follows each, 50 µs late,
and counts wrong frames. The latency is the time between two events on the GPU, before and after the kernel.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace import gpu
from headrace.cli.run import changed_environment
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import Application, Operator, OperatorSpec
from headrace.gpu.backend import active
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from headrace.schedulers import GreedyScheduler

__all__ = ["Figures", "add_arguments", "demonstrate", "main"]

CRITICAL, NOISY = (16, 100_000), (2320, 200_000)  # the blocks of a kernel, and the ns that each runs
CRITICAL_SMS = 16
PERIOD = "2.5ms"
LATE = np.int64(50_000)
WARM_UP = 5  # frames that are not counted
CASES = {
    "alone": {"noise": False, "sliced": False},
    "shared SMs": {"noise": True, "sliced": False},
    "own SMs": {"noise": True, "sliced": True},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Measure the latency of a critical kernel on the GPU: alone, beside a noisy neighbour, and\n"
        "beside it on SMs of its own. Without a GPU the device is simulated, and the output says so."
    )
    parser.epilog = "examples:\n  headrace demo\n  headrace demo --device sim --frames 400"
    parser.add_argument(
        "--frames", type=int, metavar="N", help="critical frames in each case (400 on a GPU, 100 simulated)"
    )
    parser.add_argument("--device", choices=("auto", "cuda", "sim"), help="the device (HEADRACE_DEVICE)")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    if options.frames is not None and options.frames < 2 * WARM_UP:
        options.error(f"--frames must be at least {2 * WARM_UP}: the first {WARM_UP} are not counted")
    variables = {"HEADRACE_SIM_TIME": "virtual"}  # for the line that announces a simulated device
    if options.device is not None:
        variables["HEADRACE_DEVICE"] = options.device
    try:
        with changed_environment(variables):
            is_measured = not active().models_time
            frames = options.frames or (400 if is_measured else 100)
            with active().in_virtual_time():
                rows = demonstrate(frames)
                device = gpu.Device(0).name
    except gpu.DeviceUnavailable as error:
        print(f"headrace demo: {error}", file=sys.stderr)
        return 1
    kind = "measured" if is_measured else "not measured, in virtual time"
    print(f"{device}: {kind}; {frames} critical frames in each case\n")
    print(_table(rows))
    alone, shared, own = (row.p99 for row in rows)
    print(
        f"\nBeside the noisy flow the p99 of the critical kernel is {shared / alone:.1f} times what it is alone;"
        f"\non {rows[-1].sms} SMs of its own it is {own / alone:.1f} times. "
        f"Wrong frames: {sum(row.wrong for row in rows)} of {sum(row.frames for row in rows)}."
    )
    return 0


@dataclass(frozen=True, slots=True)
class Figures:
    """The critical flow in one case; latencies are in µs, frames are those of both flows."""

    case: str
    sms: int
    p50: float
    p99: float
    frames: int
    wrong: int


def demonstrate(frames: int) -> list[Figures]:
    """Run every case with the given number of critical frames."""
    rows = []
    for case, choice in CASES.items():
        app = _Neighbours(frames, **choice)
        app.run()
        critical = app.flows[0][0]
        p50, p99 = np.percentile(critical.latencies, [50, 99])
        readers = [reader for _, reader in app.flows]
        rows.append(
            Figures(
                case,
                critical.sms,
                float(p50),
                float(p99),
                sum(reader.received for reader in readers),
                sum(reader.wrong for reader in readers),
            )
        )
    return rows


def _table(rows: list[Figures]) -> str:
    longest = max(row.p99 for row in rows)
    lines = [f"{'':<10}  {'SMs':>4}  {'GPU p50':>9}  {'GPU p99':>9}"]
    for row in rows:
        bar = "█" * max(round(36 * row.p99 / longest), 1)
        lines.append(f"{row.case:<10}  {row.sms:>4}  {row.p50:>6.0f} µs  {row.p99:>6.0f} µs  {bar}")
    return "\n".join(lines)


_SPIN = r"""
__device__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
}
"""
_MAKE = gpu.kernel(
    "make_frame",
    source=_SPIN
    + r"""
extern "C" __global__ void make_frame(long long* frame, long long number, long long nanoseconds) {
    spin(nanoseconds);
    if (threadIdx.x == 0) frame[blockIdx.x] = number;
}
""",
    seconds=lambda frame, number, nanoseconds: nanoseconds * 1e-9,
    effect=lambda frame, number, nanoseconds: frame.view(np.int64).fill(number),
)


def _check(frame: Any, length: int, number: int, wrong: Any, nanoseconds: int) -> None:
    wrong.view(np.int64)[0] += bool((frame.view(np.int64)[:length] != number).any())


_CHECK = gpu.kernel(
    "check_frame",
    source=_SPIN
    + r"""
extern "C" __global__ void check_frame(
    const long long* frame, int length, long long number, long long* wrong, long long nanoseconds
) {
    spin(nanoseconds);
    int bad = 0;
    for (int i = threadIdx.x; i < length; i += blockDim.x) bad |= frame[i] != number;
    if (__syncthreads_or(bad) && threadIdx.x == 0) *wrong += 1;
}
""",
    seconds=lambda frame, length, number, wrong, nanoseconds: nanoseconds * 1e-9,
    effect=_check,
)


class _Neighbours(Application):
    """The critical flow and, with `noise`, the noisy one; if `sliced`, each has SMs of its own."""

    def __init__(self, frames: int, *, noise: bool, sliced: bool) -> None:
        super().__init__([])
        self.frames, self.noise, self.sliced = frames, noise, sliced
        self.flows: list[tuple[_Maker, _Reader]] = []

    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self))  # one thread is enough: no compute waits for the GPU
        slices = None
        if self.sliced:
            slices = CudaGreenContextPool(self, 0, sms_per_partition={"critical": CRITICAL_SMS})
        pace = PeriodicCondition(self, PERIOD), CountCondition(self, self.frames)
        self.flows = [self._flow("critical", CRITICAL, slices, "critical", *pace)]
        if self.noise:
            self.flows.append(self._flow("noisy", NOISY, slices, "leftover"))

    def _flow(
        self,
        name: str,
        load: tuple[int, int],
        slices: CudaGreenContextPool | None,
        part: str,
        *conditions: Any,
    ) -> tuple[_Maker, _Reader]:
        context = None if slices is None else CudaGreenContext(self, slices, part, name=f"{name}_slice")
        streams = CudaStreamPool(self, 0, 1, cuda_green_context=context, name=f"{name}_streams")
        maker = _Maker(self, streams, *conditions, name=name)
        reader = _Reader(self, streams, name=f"{name}_reader")
        maker.load = reader.load = load
        self.add_flow(maker, reader)
        return maker, reader


class _Maker(Operator):
    """Makes frames on its own stream, with an event before and after the kernel."""

    fragment: _Neighbours
    load: tuple[int, int]

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def start(self) -> None:
        self.device = gpu.Device(0)
        self.device.set_current()
        self.kernel = _MAKE.on(self.device)
        self.config = gpu.LaunchConfig(grid=self.load[0], block=1024)
        self.timed = gpu.EventOptions(timing_enabled=True)
        self.events: list[tuple[Any, Any]] = []
        self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        handle = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(handle, "out")
        stream, number = handle.stream, len(self.events)
        self.sms = self.sms or stream.resources.sm.sm_count
        frame = self.device.allocate(8 * self.load[0], stream=stream)
        arguments = frame, np.int64(number), np.int64(self.load[1])
        # Only the launch stands between the two events: host time spent there would count as latency.
        begin, end = self.device.create_event(self.timed), self.device.create_event(self.timed)
        stream.record(begin)
        gpu.launch(stream, self.config, self.kernel, *arguments)
        stream.record(end)
        self.events.append((begin, end))
        op_output.emit(frame, "out")
        if self.load is CRITICAL and len(self.events) == self.fragment.frames and self.fragment.noise:
            self.fragment.flows[1][0].stop_execution()

    def stop(self) -> None:
        self.latencies = [(end - begin) * 1e3 for begin, end in self.events[WARM_UP:]]  # µs
        self.events = []


class _Reader(Operator):
    """Reads each frame some time after it arrived, on its own stream, and counts wrong frames."""

    load: tuple[int, int]

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        device = gpu.Device(0)
        device.set_current()
        self.kernel = _CHECK.on(device)
        self.config = gpu.LaunchConfig(grid=1, block=256)
        self.received = self.wrong = 0
        # The count outlives the streams of the run, so it is allocated on a stream of its own.
        self.side = device.create_stream()
        self.count = device.allocate(8, stream=self.side)
        self.count.fill(0, stream=self.side)
        self.side.sync()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in").stream
        length, number = np.int32(self.load[0]), np.int64(self.received)
        gpu.launch(stream, self.config, self.kernel, frame, length, number, self.count, LATE)
        self.received += 1

    def stop(self) -> None:
        host = gpu.LegacyPinnedMemoryResource().allocate(8)
        self.count.copy_to(host, stream=self.side)
        self.side.sync()
        self.wrong = int(np.from_dlpack(host).view(np.int64)[0])
        self.count.close()
        self.side.close()
