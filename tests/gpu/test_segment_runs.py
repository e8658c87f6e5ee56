"""Runs with captured segments: all schedulers, clocks and ends of a run, and what can go wrong in it."""

from __future__ import annotations

import gc
import os
import signal
import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest

from penstock import gpu, op
from penstock.core import EndedBy, IOSpec, MetadataPolicy
from penstock.core.errors import AllocationError
from penstock.core.segment import CaptureRefused
from penstock.resources import (
    BlockMemoryPool,
    CudaGreenContext,
    CudaGreenContextPool,
    RealtimeClock,
    StreamOrderedAllocator,
    UnboundedAllocator,
)
from penstock.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from tests.gpu.bench import Bench
from tests.gpu.kernels import mark_sms
from tests.gpu.segment_programs import (
    COUNT,
    FRAMES,
    Blend,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    both,
    chain,
    is_captured,
    launch,
    plain,
    run_with,
    seen_by,
)
from tests.harness import App, MakeScheduler, event_based, greedy

pytestmark = pytest.mark.usefixtures("of_this_process")


def workers(kind: type, count: int) -> MakeScheduler:
    def make(app: Any, **settings: Any) -> Any:
        from tests.harness.application import _in_virtual_time

        return kind(app, worker_thread_number=count, **_in_virtual_time(app, settings))

    return make


def two_segments(app: Any) -> None:
    """Two segments, one after the other, with a branch around the second and an operator between them."""
    a, b, c, d = (Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3, 4, 5))
    between, blend = Stage(app, name="between"), Blend(app, name="blend")
    blend.metadata_policy = MetadataPolicy.UPDATE
    chain(app, Source(app, frames=30, details=True, name="source"), a, b, between, c, d)
    app.add_flow(d, blend, {("out", "one")})
    app.add_flow(b, blend, {("out", "two")})
    chain(app, blend, Sink(app, late=2, name="sink"))
    app.capture(a, b, name="first")
    app.capture(c, d, name="second")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", [EventBasedScheduler, MultiThreadScheduler])
def test_any_number_of_workers(kind: type, count: int) -> None:
    ran = both(two_segments, scheduler=workers(kind, count))
    assert [(one.state, one.replayed) for one in ran.segments] == [("captured", 25)] * 2


@pytest.mark.parametrize("make", [GreedyScheduler, EventBasedScheduler])
def test_real_time(make: type) -> None:
    def scheduler(app: Any, **settings: Any) -> Any:
        return make(app, clock=RealtimeClock(app))

    ran = both(two_segments, scheduler=scheduler)
    assert [(one.state, one.replayed) for one in ran.segments] == [("captured", 25)] * 2


def three(app: Any, frames: int = FRAMES, **options: Any) -> list[Any]:
    """Compose a chain of three that is captured."""
    members = [Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3, 4)]
    chain(app, Source(app, frames=frames, name="source"), *members, Sink(app, name="sink"))
    app.capture(*members, **options)
    return members


# The environment.


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("off", ("off", 0, 0)),
        ("verify", ("verifying", 0, 1)),
        ("strict", ("captured", FRAMES - 5, 1)),
        ("auto", ("captured", FRAMES - 5, 1)),
        ("", ("captured", FRAMES - 5, 1)),
    ],
)
def test_what_the_environment_asks_for(mode: str, expected: tuple[str, int, int]) -> None:
    segment = both(three, mode).segment
    assert (segment.state, segment.replayed, segment.recordings) == expected


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"PENSTOCK_CAPTURE='sometimes': must be one of auto, off, verify, strict"
    ):
        run_with(three, "sometimes")


@pytest.mark.parametrize(("warmup", "verify"), [(1, 0), (1, 1), (5, 0), (2, 4)])
def test_how_many_frames_come_first(warmup: int, verify: int) -> None:
    ran = both(lambda app: three(app, warmup=warmup, verify=verify) and None)
    assert is_captured(ran, unreplayed=warmup + verify)


def test_frames_that_look_alike_say_little() -> None:
    """A mistake that depends on the contents is not found by comparing the same frame again."""

    def blank(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 0, 0)
        op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        members = [Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3, 4)]
        blanked = Work(app, body=blank, name="blank")
        chain(app, Source(app, frames=30, name="source"), blanked, *members, Sink(app, name="sink"))
        app.capture(*members)

    assert is_captured(both(compose), 30, unreplayed=3 + 1 + 8)


def test_a_program_runs_again() -> None:
    app = App(lambda app: three(app) and None, greedy)
    first = app.run(), seen_by(app)
    states = [segment.state for segment in app.segments]
    second = app.run(), seen_by(app)
    assert first[1] == second[1]
    assert states == [segment.state for segment in app.segments] == ["captured"]


