"""Count wrong frames in programs whose frames are made outside of headrace's sight.

    python -m benchmarks.side_threads [--save] [--frames 1000]      needs a GPU and CuPy

In the first program a thread of the program uploads frames on a stream of its own, waits for each, and hands it
over by a queue; a source emits what it finds there. In the second, the source fills its buffers in turn, which rule
5 of the streams forbids: its frames are wrong, and it has to be told so. In both a stage spins before it reads the
frame, so that memory that is used again too early shows, and a sink compares each frame with its number on the
device.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import warnings
from typing import Any

import cupy

from benchmarks.report import circumstances, publish, table
from benchmarks.stream_graphs import SPIN
from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator
from headrace.core.errors import ResentMemoryWarning

SIZE = 1 << 16
KERNELS = (10, 20, 40, 100)
LAYOUTS = ("operator", "branch", "program")


class Grabber(threading.Thread):
    """Uploads frames on a stream of its own, and hands them over complete."""

    def __init__(self, frames: int) -> None:
        super().__init__(daemon=True)
        self.frames = frames
        self.queue: queue.Queue[Any] = queue.Queue(maxsize=4)

    def run(self) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for number in range(self.frames):
                frame = cupy.full(SIZE, number, cupy.int32)
                stream.synchronize()
                self.queue.put((number, frame))
                del frame


class Camera(Operator):
    """Emits what a thread has grabbed, or its own buffers in turn."""

    def __init__(self, *args: Any, grabber: Grabber | None, buffers: int, **kwargs: Any) -> None:
        self.grabber, self.buffers = grabber, [cupy.zeros(SIZE, cupy.int32) for _ in range(buffers)]
        self.number = 0
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.grabber is not None:
            op_output.emit(self.grabber.queue.get(), "out")
            return
        frame = self.buffers[self.number % len(self.buffers)]
        frame[:] = self.number
        op_output.emit((self.number, frame), "out")
        self.number += 1


class Slow(Operator):
    """Spins, then reads the frame."""

    def __init__(self, *args: Any, microseconds: int, **kwargs: Any) -> None:
        self.nanoseconds = cupy.int64(1_000 * microseconds)
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number, frame = op_input.receive("in")
        SPIN((1,), (32,), (self.nanoseconds,))
        op_output.emit((number, frame + 0), "out")


class Sink(Operator):
    """Counts the frames that are not what their number says."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.wrong = cupy.zeros((), cupy.int64)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number, frame = op_input.receive("in")
        self.wrong += (frame != number).any()

    def stop(self) -> None:
        self.count = int(self.wrong)


class Program(Application):
    def __init__(self, frames: int, microseconds: int, layout: str, workers: int, buffers: int) -> None:
        super().__init__()
        self.frames, self.microseconds, self.workers, self.buffers = frames, microseconds, workers, buffers
        self.layout = layout

    def compose(self) -> None:
        self.stream_per = self.layout
        if self.workers:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=self.workers))
        else:
            self.scheduler(GreedyScheduler(self))
        self.grabber = None if self.buffers else Grabber(self.frames)
        camera = Camera(
            self, CountCondition(self, self.frames), grabber=self.grabber, buffers=self.buffers, name="camera"
        )
        slow = [Slow(self, microseconds=self.microseconds, name=f"slow{k}") for k in range(2)]
        self.sink = Sink(self, name="sink")
        self.add_flow(camera, slow[0])
        self.add_flow(slow[0], slow[1])
        self.add_flow(slow[1], self.sink)
        if self.grabber is not None:
            self.grabber.start()


def wrong(*args: Any) -> tuple[int, bool]:
    """Return the number of wrong frames, and whether the program was warned."""
    program = Program(*args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program.run()
    return program.sink.count, any(issubclass(each.category, ResentMemoryWarning) for each in caught)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--frames", type=int, default=1_000)
    options = parser.parse_args()
    rows, failed = [], False
    for buffers in (0, 1, 3):
        for layout in LAYOUTS:
            for workers in (0, 3):
                found = [wrong(options.frames, kernel, layout, workers, buffers) for kernel in KERNELS]
                if buffers:
                    failed |= any(count and not warned for count, warned in found)
                else:
                    failed |= any(count or warned for count, warned in found)
                name = f"{buffers} buffers in turn" if buffers else "a grabber thread"
                shown = [f"{count}{', warned' if warned else ''}" for count, warned in found]
                rows.append([name, layout, "greedy" if not workers else f"{workers} workers", *shown])
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Frames that are made outside of headrace's sight",
        "",
        circumstances(device),
        "",
        f"Wrong frames of {options.frames}, by the time of the kernels in µs. `python -m benchmarks.side_threads`.",
        "",
        table(["program", "stream_per", "scheduler", *(f"{kernel} µs" for kernel in KERNELS)], rows),
    ]
    publish("side_threads", "\n".join(text))
    print("FAILED" if failed else "ok")
    return failed


if __name__ == "__main__":
    sys.exit(main())
