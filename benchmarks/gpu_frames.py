"""Frames that arrive wrong, and what it costs that none do.

    python -m benchmarks.gpu_frames [--save] [--frames N]      needs a GPU, CuPy and PyTorch

A producer fills a fresh array with the frame's number on its stream; a consumer reads it on its own stream, a
while later, and drops it. The array's memory is given out again at once, to the producer. The same by hand uses
a ring of buffers that are ordered with events both ways, as an expert would write it.
"""

import sys
import time
from typing import Any

import cupy
import torch

from benchmarks.report import circumstances, publish, table
from penstock import (
    Application,
    CountCondition,
    EventBasedScheduler,
    GreedyScheduler,
    MultiThreadScheduler,
    Operator,
)

SIZE = 1 << 20
SCHEDULERS: dict[str, Any] = {
    "greedy": lambda app: GreedyScheduler(app),
    "multi-thread": lambda app: MultiThreadScheduler(app, worker_thread_number=2),
    "event-based": lambda app: EventBasedScheduler(app, worker_thread_number=2),
}
# Waits, then counts the elements that are not what they should be.
LATE_CHECK = cupy.RawKernel(
    r"""
extern "C" __global__ void late_check(const int* data, int size, int expected, int* wrong, long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    int bad = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        bad |= data[i] != expected;
    if (bad) wrong[expected] = 1;
}
""",
    "late_check",
)


class Producer(Operator):
    def __init__(self, fragment: Any, *args: Any, library: str, **kwargs: Any) -> None:
        self.library = library
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.ambient_stream()

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.library == "CuPy":
            frame = cupy.full(SIZE, self.number, dtype=cupy.int32)
        else:
            frame = torch.full((SIZE,), self.number, dtype=torch.int32, device="cuda")
        op_output.emit((self.number, frame), "out")
        self.number += 1


class Consumer(Operator):
    def __init__(self, fragment: Any, *args: Any, frames: int, delay: int, **kwargs: Any) -> None:
        self.frames, self.delay = frames, delay
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.ambient_stream()

    def start(self) -> None:
        self.wrong = cupy.zeros(self.frames, cupy.int32)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number, frame = op_input.receive("in")
        check(
            frame.data.ptr if hasattr(frame, "data") and hasattr(frame.data, "ptr") else frame.data_ptr(),
            number,
            self,
        )


def check(pointer: int, number: int, owner: Any) -> None:
    LATE_CHECK(
        (64,), (256,), (pointer, cupy.int32(SIZE), cupy.int32(number), owner.wrong, cupy.int64(owner.delay))
    )


class Frames(Application):
    def __init__(self, scheduler: str, library: str, frames: int, delay: int) -> None:
        super().__init__()
        self.kind, self.library, self.frames, self.delay = scheduler, library, frames, delay

    def compose(self) -> None:
        self.scheduler(SCHEDULERS[self.kind](self))
        self.consumer = Consumer(self, frames=self.frames, delay=self.delay, name="consumer")
        producer = Producer(self, CountCondition(self, self.frames), library=self.library, name="producer")
        self.add_flow(producer, self.consumer)


def with_penstock(scheduler: str, library: str, frames: int, delay: int) -> tuple[int, float]:
    """Wrong frames, and frames per second."""
    app = Frames(scheduler, library, frames, delay)
    start = time.perf_counter()
    app.run()
    seconds = time.perf_counter() - start
    return int(app.consumer.wrong.sum()), frames / seconds


def by_hand(frames: int, delay: int, ring: int = 8) -> tuple[int, float]:
    """The same with a ring of buffers, ordered both ways by events."""

    class Owner:
        wrong = cupy.zeros(frames, cupy.int32)

    Owner.delay = delay  # type: ignore[attr-defined]
    produce, consume = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
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
        with consume:
            check(buffers[k].data.ptr, number, Owner)
        read[k].record(consume)
    consume.synchronize()
    return int(Owner.wrong.sum()), frames / (time.perf_counter() - start)


def main() -> int:
    frames = int(sys.argv[sys.argv.index("--frames") + 1]) if "--frames" in sys.argv else 10_000
    cupy.zeros(1).sum().item()
    torch.zeros(1, device="cuda")
    rows, failed = [], False
    for library in ("CuPy", "PyTorch"):
        for scheduler in SCHEDULERS:
            wrong, _ = with_penstock(scheduler, library, frames, 300_000)
            failed |= wrong > 0
            rows.append([scheduler, library, wrong, frames])
    rates = []
    hand = max(by_hand(3000, 100_000)[1] for _ in range(2))
    for scheduler in SCHEDULERS:
        rate = max(with_penstock(scheduler, "CuPy", 3000, 100_000)[1] for _ in range(2))
        failed |= rate < 0.9 * hand
        rates.append([scheduler, f"{rate:.0f}", f"{rate / hand:.2f}"])
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Frames that arrive wrong",
        "",
        circumstances(device),
        "",
        f"`python -m benchmarks.gpu_frames`. Frames of {SIZE * 4 >> 20} MiB, read 300 µs late:",
        "",
        table(["scheduler", "library", "wrong", "of"], rows),
        "",
        f"Frames per second with a consumer of 100 µs; by hand, with a ring of 8 buffers, {hand:.0f}:",
        "",
        table(["scheduler", "frames per second", "of by hand (0.90 at least)"], rates),
    ]
    publish("gpu_frames", "\n".join(text))
    return failed


if __name__ == "__main__":
    sys.exit(main())