def test_two_programs_run_at_once() -> None:
    expected = run_with(two_segments, "off").seen
    apps = [App(two_segments, event_based) for _ in range(2)]
    futures = [app.run_async() for app in apps]
    for future in futures:
        future.result(60)
    for app in apps:
        assert seen_by(app) == expected
        assert [segment.state for segment in app.segments] == ["captured"] * 2


# The end of a run.


@pytest.mark.parametrize("frame", range(8))
@pytest.mark.parametrize("how", ["run", "member", "source", "error", "interrupt"])
def test_a_run_ends_in_every_state(frame: int, how: str) -> None:
    """While warming up (0 to 2), recording and verifying (3, 4), and captured."""

    def compose(app: Any) -> None:
        def control(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == frame:
                if how == "run":
                    self.fragment.stop_execution()
                elif how == "member":
                    context.find_operator("s3").stop_execution()
                elif how == "source":
                    context.find_operator("source").stop_execution()
                elif how == "error":
                    raise KeyError("at this frame")
                else:
                    signal.raise_signal(signal.SIGINT)
            self.number += 1
            op_output.emit(op_input.receive("in"), "out")

        members = [Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3, 4)]
        controls = Work(app, body=control, name="control")
        controls.number = 0
        sink = Sink(app, name="sink")
        app.sink = sink
        chain(app, Source(app, name="source"), controls, *members, sink)
        app.capture(*members)

    seen = {}
    ended = {}
    for mode in ("off", ""):
        app = App(compose, greedy)
        with mock.patch.dict(os.environ, {"PENSTOCK_CAPTURE": mode}):
            if how == "error":
                with pytest.raises(KeyError, match="at this frame"):
                    app.run()
            elif how == "interrupt":
                with pytest.raises(KeyboardInterrupt):
                    app.run()
            else:
                app.run()
        seen[mode] = app.sink.seen
        ended[mode] = app.outcome.ended_by
    assert ended[""] == ended["off"]
    # The segment is one operator to the scheduler, so it may have been a frame ahead.
    common = min(map(len, seen.values()))
    assert seen[""][:common] == seen["off"][:common]
    assert abs(len(seen[""]) - len(seen["off"])) <= 2
    assert common >= frame - 3


@pytest.mark.parametrize("frame", range(2, 7))
def test_an_operator_that_stops_itself(frame: int) -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data, number = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            launch(stream, affine, data, data, COUNT, 2, 1)
            if number:
                self.stop_execution()
            op_output.emit(data, "out")

        member, last = Work(app, body=body, name="member"), Stage(app, name="last")
        source = Source(app, make=lambda data, number: (data, number == frame), name="source")
        chain(app, source, member, last, Sink(app, name="sink"))
        app.capture(member, last)

    ran = both(compose)
    assert len(ran.seen["sink"]) == frame + 1


@pytest.mark.parametrize("where", ["start", "compute", "stop"])
@pytest.mark.parametrize("scheduler", [greedy, event_based])
def test_an_error_of_a_member_names_it(where: str, scheduler: MakeScheduler) -> None:
    class Faulty(Stage):
        def start(self) -> None:
            if where == "start":
                raise ValueError("faulty")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if where == "compute":
                raise ValueError("faulty")
            super().compute(op_input, op_output, context)

        def stop(self) -> None:
            if where == "stop":
                raise ValueError("faulty")

    def compose(app: Any) -> None:
        first, faulty = Stage(app, name="first"), Faulty(app, name="faulty")
        chain(app, Source(app, name="source"), first, faulty, Sink(app, name="sink"))
        app.capture(first, faulty, name="segment")

    with pytest.raises(ValueError, match="faulty") as raised:
        run_with(compose, scheduler=scheduler)
    assert raised.value.__notes__[0] == f"raised in {where} of operator 'faulty' (Faulty)"


