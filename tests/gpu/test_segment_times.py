"""The times of operators on the device in frames that a captured segment replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.observe import TraceWriter, watch
from headrace.resources import CudaGreenContext, CudaGreenContextPool
from tests.gpu.kernels import spin
from tests.gpu.segment_programs import Sink, Source, Work, chain, launch
from tests.harness import App
from tests.harness.segments import Collects
from tests.observe.traces.traces import load

pytestmark = pytest.mark.usefixtures("of_this_process")

FRAMES = 40
MS = 1_000_000


def _sum_of(out: np.ndarray, one: np.ndarray, two: np.ndarray, count: int) -> None:
    out.view(np.int32)[:count] = one.view(np.int32)[:count] + two.view(np.int32)[:count]


sum_of = gpu.kernel(
    "sum_of",
    source=r"""
extern "C" __global__ void sum_of(int* out, const int* one, const int* two, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = one[i] + two[i];
}
""",
    seconds=1e-6,
    effect=_sum_of,
)


class Lasts(Work):
    """Spins for a known time, and adds its inputs."""

    def __init__(
        self, fragment: Any, *args: Any, milliseconds: float, after: str = "in", **kwargs: Any
    ) -> None:
        self.nanoseconds = int(milliseconds * MS)
        super().__init__(fragment, *args, body=_spin_and_add, inputs=after.split(), **kwargs)


def _spin_and_add(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frames = [op_input.receive(name) for name in self.spec.inputs]
    stream = [op_input.receive_cuda_stream(name) for name in self.spec.inputs][-1]
    gpu.launch(
        stream.stream,
        gpu.LaunchConfig(grid=1, block=32),
        spin.on(stream.device),
        np.int64(self.nanoseconds),
    )
    result = self.new(stream, frames[0])
    launch(stream, sum_of, result, frames[0], frames[-1], frames[0].shape[0])
    op_output.emit(result, "out")


def chained(app: Any, sliced: bool = False) -> None:
    lengths = {"one": 1, "two": 4, "three": 2}
    parts: dict[str, list[Any]] = {name: [] for name in lengths}
    if sliced:
        pool = CudaGreenContextPool(app, sms_per_partition={"one": 16, "two": 24, "three": 16})
        parts = {name: [CudaGreenContext(app, pool, name)] for name in lengths}
    members = [Lasts(app, *parts[name], milliseconds=length, name=name) for name, length in lengths.items()]
    chain(app, Source(app, frames=FRAMES, name="source"), *members, Sink(app, name="sink"))
    app.segment = app.capture(*members, name="middle")


def observed(compose: Any, every: bool = True) -> Collects:
    app = App(compose, clock=None)
    collects = Collects()
    collects.wants_every_gpu_time = every
    watch(app, collects)
    app.run()
    assert app.segment.state == "captured", app.segment.report()  # type: ignore[attr-defined]
    return collects


def replayed_times(collects: Collects, name: str) -> list[int]:
    """Return the times of replays that were timed."""
    return [
        time
        for time, is_replayed in zip(collects.gpu_times(name), collects.replayed(name), strict=True)
        if is_replayed and time
    ]


def are_near(times: list[int], milliseconds: float) -> bool:
    """Return whether all times but one are within 5 % of a length, or 30 µs: there are two kernels and an event."""
    most = max(0.05 * milliseconds * MS, 30_000)
    off = [time for time in times if abs(time - milliseconds * MS) > most]
    return len(off) <= 1  # the machine may have been busy once


def test_each_operator_has_the_time_of_its_own_kernels() -> None:
    collects = observed(chained)
    for name, length in (("one", 1), ("two", 4), ("three", 2)):
        times = replayed_times(collects, name)
        assert len(times) >= FRAMES - 8, name
        assert are_near(times, length), (name, times)


def test_operators_side_by_side_are_timed_each() -> None:
    def compose(app: Any) -> None:
        pool = CudaGreenContextPool(app, sms_per_partition={"left": 16, "right": 16})
        source = Source(app, frames=FRAMES, name="source")
        first = Lasts(app, milliseconds=1, name="first")
        left = Lasts(app, CudaGreenContext(app, pool, "left"), milliseconds=2, name="left")
        right = Lasts(app, CudaGreenContext(app, pool, "right"), milliseconds=5, name="right")
        last = Lasts(app, milliseconds=1, after="a b", name="last")
        sink = Sink(app, name="sink")
        app.add_flow(source, first, left)
        app.add_flow(first, right)
        app.add_flow(left, last, {("out", "a")})
        app.add_flow(right, last, {("out", "b")})
        app.add_flow(last, sink)
        app.segment = app.capture(first, left, right, last)

    collects = observed(compose)
    for name, length in (("first", 1), ("left", 2), ("right", 5), ("last", 1)):
        times = replayed_times(collects, name)
        assert len(times) >= FRAMES - 8, name
        assert are_near(times, length), (name, times)


def test_times_of_the_device_are_inside_the_frame() -> None:
    collects = observed(chained)
    ends = None
    for name in ("one", "two", "three"):
        work = [each for computes in collects.of(name) for each in computes.gpu]
        started = np.concatenate([each.started for each in work])[-30:]
        ended = np.concatenate([each.ended for each in work])[-30:]
        if ends is not None:
            assert (started - ends >= -20_000).all(), name  # but for the error of the clocks
        ends = ended
    for each in collects.of("one"):
        for work in each.gpu:
            assert (work.started - each.started[work.compute - each.first]).min() >= -20_000


def test_few_replays_are_timed_where_nobody_wants_every_time() -> None:
    collects = observed(chained, every=False)
    times = replayed_times(collects, "two")
    assert times
    assert are_near(times, 4)


def test_a_trace_shows_operators_on_their_slices(tmp_path: Path) -> None:
    app = App(lambda app: chained(app, sliced=True), clock=None)
    watch(app, TraceWriter(tmp_path / "trace.json", kernels=False))
    app.run()
    trace = load(tmp_path / "trace.json")
    for name, count in (("one", 16), ("two", 24), ("three", 16)):
        shown = trace.of("X", cat="gpu", name=name)
        replayed = [event for event in shown if event["args"].get("replayed")]
        assert len(replayed) >= FRAMES - 8
        total = gpu.Device(0).resources.sm.sm_count
        track = f"GPU 0: slice {name}, {count} of {total} SMs / stream of {name}"
        assert {trace.track_of(event) for event in shown} == {track}


def test_a_segment_that_is_not_divided_is_timed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("not supported")

    monkeypatch.setattr("headrace.gpu.executables.instantiate_with_records", refuse)
    collects = observed(chained)
    times = replayed_times(collects, "three")
    assert len(times) >= FRAMES - 8
    assert are_near(times, 7), times
    assert replayed_times(collects, "one") == []


def test_frames_are_right_whether_they_are_timed_or_not() -> None:
    seen = []
    for every in (True, False, None):
        app = App(chained, clock=None)
        if every is not None:
            collects = Collects()
            collects.wants_every_gpu_time = every
            watch(app, collects)
        app.run()
        seen.append([message.numbers for message in app.graph.find("sink").seen])  # type: ignore[attr-defined]
    assert len(seen[0]) == FRAMES
    assert seen[0] == seen[1] == seen[2]
