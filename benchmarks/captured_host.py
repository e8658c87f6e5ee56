"""Measure what a replayed frame of a captured segment costs the host in headrace, without the driver.

    python -m benchmarks.captured_host

The chain of `benchmarks.captured_chain` on the simulated device: a source, five captured stages, a sink. Once the
segment is captured, the calls of the driver do nothing, so the time is that of headrace alone. They are counted.
Arrays are like those of CuPy, and are looked at by the same means. With outputs in a ring, the order after the
readers of a slot is a part of the time.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import time
from collections import Counter
from itertools import pairwise
from operator import attrgetter
from typing import Any
from unittest import mock

from benchmarks.common import machine, table

os.environ["HEADRACE_DEVICE"] = "sim"

from headrace import Application, CountCondition, GreedyScheduler, Operator, gpu
from headrace.capture.segment import CapturedSegment
from headrace.gpu import sim
from headrace.gpu.sim.backend import SimBackend
from headrace.resources import CudaStreamPool, RealtimeClock
from headrace.tensor import register_library
from headrace.tensor.device_arrays import DeviceLibrary, Layout
from headrace.tensor.libraries import NEVER_ALLOCATED

LENGTH, SIZE, BUFFERS, WARM_UP, COUNTED = 5, 4_096, 4, 200, 120


class Pointer:
    __slots__ = ("device_id", "mem", "ptr")

    def __init__(self, memory: Any, address: int) -> None:
        self.mem, self.ptr, self.device_id = memory, address, 0


class Memory:
    __slots__ = ("owner", "ptr")

    def __init__(self, owner: Any, address: int) -> None:
        self.owner, self.ptr = owner, address


class Array:
    """An array like those of CuPy: an object owns its memory."""

    __slots__ = ("data", "dtype", "shape", "strides")

    def __init__(self, pointer: Pointer) -> None:
        self.data, self.shape, self.strides, self.dtype = pointer, (SIZE,), (4,), float


class Arrays(DeviceLibrary):
    """Memory goes back to a list, as to CuPy's pool."""

    types = (Array,)
    lasts = True
    owner: Any = staticmethod(attrgetter("data.mem"))
    begin: Any = staticmethod(attrgetter("data.mem.ptr"))
    address: Any = staticmethod(attrgetter("data.ptr"))
    state: Any = staticmethod(attrgetter("shape", "data"))

    def layout(self, array: Array) -> Layout:
        return Layout(self, array.shape, array.strides, array.dtype, 0)

    def itemsize(self, layout: Layout) -> int:
        return 4

    def numpy_dtype(self, layout: Layout) -> Any:
        return None

    def at(self, layout: Layout, address: int, owner: Any) -> Array:
        return Array(Pointer(Memory(owner, address), address))

    def aliasing(self, layout: Layout, array: Any) -> Any:
        address = array.data.ptr
        return lambda owner: Array(Pointer(Memory(owner, address), address))

    def links(self, array: Array) -> tuple[Any, ...]:
        return (array, array.data, array.data.mem)

    def new(self, layout: Layout, stream: Any) -> Array:
        return new_array()

    def making(self, layout: Layout, stream: Any) -> Any:
        return new_array

    def matching(self, layout: Layout) -> Any:
        _, shape, strides, dtype, device_id = layout

        def matches(data: Any) -> bool:
            return (
                type(data) is Array
                and data.shape == shape
                and data.strides == strides
                and data.dtype is dtype
                and data.data.device_id == device_id
            )

        return matches


register_library(Arrays())
free: list[Any] = []


class Block(Memory):
    """Memory of a pool, whose size is known."""

    __slots__ = ()

    def __del__(self) -> None:
        free.append(self.owner)


NEVER_ALLOCATED.add(Block)


def _allocate() -> tuple[Any, int]:
    device = gpu.Device(0)
    buffer = device.allocate(4 * SIZE, stream=device.default_stream)
    return buffer, int(buffer.handle)


def new_array() -> Array:
    buffer, address = free.pop() if free else _allocate()
    return Array(Pointer(Block((buffer, address), address), address))


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.buffers = itertools.cycle([new_array() for _ in range(BUFFERS)])
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.sent == WARM_UP:
            self.fragment.driver.begin()
        self.sent += 1
        for operator in self.fragment.stages[: self.fragment.changed or 0]:
            operator.set_knob("gain", 0.5 + self.sent)
        op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
        op_output.emit(next(self.buffers), "out")