def test_an_error_that_comes_late_in_compute_names_the_operator() -> None:
    """Frames of another shape run as without capture, and fail as without."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        if frame.shape[0] > COUNT:
            raise ValueError("too large")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 1)
        op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        member, last = Work(app, body=body, name="member"), Stage(app, name="last")
        chain(
            app, Source(app, counts=[COUNT] * 9 + [99], name="source"), member, last, Sink(app, name="sink")
        )
        app.capture(member, last)

    app = App(compose, greedy)
    with pytest.raises(ValueError, match="too large") as raised:
        app.run()
    assert raised.value.__notes__[0] == "raised in compute of operator 'member' (Work)"
    assert app.segments[0].replayed == 4
    assert app.outcome.ended_by is EndedBy.FAILED


def test_an_error_while_recording_and_in_the_ordinary_run_is_that_error() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, number = op_input.receive("in")
        if number:
            raise ValueError("this frame")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 1)
        op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        member = Work(app, body=body, name="member")
        source = Source(app, make=lambda data, number: (data, number >= 7), name="source")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member, warmup=1)

    with pytest.raises(ValueError, match="this frame"):
        run_with(compose)


def test_a_device_error_in_a_replay_ends_the_run(bench: Bench) -> None:
    if not bench.is_simulated:
        pytest.skip("a faulting kernel ends the process's use of a real device")
    from penstock.gpu import sim

    faults = threading.Event()

    def effect(out: np.ndarray, source: np.ndarray) -> None:
        if faults.is_set():
            raise ZeroDivisionError("in a kernel")
        out.view(np.int32)[:] = source.view(np.int32) * 2

    kernel = sim.Kernel("faulty", 1e-5, effect)

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel, result, frame)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        def control(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == 10:
                faults.set()
            self.number += 1
            op_output.emit(op_input.receive("in"), "out")

        controls, member = Work(app, body=control, name="control"), Work(app, body=body, name="member")
        controls.number = 0
        chain(app, Source(app, frames=40, name="source"), controls, member, Sink(app, name="sink"))
        app.segment = app.capture(member)

    app = App(compose, greedy)
    with pytest.raises(gpu.CUDAError, match="LAUNCH_FAILED"):
        app.run()
    assert app.segment.replayed >= 5
    assert app.outcome.ended_by is EndedBy.FAILED


# Memory, slices and queues.


@pytest.mark.parametrize("kind", ["unbounded", "blocks", "ordered"])
def test_each_kind_of_allocator(kind: str) -> None:
    """A recording has memory of its own, so a pool that is amply large enough without capture is with it.

    Amply, since how soon a block comes back depends on the device's time, and the least number with it.
    """

    def allocator(app: Any, name: str, blocks: int) -> Any:
        if kind == "unbounded":
            return UnboundedAllocator(app, name=name)
        if kind == "blocks":
            return BlockMemoryPool(app, "device", 4 * COUNT, blocks, name=name)
        return StreamOrderedAllocator(app, 0, 512 * blocks, 0, name=name)

    def program(blocks: int) -> Any:
        def compose(app: Any) -> None:
            members = [Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3)]
            for member in members:
                member.pool = allocator(app, f"{member.name} memory", blocks)
            chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
            app.capture(*members)

        return compose

    blocks = 1
    while True:
        try:
            run_with(program(blocks), "off")
            break
        except AllocationError:
            blocks += 1
    assert is_captured(both(program(blocks + 1)))


def test_members_stay_on_their_slices(bench: Bench) -> None:
    """Each operator of a segment has its own SMs, also in a replay."""
    masks: dict[str, Any] = {}

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        config = gpu.LaunchConfig(grid=512, block=1024)
        gpu.launch(
            stream.stream, config, mark_sms.on(stream.device), _memory(stream, self.seen), np.int64(100_000)
        )
        launch(stream, affine, frame, frame, COUNT, 1, 1)
        op_output.emit(frame, "out")

    def begin(self: Any) -> None:
        stream = self._node.streams.run.default_stream().handle
        self.seen = self.pool.allocate_tensor((256,), np.int32, "device", stream=stream)
        masks[self.name] = self.seen, stream
        launch(stream, affine, self.seen, self.seen, 256, 0, 0)
        stream.stream.sync()

    def compose(app: Any) -> None:
        slices = CudaGreenContextPool(app, sms_per_partition={"a": 16, "b": 40}, name="slices")
        members = [
            Work(app, CudaGreenContext(app, slices, name), body=body, begin=begin, name=name) for name in "ab"
        ]

        def clear(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == 8:  # only replays mark from here on
                stream = context.allocate_cuda_stream("mine")
                for seen, _ in masks.values():
                    launch(stream, affine, seen, seen, 256, 0, 0)
                stream.stream.sync()
            self.number += 1
            op_output.emit(op_input.receive("in"), "out")

        clears = Work(app, body=clear, name="clear")
        clears.number = 0
        chain(app, Source(app, name="source"), clears, *members, Sink(app, name="sink"))
        app.capture(*members)

    ran = run_with(compose)
    assert is_captured(ran)
    marked = {name: set(np.flatnonzero(plain(*mask)[1])) for name, mask in masks.items()}
    assert len(marked["a"]) == 16
    assert len(marked["b"]) == 40
    assert not marked["a"] & marked["b"]


def _memory(stream: Any, tensor: Any) -> Any:
    return tensor if stream.is_simulated else tensor.data


def test_a_source_whose_queue_drops_frames() -> None:
    """Frames are lost before the segment, and what is left is right."""

    def compose(app: Any) -> None:
        member, last = Stage(app, times=3, plus=0, name="member"), Stage(app, times=1, plus=0, name="last")
        source = Source(app, frames=60, name="source")
        app.add_flow(source, member, policy=IOSpec.QueuePolicy.POP)
        chain(app, member, last, Sink(app, name="sink"))
        app.capture(member, last)

    ran = run_with(compose, scheduler=event_based)
    firsts = [one.numbers[1][0] for one in ran.seen["sink"]]
    assert firsts == sorted(set(firsts))
    assert {first % 300 for first in firsts} == {0}
    outcome = ran.app.outcome.operators["member"]
    assert outcome.computes + outcome.dropped.get("in", 0) == 60


@pytest.mark.parametrize("limit", [1, 2])
def test_a_segment_waits_for_the_device_like_any_operator(limit: int) -> None:
    def compose(app: Any) -> None:
        for member in three(app, frames=30):
            member.max_in_flight = limit

    assert is_captured(both(compose), 30)


def test_the_checker_of_streams_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CHECK", "streams")
    assert is_captured(both(three))


def test_a_ring_of_slots() -> None:
    ran = both(lambda app: three(app, frames=40, outputs="ring", slots=3) and None)
    segment = ran.segment
    assert (segment.state, segment.recordings, segment.replayed) == ("captured", 3, 40 - 3 - 6)


def test_a_ring_whose_slots_are_all_held_makes_the_segment_wait() -> None:
    def compose(app: Any) -> None:
        three(app, frames=40, outputs="ring", slots=2)
        next(one for one in app.graph if one.name == "sink").late = 5

    ran = run_with(compose)
    assert ran.app.outcome.ended_by is EndedBy.STARVED
    assert ran.seen["sink"] == run_with(three, "off").seen["sink"][: len(ran.seen["sink"])]


# Functions.


@op
def doubled(frame: Any, *, pool: Any, context: Any) -> Any:
    stream = context.input.receive_cuda_stream("frame")
    result = pool.allocate_tensor(frame.shape, np.int32, "device", stream=stream)
    launch(stream, affine, result, frame, COUNT, 2, 0)
    return result


@op
def tripled(frame: Any, *, pool: Any) -> Any:
    stream = gpu.current_stream()
    result = pool.allocate_tensor(frame.shape, np.int32, "device", stream=stream)
    launch(stream, affine, result, frame, COUNT, 3, 0)
    return result


@op(outputs=("a", "b"))
def both_ways(frame: Any, *, pool: Any, context: Any) -> Any:
    stream = context.input.receive_cuda_stream("frame")
    results = []
    for times in (1, 4):
        results.append(pool.allocate_tensor(frame.shape, np.int32, "device", stream=stream))
        launch(stream, affine, results[-1], frame, COUNT, times, times)
    return {"b": results[0], "a": results[1]}


def test_functions_are_recorded() -> None:
    def compose(app: Any) -> None:
        memory = UnboundedAllocator(app, name="memory")
        first, second = doubled(app, pool=memory), both_ways(app, pool=memory)
        chain(app, Source(app, name="source"), first, second)
        for port in "ab":
            app.add_flow(second, Sink(app, name=port), {(port, "in")})
        app.capture(first, second)

    assert is_captured(both(compose))


def test_functions_that_use_the_current_stream_are_recorded() -> None:
    def compose(app: Any) -> None:
        memory = UnboundedAllocator(app, name="memory")
        slices = CudaGreenContextPool(app, sms_per_partition={"a": 16}, name="slices")
        first = tripled(app, CudaGreenContext(app, slices, "a"), pool=memory)
        last = Stage(app, name="last")
        chain(app, Source(app, name="source"), first, last, Sink(app, name="sink"))
        app.capture(first, last)

    assert is_captured(both(compose))


def test_nothing_of_a_run_is_left() -> None:
    """Neither memory nor operators outlive a run with recordings."""
    import weakref

    def ran() -> list[Any]:
        app = App(two_segments, event_based)
        app.run()
        found = [weakref.ref(app), *map(weakref.ref, app.graph)]
        return found

    references = ran()
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)


def test_a_warning_is_raised_once_for_each_segment(recwarn: pytest.WarningsRecorder) -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            op_input.receive_cuda_stream("in").stream.sync()
            op_output.emit(frame, "out")

        members = [Work(app, body=body, name=f"m{k}") for k in range(4)]
        chain(app, Source(app, frames=30, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members[:2], name="one")
        app.capture(*members[2:], name="two")

    with pytest.warns(CaptureRefused) as warned:
        run_with(compose)
    assert sorted(str(one.message)[:13] for one in warned) == ["segment 'one'", "segment 'two'"]
