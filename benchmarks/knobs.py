"""Measure what knobs cost a captured segment: unchanged, and with a new value for every frame.

    python -m benchmarks.knobs [--save]        needs a GPU and CuPy

A chain of five stages, each of which multiplies 4,096 floats by a knob, is captured and replayed. The forms differ
in the number of knobs that another operator sets before each frame. Besides, the ways to write a few bytes in the
order of a stream are compared, each in front of a small kernel.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from benchmarks.captured_chain import FRAMES, SIZE, WARM_UP, Sink, Source, Stage, times
from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, Operator, gpu
from headrace.resources import CudaStreamPool

LENGTH, ROUNDS = 5, 5


class Scale(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.buffer = cupy.zeros(SIZE, cupy.float32)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        gain = context.knob("gain", np.float32, 1)
        with op_input.receive_cuda_stream("in").cupy():
            cupy.multiply(data, cupy.asarray(gain), out=self.buffer)
        op_output.emit(self.buffer, "out")


class Control(Source):
    """Sets the knobs of the first stages before it sends a frame."""

    changed = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        for operator in self.fragment.stages[: self.changed]:
            operator.set_knob("gain", 0.5 + self.sent)
        super().compute(op_input, op_output, context)


class Chain(Application):
    def __init__(self, kind: type[Operator], changed: int) -> None:
        super().__init__([])
        self.kind, self.changed = kind, changed

    def compose(self) -> None:
        pool = CudaStreamPool(self, stream_flags=1)
        source = Control(self, CountCondition(self, WARM_UP + FRAMES), pool, name="source")
        source.changed = self.changed
        self.stages = [self.kind(self, pool, name=f"stage{k}") for k in range(LENGTH)]
        sink = Sink(self, pool, name="sink")
        for one, other in itertools.pairwise([source, *self.stages, sink]):
            self.add_flow(one, other)
        self.segment = self.capture(*self.stages)


def measured(kind: type[Operator], changed: int) -> float:
    """Return the microseconds of a frame."""
    times.clear()
    app = Chain(kind, changed)
    app.run()
    if app.segment.replayed < FRAMES:
        raise RuntimeError(app.segment.report())
    return (times[1] - times[0]) * 1e6 / FRAMES


def ways_to_write() -> list[list[str]]:
    """Return the microseconds of the host, and of host and device, for each way to write words before a kernel."""
    device = gpu.Device(0)
    device.set_current()
    stream = device.create_stream(options=gpu.StreamOptions(nonblocking=True))
    handle = gpu.StreamHandle(stream)
    memory = device.allocate(256, stream=stream)
    named: Any = gpu.Buffer
    words = [named.from_handle(int(memory.handle) + 4 * k, 4, owner=memory) for k in range(LENGTH)]
    pinned = gpu.LegacyPinnedMemoryResource().allocate(64)
    part = named.from_handle(int(memory.handle), 64, owner=memory)
    write = handle.backend.write_words
    addresses = [int(word.handle) for word in words]
    data = cupy.zeros(SIZE, cupy.float32)

    def nothing(number: int) -> None:
        pass

    ways: dict[str, Callable[[int], Any]] = {
        "nothing": nothing,
        "a fill": lambda number: words[0].fill(number.to_bytes(4, "little"), stream=stream),
        "five fills": lambda number: [
            each.fill(number.to_bytes(4, "little"), stream=stream) for each in words
        ],
        "one word written": lambda number: write(handle, [(addresses[0], number)]),
        "five words written": lambda number: write(handle, [(address, number) for address in addresses]),
        "a copy of 64 bytes from pinned memory": lambda number: part.copy_from(pinned, stream=stream),
    }
    best = dict.fromkeys(ways, (1e9, 1e9))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            stream.sync()
            with handle.cupy():
                began = time.perf_counter()
                for number in range(2_000):
                    way(number)
                    cupy.add(data, 1, out=data)
                submitted = time.perf_counter()
                stream.sync()
            now = (submitted - began) * 500, (time.perf_counter() - began) * 500
            best[name] = min(best[name][0], now[0]), min(best[name][1], now[1])
    return [[name, f"{host:.1f}", f"{whole:.1f}"] for name, (host, whole) in best.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what knobs cost a captured segment.")
    parser.add_argument("--save", action="store_true", help="write the report to benchmarks/results")
    parser.parse_args()
    forms: dict[str, tuple[type[Operator], int]] = {
        "no knobs": (Stage, 0),
        "five knobs, unchanged": (Scale, 0),
        "five knobs, one changed for each frame": (Scale, 1),
        "five knobs, all changed for each frame": (Scale, 5),
    }
    best = dict.fromkeys(forms, 1e9)
    for _ in range(ROUNDS):  # in turn, because the speed of the machine varies
        for name, form in forms.items():
            best[name] = min(best[name], measured(*form))
    least = best["no knobs"]
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Knobs of a captured segment",
        "",
        circumstances(device),
        "",
        (
            f"µs per frame of {LENGTH} stages over {FRAMES} frames, best of {ROUNDS} rounds in turn. `python -m "
            "benchmarks.knobs`."
        ),
        "",
        table(
            ["", "µs a frame", "more than without"],
            [[name, f"{cost:.1f}", f"{cost - least:.1f}"] for name, cost in best.items()],
        ),
        "",
        "µs for a CuPy kernel behind it, by the host until it is submitted, and until the device is done:",
        "",
        table(["", "host", "host and device"], ways_to_write()),
    ]
    publish("knobs", "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
