"""Programs that do what one should not do, or what one rarely does, in captured segments: every frame is right."""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, gpu
from headrace.capture import CaptureRefused
from headrace.core import IOSpec
from headrace.resources import CudaStreamPool
from tests.gpu.bench import Bench
from tests.gpu.segment_programs import (
    COUNT,
    FRAMES,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    both,
    chain,
    count_up,
    is_captured,
    launch,
    run_with,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


def around(body: Callable[..., None], **options: Any) -> Any:
    """Return a program of three captured operators, with this compute in the middle."""

    def compose(app: Any) -> None:
        first, last = Stage(app, name="first"), Stage(app, name="last")
        middle = Work(app, body=body, begin=begin, name="middle")
        chain(app, Source(app, name="source"), first, middle, last, Sink(app, name="sink"))
        app.capture(first, middle, last, **options)

    return compose


def begin(self: Any) -> None:
    self.other = self.scratch = None
    self.number = 0


def work(self: Any, op_input: Any, op_output: Any) -> Any:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, frame.shape[0], 2, 3)
    op_output.emit(result, "out")
    return stream


def refused(compose: Callable[[Any], None], match: str) -> Any:
    with pytest.warns(CaptureRefused) as warned:
        ran = both(compose)
    assert len(warned) == 1
    text = str(warned[0].message)
    assert re.search(match, text), text
    assert "operator ''" not in text
    assert ran.segment.state == "eager"
    return ran


# Errors that a program hides.


def test_an_operator_that_ignores_an_error_is_named_and_not_the_next_one() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = work(self, op_input, op_output)
        with contextlib.suppress(Exception):
            stream.stream.sync()

    refused(around(body), "operator 'middle'.*(ignored|hid|invalid)")


def test_a_stream_that_joins_the_recording_and_does_not_come_back() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if self.other is None:
            self.other = gpu.StreamHandle(gpu.Device().create_stream())
        stream = work(self, op_input, op_output)
        self.other.stream.wait(stream.stream.record())
        launch(self.other, affine, self.new(self.other), self.new(self.other), COUNT, 1, 1)

    refused(around(body), "synchronize_streams|another stream")


# Work in unusual places.


def test_frames_without_a_stream() -> None:
    """The source waits for its work itself, and sends plain arrays."""

    def compose(app: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.other is None:
                self.other = gpu.StreamHandle(gpu.Device().create_stream())
            frame = self.new(self.other)
            launch(self.other, count_up, frame, COUNT, 100 * self.number)
            self.other.stream.sync()
            self.number += 1
            op_output.emit((frame,), "out")

        def unpack(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            (frame,) = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            result = self.new(stream)
            launch(stream, affine, result, frame, COUNT, 2, 3)
            op_output.emit(result, "out")

        source = Work(app, CountCondition(app, FRAMES), body=emit, begin=begin, inputs=(), name="source")
        member, last = Work(app, body=unpack, name="member"), Stage(app, name="last")
        chain(app, source, member, last, Sink(app, name="sink"))
        app.capture(member, last)

    assert is_captured(both(compose))


def test_streams_of_a_pool_that_has_none_left() -> None:
    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, reserved_size=1, max_size=1, name="one stream")
        members = [Stage(app, pool, times=k, plus=k, name=f"s{k}") for k in (2, 3, 4)]
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members)

    ran = run_with(compose)
    expected = run_with(compose, "off")
    assert ran.seen == expected.seen


# Memory.


