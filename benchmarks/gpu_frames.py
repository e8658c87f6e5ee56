"""Count frames that arrive wrong, and measure what it costs to prevent them.

    python -m benchmarks.gpu_frames [--save] [--frames N] [--programs N]      needs a GPU, CuPy and PyTorch
    python -m benchmarks.gpu_frames --dry                                     runs the programs without a GPU

A producer fills a new array with the frame's number on its stream. A consumer reads it on its own stream, some
time later, and releases it in one of many ways: it drops it, keeps it for the next compute, takes it out of its
container, keeps a view or an export, or passes it on. The allocator reuses the memory as soon as it is freed, for
the producer's next frame. So a frame that is released too early or read too soon has wrong contents. Then follow
random programs that do all of this at once (`tests/random_programs/frames.py`).

The version by hand uses a ring of buffers, ordered with events both ways, as an expert would write it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from benchmarks.report import circumstances, publish, table
from headrace import (
    Application,
    CountCondition,
    EventBasedScheduler,
    GreedyScheduler,
    MultiThreadScheduler,
    Operator,
    gpu,
)
from tests.random_programs.frames import SimulatedFrames, run_on_streams

SIZE = 1 << 20
SLOTS = 1 << 20
LATE = 1_000_000
SCHEDULERS: dict[str, Any] = {
    "greedy": lambda app: GreedyScheduler(app),
    "multi-thread": lambda app: MultiThreadScheduler(app, worker_thread_number=2),
    "event-based": lambda app: EventBasedScheduler(app, worker_thread_number=2),
}
# The schedulers under which every way of releasing frames is tried.
THOROUGH: dict[str, Any] = {
    "greedy": lambda app: GreedyScheduler(app),
    "event-based, 4 workers": lambda app: EventBasedScheduler(app, worker_thread_number=4),
}
# Waits, then marks the frame if an element has a wrong value.
LATE_CHECK = r"""
extern "C" __global__ void late_check(
    const int* data, int size, int expected, int* wrong, int slot, long long nanoseconds
) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    int bad = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        bad |= data[i] != expected;
    if (bad) wrong[slot] = 1;
}
"""


# The sources of frames, and the kernels that check them late.


class GpuFrames:
    """Frames of a library on a GPU, which a kernel checks after some nanoseconds."""

    def __init__(self, delay: int = LATE) -> None:
        import cupy

        self.cupy = cupy
        self.delay = delay
        self.kernel = cupy.RawKernel(LATE_CHECK, "late_check")
        self.errors = cupy.zeros(SLOTS, cupy.int32)
        self.slots = itertools.count()
        self.asked = 0
        cupy.cuda.Device().synchronize()

    @property
    def wrong(self) -> int:
        self.cupy.cuda.Device().synchronize()
        return int(self.errors.sum())

    def side_stream(self) -> Any:
        device = gpu.Device(0)
        device.set_current()
        return gpu.StreamHandle(device.create_stream())

    def read(self, stream: Any, frame: Any, number: int) -> None:
        self.asked += 1
        cupy = self.cupy
        pointer, size = where(frame)
        slot = next(self.slots) % SLOTS
        with stream.cupy():
            self.kernel(
                (64,),
                (256,),
                (
                    pointer,
                    cupy.int32(size),
                    cupy.int32(number),
                    self.errors,
                    cupy.int32(slot),
                    cupy.int64(self.delay),
                ),
            )

    def change(self, stream: Any, frame: Any, number: int) -> None:
        raise NotImplementedError

    def view(self, frame: Any) -> Any:
        return frame[1:]

    def other_forms(self, frame: Any) -> list[Callable[[], Any]]:
        return [lambda: self.view(frame), lambda: self.export(frame), lambda: self.view(self.view(frame))]

    def export(self, frame: Any) -> Any:
        raise NotImplementedError


class CupyFrames(GpuFrames):
    def fresh(self, stream: Any, number: int) -> Any:
        with stream.cupy():
            return self.cupy.full(SIZE, number, dtype=self.cupy.int32)

    def change(self, stream: Any, frame: Any, number: int) -> None:
        with stream.cupy():
            frame.fill(number)

    def export(self, frame: Any) -> Any:
        import torch

        return torch.from_dlpack(frame) if next(self.slots) % 2 else self.cupy.from_dlpack(frame)


class TorchFrames(GpuFrames):
    def fresh(self, stream: Any, number: int) -> Any:
        import torch

        with torch.cuda.stream(stream.torch()):
            return torch.full((SIZE,), number, dtype=torch.int32, device="cuda")

    def change(self, stream: Any, frame: Any, number: int) -> None:
        import torch

        with torch.cuda.stream(stream.torch()):
            frame.fill_(number)

    def export(self, frame: Any) -> Any:
        import torch

        return torch.from_dlpack(frame) if next(self.slots) % 2 else self.cupy.from_dlpack(frame)


class TorchOnHost:
    """PyTorch tensors without a GPU, for a dry run on any machine: all work is done at once."""

    def __init__(self, delay: int = LATE) -> None:
        self.wrong = self.asked = 0

    def side_stream(self) -> Any:
        device = gpu.Device(0)
        device.set_current()
        return gpu.StreamHandle(device.create_stream())

    def change(self, stream: Any, frame: Any, number: int) -> None:
        frame.fill_(number)

    def fresh(self, stream: Any, number: int) -> Any:
        import torch

        return torch.full((SIZE >> 10,), number, dtype=torch.int32)

    def read(self, stream: Any, frame: Any, number: int) -> None:
        self.wrong += not bool((frame == number).all())

    def view(self, frame: Any) -> Any:
        return frame[1:]

    def export(self, frame: Any) -> Any:
        import torch

        return torch.from_dlpack(frame)

    def other_forms(self, frame: Any) -> list[Callable[[], Any]]:
        return [lambda: self.view(frame), lambda: self.export(frame)]


class OnSimulatedDevice:
    """Buffers of the simulated device, which shows many of the errors that a GPU would show."""

    def __new__(cls, delay: int = LATE) -> Any:
        class Frames(SimulatedFrames):
            def __init__(self) -> None:
                super().__init__(1)

            view = export = staticmethod(lambda frame: frame)

            @property
            def wrong(self) -> int:
                return len(self.mistakes)

        return Frames()


def where(frame: Any) -> tuple[int, int]:
    """Return the address and the number of elements of an array of either library."""
    if hasattr(frame, "data_ptr"):
        return frame.data_ptr(), frame.numel()
    return frame.data.ptr, frame.size


# The ways of releasing a frame.


@dataclass
class Picture:
    number: int
    frame: Any


class Source(Operator):
    def __init__(
        self, fragment: Any, *args: Any, library: Any, wrap: Callable[..., Any], **kwargs: Any
    ) -> None:
        self.library, self.wrap, self.number = library, wrap, 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("source")
        op_output.set_cuda_stream(stream, "out")
        message = self.wrap(self.number, self.library.fresh(stream, self.number))
        op_output.emit(message, "out", acq_timestamp=self.number)
        self.number += 1


class Reader(Operator):
    """Takes a frame out of the message that it received, and reads it on its own stream."""

    def __init__(
        self, fragment: Any, *args: Any, library: Any, take: Callable[..., Any], **kwargs: Any
    ) -> None:
        self.library, self.take_out = library, take
        self.held: list[Any] = []
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        message = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        self.work(*self.take_out(message), stream)

    def work(self, number: int, frame: Any, stream: Any) -> None:
        self.library.read(stream, frame, number)


class KeepsPrevious(Reader):
    def work(self, number: int, frame: Any, stream: Any) -> None:
        for earlier, kept in self.held:
            self.library.read(stream, kept, earlier)
        self.held = [(number, self.form(frame))]

    def form(self, frame: Any) -> Any:
        return frame


class KeepsView(KeepsPrevious):
    def form(self, frame: Any) -> Any:
        return self.library.view(frame)


class KeepsExport(KeepsPrevious):
    def form(self, frame: Any) -> Any:
        return self.library.export(frame)


class GathersFour(Reader):
    def work(self, number: int, frame: Any, stream: Any) -> None:
        self.held.append((number, frame))
        if len(self.held) == 4:
            for earlier, kept in self.held:
                self.library.read(stream, kept, earlier)
            self.held.clear()


class PassesOn(Operator):
    """Passes frames on without a stream of its own, and may hold a few of them first."""

    def __init__(
        self, fragment: Any, *args: Any, library: Any, hold: int, reads: bool, **kwargs: Any
    ) -> None:
        self.library, self.hold, self.reads = library, hold, reads
        self.held: list[Any] = []
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.held.append(op_input.receive("in"))
        if self.reads:
            stream = op_input.receive_cuda_stream("in")
            self.library.read(stream, self.held[-1][1], self.held[-1][0])
        if len(self.held) > self.hold:
            op_output.emit(self.held.pop(0), "out")


def as_pair(number: int, frame: Any) -> Any:
    return number, frame


def out_of_pair(message: Any) -> Any:
    return message


def replace_field(message: Picture) -> Any:
    frame, message.frame = message.frame, None
    return message.number, frame


def replace_value(message: dict[str, Any]) -> Any:
    frame, message["frame"] = message["frame"], None
    return message["number"], frame


@dataclass
class Way:
    """A way of releasing frames."""

    name: str
    wrap: Callable[..., Any] = as_pair
    take: Callable[..., Any] = out_of_pair
    reader: type[Reader] = Reader
    through: dict[str, Any] | None = None


WAYS = [
    Way("dropped"),
    Way("the previous one kept", reader=KeepsPrevious),
    Way("batches of four", reader=GathersFour),
    Way("a field of the message replaced", Picture, replace_field),
    Way("popped from a list", lambda *pair: list(pair), lambda message: (message.pop(0), message.pop())),
    Way("a value of a dict replaced", lambda n, frame: {"number": n, "frame": frame}, replace_value),
    Way("an iterator consumed", lambda *pair: iter(pair), lambda message: tuple(message)),
    Way("a view kept", reader=KeepsView),
    Way("an export kept", reader=KeepsExport),
    Way("passed through an operator without a stream", through={"hold": 0, "reads": False}),
    Way("held there and passed on later", through={"hold": 3, "reads": False}),
    Way("read, held and passed on later", through={"hold": 3, "reads": True}),
]


class Frames(Application):
    """A source, the operators between, and a reader."""

    def __init__(self, scheduler: Callable[[Any], Any], way: Way, library: Any, frames: int) -> None:
        super().__init__()
        self.make_scheduler, self.way, self.library, self.frames = scheduler, way, library, frames

    def compose(self) -> None:
        way, library = self.way, self.library
        self.scheduler(self.make_scheduler(self))
        count = CountCondition(self, self.frames)
        last: Operator = Source(self, count, library=library, wrap=way.wrap, name="source")
        if way.through is not None:
            middle = PassesOn(self, library=library, name="middle", **way.through)
            self.add_flow(last, middle)
            last = middle
        self.add_flow(last, way.reader(self, library=library, take=way.take, name="reader"))


def with_headrace(scheduler: str, make: Any, frames: int, delay: int) -> tuple[int, float]:
    """Return the number of wrong frames, and the frames per second."""
    library = make(delay)
    app = Frames(SCHEDULERS[scheduler], WAYS[0], library, frames)
    start = time.perf_counter()
    app.run()
    seconds = time.perf_counter() - start
    return library.wrong, frames / seconds


def by_hand(frames: int, delay: int, ring: int = 8) -> tuple[int, float]:
    """Return the same for a ring of buffers, ordered both ways by events."""
    import cupy

    library = CupyFrames(delay)
    produce, consume = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    handle = SimpleNamespace(cupy=lambda: consume)
    buffers = [cupy.zeros(SIZE, cupy.int32) for _ in range(ring)]
    written = [cupy.cuda.Event(disable_timing=True) for _ in range(ring)]
    read = [cupy.cuda.Event(disable_timing=True) for _ in range(ring)]
    start = time.perf_counter()
    for number in range(frames):
        k = number % ring
        if number >= ring:
            read[k].synchronize()  # the host must not run ahead without bound either
        with produce:
            buffers[k].fill(number)
        written[k].record(produce)
        consume.wait_event(written[k])
        library.read(handle, buffers[k], number)
        read[k].record(consume)
    consume.synchronize()
    seconds = time.perf_counter() - start
    return library.wrong, frames / seconds


# The report.


def try_all_ways(libraries: dict[str, Any], frames: int) -> list[list[Any]]:
    rows = []
    for way in WAYS:
        row: list[Any] = [way.name]
        for make in libraries.values():
            for scheduler in THOROUGH.values():
                library = make(LATE)
                Frames(scheduler, way, library, frames).run()
                row.append(library.wrong)
        rows.append(row)
    return rows


def try_random_programs(libraries: dict[str, Any], programs: int) -> list[list[Any]]:
    rows = []
    for name, make in libraries.items():
        for kind, scheduler in THOROUGH.items():
            wrong = reads = 0
            for seed in range(programs):
                library = make(LATE // 5)
                program = run_on_streams(seed, library, scheduler)
                if library.wrong:
                    print(f"seed {seed}: {program}", file=sys.stderr)
                wrong += library.wrong
                reads += library.asked
            rows.append([kind, name, wrong, reads])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write the report to benchmarks/results")
    parser.add_argument("--frames", type=int, default=10_000, help="of each scheduler and library")
    parser.add_argument("--programs", type=int, default=25, help="random ones, of each scheduler and library")
    parser.add_argument("--dry", action="store_true", help="without a GPU")
    options = parser.parse_args()
    if options.dry:
        return dry_run()
    import cupy
    import torch

    cupy.zeros(1).sum().item()
    torch.zeros(1, device="cuda")
    libraries = {"CuPy": CupyFrames, "PyTorch": TorchFrames}
    began = time.perf_counter()
    ways = try_all_ways(libraries, 400)
    programs = try_random_programs(libraries, options.programs)
    rows = []
    for name, make in libraries.items():
        for scheduler in SCHEDULERS:
            wrong, _ = with_headrace(scheduler, make, options.frames, 300_000)
            rows.append([scheduler, name, wrong, options.frames])
    failed = any(any(row[1:]) for row in ways) or any(row[2] for row in [*programs, *rows])
    rates = []
    hand = max(by_hand(3000, 100_000)[1] for _ in range(2))
    for scheduler in SCHEDULERS:
        rate = max(with_headrace(scheduler, CupyFrames, 3000, 100_000)[1] for _ in range(2))
        failed |= rate < 0.9 * hand
        rates.append([scheduler, f"{rate:.0f}", f"{rate / hand:.2f}"])
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    header = [f"{name}, {scheduler}" for name in libraries for scheduler in THOROUGH]
    text = [
        "# Wrong frames",
        "",
        circumstances(device),
        "",
        f"`python -m benchmarks.gpu_frames`, {time.perf_counter() - began:.0f} s. Frames of {SIZE * 4 >> 20} MiB.",
        "",
        "Wrong frames of 400, read 1 ms late, by how the reader releases them:",
        "",
        table(["", *header], ways),
        "",
        f"Random programs, {options.programs} of each kind, that do all of this, read 200 µs late:",
        "",
        table(["scheduler", "library", "wrong", "of"], programs),
        "",
        "Dropped at once, read 300 µs late:",
        "",
        table(["scheduler", "library", "wrong", "of"], rows),
        "",
        f"Frames per second with a consumer of 100 µs; by hand, with a ring of 8 buffers, {hand:.0f}:",
        "",
        table(["scheduler", "frames per second", "of by hand (0.90 at least)"], rates),
    ]
    publish("gpu_frames", "\n".join(text))
    return failed


def dry_run() -> int:
    """Run every program on the simulated device and with PyTorch tensors on the host, in virtual time."""
    from headrace import gpu

    simulated = gpu.backend() == "sim"
    libraries: dict[str, Any] = {"simulated": OnSimulatedDevice} if simulated else {}
    try:
        import torch  # noqa: F401

        libraries["PyTorch on the host"] = TorchOnHost
    except ImportError:
        pass
    if simulated:
        from headrace.gpu import sim

        device: Any = sim.Machine("h200")
    else:
        device = nullcontext()
    with device:
        ways = try_all_ways(libraries, 40)
        programs = try_random_programs(libraries, 10)
    print(table(["", *(f"{name}, {kind}" for name in libraries for kind in THOROUGH)], ways))
    print()
    print(table(["scheduler", "library", "wrong", "of"], programs))
    return any(any(row[1:]) for row in ways) or any(row[2] for row in programs)


if __name__ == "__main__":
    sys.exit(main())
