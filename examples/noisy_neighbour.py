"""A critical flow beside a noisy one, with and without its own slice of the GPU.

Each flow has a transmitter and a receiver. The critical transmitter makes a frame every 2.5 ms, with a kernel of
16 blocks that run for 100 µs. The noisy transmitter makes frames as fast as it can, each with a kernel of more
blocks than fit on the GPU. The receivers read every frame 50 µs later and count wrong ones. The latency is the time
between two events on the GPU, recorded before and after the transmitter's kernel.

The program runs on a GPU, or on a simulated one where there is none, and says which. Simulated figures are in
virtual time: they come from the model of the GPU and are the same on every computer.

    python examples/noisy_neighbour.py --save demo.json    also writes every latency to a file
    python examples/noisy_neighbour.py --load demo.json    shows and draws a file again, without running anything
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace import (
    Application,
    CountCondition,
    CudaGreenContext,
    CudaGreenContextPool,
    CudaStreamPool,
    GreedyScheduler,
    Operator,
    OperatorSpec,
    PeriodicCondition,
    gpu,
)
from headrace.gpu import sim
from shared.frame_kernels import CHECK, MAKE
from shared.latency_report import Figures, Report, load, plot, save, show
from shared.needs import needs


@dataclass(frozen=True)
class Load:
    """The kernel that makes a frame: its number of blocks, and how long each of them runs."""

    blocks: int
    nanoseconds: int


CRITICAL = Load(blocks=16, nanoseconds=100_000)
NOISY = Load(blocks=2320, nanoseconds=200_000)  # nine waves on 132 SMs with two blocks each
CRITICAL_SMS = 16
PERIOD = 2.5e-3  # seconds between two critical frames
THREADS = 1024  # of a block
LATE = np.int64(50_000)  # ns that a receiver waits before it reads
WARM_UP = 10  # frames of each flow that are not counted


class Neighbours(Application):
    """The critical flow; with `noise`, the noisy flow beside it; if `partitioned`, each on its own slice."""

    def __init__(
        self, frames: int, *, noise: bool, partitioned: bool, advance: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self.frames, self.noise, self.partitioned, self.advance = frames, noise, partitioned, advance

    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self))  # one thread is enough: no compute waits for the GPU
        slices = None
        if self.partitioned:
            slices = CudaGreenContextPool(self, 0, sms_per_partition={"critical": CRITICAL_SMS})
        pace = PeriodicCondition(self, PERIOD), CountCondition(self, self.frames)
        self.flows = {
            "critical": self._flow("critical", CRITICAL, slices, "critical", *pace, sent=self._sent)
        }
        if self.noise:
            self.flows["noisy"] = self._flow("noisy", NOISY, slices, "leftover")

    def _flow(
        self,
        name: str,
        load: Load,
        slices: CudaGreenContextPool | None,
        part: str,
        *conditions: Any,
        **options: Any,
    ) -> tuple[Transmitter, Receiver]:
        context = None if slices is None else CudaGreenContext(self, slices, part, name=f"{name}_slice")
        streams = CudaStreamPool(self, 0, 1, cuda_green_context=context, name=f"{name}_streams")
        transmitter = Transmitter(
            self, streams, *conditions, load=load, name=f"{name}_transmitter", **options
        )
        receiver = Receiver(self, streams, load=load, name=f"{name}_receiver")
        self.add_flow(transmitter, receiver)
        return transmitter, receiver

    def _sent(self, number: int) -> None:
        self.advance()
        if number == self.frames and self.noise:
            self.flows["noisy"][0].stop_execution()


class Transmitter(Operator):
    """Makes frames on its own stream, and records when the kernel that makes a frame began and ended."""

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        load: Load,
        sent: Callable[[int], None] = lambda number: None,
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
        # Only the launch stands between the two events: host time spent there would count as latency.
        begin, end = self.device.create_event(self.timed), self.device.create_event(self.timed)
        stream.record(begin)
        gpu.launch(stream, self.config, self.kernel, *arguments)
        stream.record(end)
        self.events.append((begin, end))
        op_output.emit(
            frame, "out"
        )  # `frame` goes out of scope here; headrace keeps it while the GPU reads it
        self.sent(number + 1)

    def stop(self) -> None:
        counted = self.events[WARM_UP:]
        if not counted:
            return  # the run ended before the warm-up
        seconds = (counted[-1][0] - counted[0][0]) * 1e-3
        self.latencies = [(end - begin) * 1e3 for begin, end in counted]  # µs
        self.rate = (len(counted) - 1) / seconds
        self.events = []


class Receiver(Operator):
    """Reads each frame some time after it arrived, on its own stream, and counts wrong frames."""

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
        # The count outlives the streams of the run, so it is allocated on a stream of its own.
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


CASES = {
    "alone": {"noise": False, "partitioned": False},
    "shared SMs": {"noise": True, "partitioned": False},
    "own SMs": {"noise": True, "partitioned": True},
}


def run(frames: int, advance: Callable[[], None] = lambda: None) -> list[Figures]:
    """Run every case with the given number of critical frames; return the figures of every flow."""
    results = []
    for case, choice in CASES.items():
        app = Neighbours(frames, advance=advance, **choice)
        app.run()
        for flow, (sent, received) in app.flows.items():
            figures = sent.sms, sent.rate, sent.latencies, received.received, received.wrong
            results.append(Figures(case, flow, *figures))
    return results


def measure(frames: int) -> Report:
    """Run every case, with a progress bar, on the GPU or on a simulated H200."""
    from rich.progress import Progress

    measured = gpu.backend() == "cuda"
    frames = frames or (1200 if measured else 400)
    # The bar is refreshed by hand: a thread that draws could run between an event and a launch.
    with Progress(auto_refresh=False) as progress, nullcontext() if measured else sim.Machine("h200"):
        task = progress.add_task("critical frames", total=frames * len(CASES))
        done = itertools.count(1)

        def advance() -> None:
            number = next(done)
            if number % 40 == 0:
                progress.update(task, completed=number, refresh=True)

        rows = run(frames, advance)
        device = gpu.Device(0).name
        progress.update(task, completed=frames * len(CASES), refresh=True)
    return Report(device, measured, frames, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--frames", type=int, default=0, help="number of critical frames (1200 on a GPU, 400 simulated)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"), help="file for the plot")
    parser.add_argument("--save", type=Path, metavar="JSON", help="also write every latency to this file")
    parser.add_argument("--load", type=Path, metavar="JSON", help="report on such a file and run nothing")
    options = parser.parse_args()
    needs("rich", "matplotlib")
    if options.frames and options.frames < 2 * WARM_UP:
        parser.error(f"--frames must be at least {2 * WARM_UP}: the first {WARM_UP} are not counted")
    os.environ["HEADRACE_SIM_TIME"] = "virtual"  # which a simulated GPU runs in here, and is said to run in
    report = load(options.load) if options.load else measure(options.frames)
    if options.save:
        save(report, options.save)
    show(report)
    plot(report, options.out)
    print(report.conclusion())
    print(f"These figures are {report.kind}, in {report.clock} time. The plot is in {options.out}.")


if __name__ == "__main__":
    main()