class Stage(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.buffer = new_array()
        self.kernel = sim.Kernel("k", 1e-9)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        if self.fragment.changed is not None:
            context.knob("gain", "float32", 1)
        stream = op_input.receive_cuda_stream("in")
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=1), self.kernel)
        op_output.emit(self.buffer, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")

    def stop(self) -> None:
        self.fragment.driver.ended = time.thread_time_ns()


class Driver:
    """Counts the calls of the driver, which do nothing after `begin`."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.is_idle = self.is_inside = False
        self.is_counting = True
        self.times: list[int] = []
        self.began = self.ended = 0

    def begin(self) -> None:
        self.is_idle = True
        self.began = time.thread_time_ns()

    def patches(self) -> list[Any]:
        found = [
            mock.patch.object(kind, name, self._around(f"{kind.__name__}.{name}", getattr(kind, name)))
            for kind, name in (
                (sim.Graph, "launch"),
                (sim.Stream, "wait"),
                (sim.Stream, "record"),
                (SimBackend, "write_words"),
            )
        ]
        is_done = sim.Event.is_done.fget
        found.append(
            mock.patch.object(
                sim.Event,
                "is_done",
                property(self._around("Event.is_done", is_done, lambda event: True)),
            )
        )
        found.append(mock.patch.object(CapturedSegment, "compute", self._timed(CapturedSegment.compute)))
        return found

    def _timed(self, compute: Any) -> Any:
        def timed(*args: Any) -> None:
            if self.is_inside:
                compute(*args)
                return
            self.is_inside = True
            began = time.perf_counter_ns()
            compute(*args)
            self.times.append(time.perf_counter_ns() - began)
            self.is_inside = False
            self.is_counting = len(self.times) < WARM_UP + COUNTED

        return timed

    def _around(self, name: str, call: Any, otherwise: Any = lambda *args, **kwargs: None) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            if not self.is_idle:
                return call(*args, **kwargs)
            if self.is_inside and self.is_counting:
                self.calls[name] += 1
            return otherwise(*args, **kwargs)

        return called


class Chain(Application):
    def __init__(self, driver: Driver, frames: int, changed: int | None) -> None:
        super().__init__([])
        self.driver, self.frames, self.changed = driver, frames, changed

    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self, clock=RealtimeClock(self)))
        pool = CudaStreamPool(self, stream_flags=1)
        source = Source(self, CountCondition(self, WARM_UP + self.frames), pool, name="source")
        self.stages = [Stage(self, pool, name=f"stage{k}") for k in range(LENGTH)]
        for one, other in pairwise([source, *self.stages, Sink(self, pool, name="sink")]):
            self.add_flow(one, other)
        self.segment = self.capture(*self.stages, check_every=1e9)


def measured(frames: int, changed: int | None) -> tuple[float, float, str]:
    """Return the microseconds of a replay, the CPU time of a frame, and the driver's calls in a replay.

    Some replays take longer than others, since what was received is looked at after every few of them. So their
    mean counts, without the slowest tenth: the machine may be busy with something else.
    """
    driver = Driver()
    gc.collect()
    free.clear()  # simulated memory goes with the run
    patches = driver.patches()
    for patch in patches:
        patch.start()
    try:
        app = Chain(driver, frames, changed)
        app.run()
    finally:
        for patch in patches:
            patch.stop()
    if app.segment.replayed < frames:
        raise RuntimeError(app.segment.report())
    times = sorted(driver.times[WARM_UP + COUNTED :])
    calls = ", ".join(f"{name} {count / COUNTED:.2f}" for name, count in sorted(driver.calls.items()))
    usual = times[: len(times) * 9 // 10]
    return sum(usual) / len(usual) / 1e3, (driver.ended - driver.began) / 1e3 / frames, calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    forms = {
        "no knobs": None,
        "five knobs, unchanged": 0,
        "one of five knobs changes": 1,
        "five knobs change": 5,
    }
    best: dict[str, tuple[float, float, str]] = {}
    for _ in range(arguments.rounds):
        for name, changed in forms.items():
            found = measured(arguments.frames, changed)
            earlier = best.get(name, found)
            best[name] = min(earlier[0], found[0]), min(earlier[1], found[1]), found[2]
    print(f"machine: {machine()}")
    table(
        "a frame of five captured stages on the host, without the driver",
        ["", "µs a replay", "µs of CPU time with source and sink", "driver calls in a replay"],
        [[name, *best[name]] for name in forms],
    )


if __name__ == "__main__":
    main()
