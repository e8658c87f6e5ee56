"""A critical flow beside a noisy one, with and without a slice of the GPU of its own.

Two flows, a transmitter and a receiver each, as in green_context.py. The critical one sends a frame every 2.5 ms,
made by a kernel of 16 blocks of 100 µs. The noisy one sends as many as it can, each made by a kernel of more
blocks than fit. The receivers read every frame a while later and count those that are wrong. What is timed is
the transmitters' kernel, between two events on the GPU: how long it took from its turn on its stream to its end.

Runs on a GPU, or simulated where there is none; it says which. Simulated figures are in virtual time: they are what
the model of the GPU says, and are the same on every computer.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock import (
    Application,
    CountCondition,
    GreedyScheduler,
    Operator,
    OperatorSpec,
    PeriodicCondition,
    gpu,
)
from penstock.gpu import sim
from penstock.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool

SPIN = r"""
__device__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
}
"""
MAKE = gpu.kernel(
    "make_frame",
    source=SPIN
    + r"""
extern "C" __global__ void make_frame(long long* frame, long long number, long long nanoseconds) {
    spin(nanoseconds);
    if (threadIdx.x == 0) frame[blockIdx.x] = number;
}
""",
    seconds=lambda frame, number, nanoseconds: nanoseconds * 1e-9,
    effect=lambda frame, number, nanoseconds: frame.view(np.int64).fill(number),
)


def _check(frame: np.ndarray, length: int, number: int, wrong: np.ndarray, nanoseconds: int) -> None:
    wrong.view(np.int64)[0] += bool((frame.view(np.int64)[:length] != number).any())


CHECK = gpu.kernel(
    "check_frame",
    source=SPIN
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

THREADS = 1024
LATE = np.int64(50_000)  # how long a receiver waits before it reads, ns
PERIOD = 2.5e-3
WARM_UP = 10  # frames of each flow that are not counted


@dataclass(frozen=True)
class Load:
    """The kernel that makes a frame: so many blocks that each run for so long."""

    blocks: int
    nanoseconds: int


CRITICAL = Load(blocks=16, nanoseconds=100_000)
NOISY = Load(blocks=2320, nanoseconds=200_000)  # nine rounds on 132 SMs with two blocks each
CRITICAL_SMS = 16


class Transmitter(Operator):
    """Makes frames on a stream of its own and notes when the kernel that did so began and ended."""

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        load: Load,
        sent: Callable[[int], None] = lambda n: None,
        **kwargs: Any,
    ) -> None:
        self.load, self.sent = load, sent
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def start(self) -> None:
        self.device = gpu.Device(0)
        self.device.set_current()
        self.kernel = MAKE.on(self.device)
        self.config = gpu.LaunchConfig(grid=self.load.blocks, block=THREADS)
        self.timed = gpu.EventOptions(timing_enabled=True)
        self.events: list[tuple[Any, Any]] = []
        self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        handle = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(handle, "out")
        stream, number = handle.stream, len(self.events)
        self.sms = self.sms or stream.resources.sm.sm_count
        frame = self.device.allocate(8 * self.load.blocks, stream=stream)
        arguments = frame, np.int64(number), np.int64(self.load.nanoseconds)
        # Nothing but the launch between the two: what the host does there would be counted.
        begin, end = self.device.create_event(self.timed), self.device.create_event(self.timed)
        stream.record(begin)
        gpu.launch(stream, self.config, self.kernel, *arguments)
        stream.record(end)
        self.events.append((begin, end))
        op_output.emit(frame, "out")  # and lets go of it, as every operator does
        self.sent(number + 1)

    def stop(self) -> None:
        counted = self.events[WARM_UP:]
        if not counted:
            return  # ended before it began
        first = counted[0][0]
        self.begins = [(begin - first) * 1e-3 for begin, _ in counted]  # seconds
        self.latencies = [(end - begin) * 1e3 for begin, end in counted]  # µs
        self.rate = (len(counted) - 1) / self.begins[-1]
        self.events = []


class Receiver(Operator):
    """Reads each frame a while after it came, on a stream of its own, and counts those that are wrong."""

    def __init__(self, fragment: Any, *args: Any, load: Load, **kwargs: Any) -> None:
        self.load = load
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        device = gpu.Device(0)
        device.set_current()
        self.kernel = CHECK.on(device)
        self.config = gpu.LaunchConfig(grid=1, block=256)
        self.received = 0
        # The count stays when the run's streams have gone, so it is on one that does.
        self.side = device.create_stream()
        self.count = device.allocate(8, stream=self.side)
        self.count.fill(0, stream=self.side)
        self.side.sync()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in").stream
        length, number = np.int32(self.load.blocks), np.int64(self.received)
        gpu.launch(stream, self.config, self.kernel, frame, length, number, self.count, LATE)
        self.received += 1

    def stop(self) -> None:
        host = gpu.LegacyPinnedMemoryResource().allocate(8)
        self.count.copy_to(host, stream=self.side)
        self.side.sync()
        self.wrong = int(np.from_dlpack(host).view(np.int64)[0])
        self.count.close()
        self.side.close()


class Neighbours(Application):
    """The critical flow, and beside it the noisy one, if it is to be there; on slices, if they are to be."""

    def __init__(
        self, frames: int, *, noise: bool, partitioned: bool, advance: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self.frames, self.noise, self.partitioned, self.advance = frames, noise, partitioned, advance

    def compose(self) -> None:
        # One thread is enough: no compute waits for the GPU.
        self.scheduler(GreedyScheduler(self))
        slices = None
        if self.partitioned:
            slices = CudaGreenContextPool(self, 0, sms_per_partition=[CRITICAL_SMS])
        pace = PeriodicCondition(self, PERIOD), CountCondition(self, self.frames)
        self.flows = {"critical": self._flow("critical", CRITICAL, slices, 0, *pace, sent=self._sent)}
        if self.noise:
            self.flows["noisy"] = self._flow("noisy", NOISY, slices, 1)

    def _flow(
        self,
        name: str,
        load: Load,
        slices: CudaGreenContextPool | None,
        index: int,
        *given: Any,
        **options: Any,
    ) -> tuple[Transmitter, Receiver]:
        context = None if slices is None else CudaGreenContext(self, slices, index, name=f"{name}_slice")
        streams = CudaStreamPool(self, 0, 1, cuda_green_context=context, name=f"{name}_streams")
        transmitter = Transmitter(self, streams, *given, load=load, name=f"{name}_transmitter", **options)
        receiver = Receiver(self, streams, load=load, name=f"{name}_receiver")
        self.add_flow(transmitter, receiver)
        return transmitter, receiver

    def _sent(self, number: int) -> None:
        self.advance()
        if number == self.frames and self.noise:
            self.flows["noisy"][0].stop_execution()


@dataclass(frozen=True)
class Figures:
    """What came of one flow in one case; latencies in µs."""

    case: str
    flow: str
    sms: int
    rate: float
    begins: list[float]
    latencies: list[float]
    frames: int
    wrong: int

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.latencies, share))


CASES = {
    "alone": {"noise": False, "partitioned": False},
    "no partitions": {"noise": True, "partitioned": False},
    "partitions": {"noise": True, "partitioned": True},
}


def run(frames: int, advance: Callable[[], None] = lambda: None) -> list[Figures]:
    """Run every case with so many critical frames."""
    results = []
    for case, choice in CASES.items():
        app = Neighbours(frames, advance=advance, **choice)
        app.run()
        for flow, (sent, received) in app.flows.items():
            figures = sent.sms, sent.rate, sent.begins, sent.latencies, received.received, received.wrong
            results.append(Figures(case, flow, *figures))
    return results


def show(title: str, clock: str, results: list[Figures]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=f"latencies on the GPU in µs, in {clock} time")
    for column in ("case", "flow"):
        table.add_column(column, no_wrap=True)
    for column in ("SMs", "frames/s", "GPU p50", "GPU p99", "wrong"):
        table.add_column(column, justify="right")
    for row in results:
        table.add_row(
            row.case if row.flow == "critical" else "",
            row.flow,
            str(row.sms),
            f"{row.rate:.0f}",
            f"{row.percentile(50):.0f}",
            f"{row.percentile(99):.0f}",
            f"{row.wrong} of {row.frames}",
        )
    Console().print(table)


def plot(title: str, clock: str, results: list[Figures], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    for row, colour in zip(
        (row for row in results if row.flow == "critical"), ("#777777", "#d1495b", "#2e7d6b"), strict=True
    ):
        label = f"{row.case} (p99 {row.percentile(99):.0f} µs)"
        axes.plot(row.begins, row.latencies, ".", color=colour, markersize=3.5, label=label)
    axes.set_yscale("log")
    axes.set_xlabel(f"{clock} time, s")
    axes.set_ylabel("GPU latency of the critical flow, µs")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False, markerscale=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--frames", type=int, default=0, help="critical frames (1200 measured, 400 simulated)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"), help="where the plot goes")
    options = parser.parse_args()
    from needs import needs

    needs("rich", "matplotlib", remedy="pip install 'penstock[demo]'")
    from rich.progress import Progress

    measured = gpu.backend() == "cuda"
    frames = options.frames or (1200 if measured else 400)
    if frames < 2 * WARM_UP:
        parser.error(f"--frames must be at least {2 * WARM_UP}: the first {WARM_UP} are not counted")
    # Drawn by hand, now and then: a thread that draws could come between an event and a launch.
    with Progress(auto_refresh=False) as progress, nullcontext() if measured else sim.Machine("h200"):
        task = progress.add_task("critical frames", total=frames * len(CASES))

        done = itertools.count(1)

        def advance() -> None:
            number = next(done)
            if number % 40 == 0:
                progress.update(task, completed=number, refresh=True)

        results = run(frames, advance)
        device = gpu.Device(0).name
        progress.update(task, completed=frames * len(CASES), refresh=True)
    kind, clock = ("measured", "real") if measured else ("SIMULATED, not measured", "virtual")
    title = f"{device}: {kind}, {frames} critical frames"
    show(title, clock, results)
    plot(title, clock, results, options.out)
    alone, beside, apart = (row.percentile(99) for row in results if row.flow == "critical")
    print(
        f"Beside the noisy flow the critical one's p99 is {beside / alone:.1f} times what it is alone, on its own "
        f"{CRITICAL_SMS} SMs {apart / alone:.1f} times. Wrong frames: {sum(row.wrong for row in results)}."
    )
    print(f"These figures are {kind}, in {clock} time. The plot is in {options.out}.")


if __name__ == "__main__":
    main()