def test_too_little_memory_for_a_recording_is_a_refusal(bench: Bench) -> None:
    if not bench.is_simulated:
        pytest.skip("limits the memory of a simulated device")
    from headrace.gpu.sim.machine import current_machine

    size = 1 << 20

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 3)
        op_output.emit(frame, "out")
        if self.number == 0:
            memory = current_machine().devices[0].memory
            # In the first frame of a segment, a copy of what enters is compared with it.
            memory.capacity = memory.in_use + (size if self.fragment.segments[0].state == "off" else 0)
        self.number = 1

    def compose(app: Any) -> None:
        member = Work(app, body=body, begin=begin, name="member")
        chain(app, Source(app, counts=[size // 4], name="source"), member, Sink(app, name="sink"))
        app.capture(member)

    memory = current_machine().devices[0].memory
    capacity = memory.capacity
    expected = run_with(compose, "off").seen
    memory.capacity = capacity
    with pytest.warns(CaptureRefused, match="memory"):
        ran = run_with(compose)
    memory.capacity = capacity
    assert ran.seen == expected


# Ports.


@pytest.mark.parametrize(
    ("port", "reason"),
    [
        (("in", {"size": IOSpec.ANY_SIZE}), "port 'in' does not carry one message at a time"),
    ],
)
def test_inputs_that_carry_several_messages(port: Any, reason: str) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        for frame in op_input.receive("in"):
            launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 3)
            op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        member = Work(app, body=body, inputs=(port,), outputs=(("out", {"size": 2}),), name="member")
        chain(app, Source(app, frames=12, name="source"), member)
        app.add_flow(member, Sink(app, name="sink"), size=2)
        app.capture(member)

    with pytest.warns(CaptureRefused, match=re.escape(reason)):
        ran = both(compose)
    assert ran.segment.state == "eager"


@pytest.mark.parametrize("bad", ["receive", "stream", "emit"])
def test_a_call_that_is_wrong_only_when_it_is_recorded_is_refused(bad: str) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = work(self, op_input, op_output)
        if gpu.is_capturing(stream):
            if bad == "receive":
                op_input.receive("nowhere")
            elif bad == "stream":
                op_output.set_cuda_stream(gpu.StreamHandle(gpu.Device().create_stream()), "out")
            else:
                op_output.emit(np.zeros(3), "nowhere")

    refused(around(body), "operator 'middle'")


def test_an_operator_that_receives_in_another_order_and_twice() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        two = op_input.receive("two")
        assert op_input.receive("two") is None
        one = op_input.receive("one")
        op_input.receive_cuda_stream("one")
        stream = op_input.receive_cuda_streams("two")[0]
        own = op_input.receive_cuda_stream("two", allocate=False)
        assert stream is not None
        result = self.new(own)
        launch(own, affine, result, one, COUNT, 2, 3)
        launch(own, affine, result, two, COUNT, 1, 1)
        op_output.emit(result)

    def compose(app: Any) -> None:
        source = Source(app, name="source")
        first, member = Stage(app, name="first"), Work(app, body=body, inputs=("one", "two"), name="member")
        chain(app, source, first)
        app.add_flow(first, member, {("out", "one")})
        app.add_flow(source, member, {("out", "two")})
        chain(app, member, Sink(app, name="sink"))
        app.capture(first, member)

    assert is_captured(both(compose))


def test_arrays_of_another_device() -> None:
    """Without a copy before the segment it is not recorded."""
    from headrace.gpu import sim
    from headrace.resources import UnboundedAllocator

    if gpu.backend() != "sim":
        pytest.skip("needs two devices")

    def compose(app: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            gpu.Device(1).set_current()
            if self.other is None:
                self.other = gpu.StreamHandle(gpu.Device(1).create_stream())
            frame = self.fragment.there.allocate_tensor((COUNT,), np.int32, "device", stream=self.other)
            launch(self.other, count_up, frame, COUNT, self.number)
            self.other.stream.sync()
            gpu.Device(0).set_current()
            self.number += 1
            op_output.emit((frame,), "out")

        def ignore(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            result = self.new(stream)
            launch(stream, affine, result, result, COUNT, 0, 5)
            op_output.emit(result, "out")

        app.there = UnboundedAllocator(app, dev_id=1, name="there")
        source = Work(app, CountCondition(app, FRAMES), body=emit, begin=begin, inputs=(), name="source")
        member = Work(app, body=ignore, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member)

    with sim.Machine("h200", devices=2):
        sim.Device(0).set_current()
        refused(compose, "'member' receives at 'in' an array on device 1, and the segment is on device 0")


# Graphs that cannot be made, and buffers that are freed.


def twice(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    result = self.new(stream)
    launch(stream, affine, result, frame, COUNT, 2, 1)
    op_output.emit(result, "out")


def test_a_graph_that_cannot_be_made_executable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = bench.names.GraphDefinition
    if not bench.is_simulated:
        pytest.skip("stands in for a method of the simulated device")

    def fails(self: Any, options: Any = None) -> Any:
        raise bench.names.CUDAError("CUDA_ERROR_OUT_OF_MEMORY: no memory for a graph")

    monkeypatch.setattr(definition, "instantiate", fails)

    def compose(app: Any) -> None:
        stage = Stage(app, name="stage")
        chain(app, Source(app, frames=60, name="source"), stage, Sink(app, late=9, name="sink"))
        app.capture(stage)

    with pytest.warns(CaptureRefused, match="no memory for a graph"):
        assert both(compose).segment.state == "eager"


# How long frames live.


def test_frames_of_the_first_computes_do_not_live_to_the_end(bench: Bench) -> None:
    """The operators do not compute any more, but what they received at first is released all the same."""
    if not bench.is_simulated:
        pytest.skip("uses views of simulated buffers")

    class Owner:
        def __init__(self, buffer: Any) -> None:
            self.buffer = buffer

    seen: list[Any] = []

    def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        stream.device.sync()
        buffer = gpu.Device().allocate(4 * COUNT, stream=stream.stream)
        launch(stream, count_up, buffer, COUNT, 100 * self.number)
        owner = Owner(buffer)
        seen.append(weakref.ref(owner))
        op_output.emit(gpu.Buffer.from_handle(int(buffer.handle), 4 * COUNT, owner=owner), "out")
        self.number += 1
        if self.number == 60:
            self.alive = [number for number, ref in enumerate(seen) if ref() is not None]

    def compose(app: Any) -> None:
        app.source = Work(app, CountCondition(app, 60), body=emit, begin=begin, inputs=(), name="source")
        stage = Work(app, body=twice, name="stage")
        chain(app, app.source, stage, Sink(app, name="sink"))
        app.capture(stage)

    ran = run_with(compose)
    assert ran.segment.replayed > 40
    assert min(ran.app.source.alive) > 40
