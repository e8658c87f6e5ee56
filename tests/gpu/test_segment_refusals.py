"""What cannot be recorded runs as before, with one warning that names the operator, the call and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import gpu
from headrace.capture import CaptureRefused
from tests.gpu.refused_programs import emit_twice, program, sync_stream, use_host, use_metadata, work
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
    launch,
    plain,
    run_with,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


def sync_device(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    stream = work(self, op_input, op_output)
    stream.device.sync()  # here


def ask_event(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    stream = work(self, op_input, op_output)
    event = stream.stream.record()
    while not event.is_done:  # here
        continue


def wait_for_others(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    if self.other is None:
        self.other = gpu.Device().create_stream()
    stream = work(self, op_input, op_output)
    stream.stream.wait(self.other.record())  # here
    self.other.sync()


def allocate(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    stream = work(self, op_input, op_output)
    self.scratch = stream.device.allocate(64, stream=stream.stream)  # here


def set_metadata(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.metadata["more"] = 1
    work(self, op_input, op_output)


def ask_whether_metadata(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    work(self, op_input, op_output)
    assert self.metadata


def read_clock(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    assert context.timestamp >= 0
    work(self, op_input, op_output)


def read_timestamp(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    stream = work(self, op_input, op_output)
    assert op_input.get_acquisition_timestamp("in") >= 1_000
    assert stream is not None


def ignore_an_error(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    try:
        plus = self.metadata["from source"]
    except Exception:
        plus = 0
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, frame.shape[0], 2, plus)
    op_output.emit(result, "out")


def choose_timestamp(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    context.acq_timestamp = 5
    work(self, op_input, op_output)


def emit_timestamp(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    work(self, op_input, op_output, acq_timestamp=77)


def drop_timestamp(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    work(self, op_input, op_output, acq_timestamp=None)


def use_default_stream(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in", sync_to_default=True)
    launch(stream, affine, frame, frame, COUNT, 2, 3)
    op_output.emit(frame, "out")


def use_own_stream(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    if self.other is None:
        self.other = gpu.StreamHandle(gpu.Device().create_stream())
    frame = op_input.receive("in")
    if not gpu.is_capturing(op_input.receive_cuda_stream("in")):
        op_input.receive_cuda_stream("in").stream.sync()
    launch(self.other, affine, frame, frame, COUNT, 2, 3)
    self.other.stream.sync()
    op_output.emit(frame, "out")


SYNC = "waits for the device or copies to the host.*behind the segment"
BODIES: list[tuple[Callable[..., None], str, str]] = [
    (sync_stream, SYNC, "stream.stream.sync()"),
    (sync_device, SYNC, "stream.device.sync()"),
    (ask_event, "asks whether an event is done", "while not event.is_done"),
    (
        wait_for_others,
        "work on a stream that is not the operator's.*receive_cuda_stream",
        "stream.stream.wait(",
    ),
    (allocate, "cannot be captured|allocat", "stream.device.allocate(64"),
    (use_metadata, "uses its metadata.*before or behind", ""),
    (set_metadata, "uses its metadata.*before or behind", ""),
    (ask_whether_metadata, "uses its metadata.*before or behind", ""),
    (ignore_an_error, "uses its metadata.*before or behind", ""),
    (read_clock, "reads the clock.*use a knob", ""),
    (read_timestamp, "reads the acquisition timestamp.*before or behind", ""),
    (choose_timestamp, "reads the acquisition timestamp|acq_timestamp", ""),
    (emit_timestamp, "emits with a timestamp of its own", ""),
    (drop_timestamp, "emits without the timestamp", ""),
    (use_default_stream, "orders the default stream", ""),
    (use_host, "raised an error while it was recorded.*KeyError.*only here", 'raise KeyError("only here")'),
    (use_own_stream, "launched nothing on its stream|differs from a compute|stream of its own", ""),
    (emit_twice, "emitted 2 messages at 'out' in one compute", ""),
]


@pytest.mark.parametrize(("body", "reason", "line"), BODIES, ids=[body.__name__ for body, _, _ in BODIES])
def test_a_compute_that_cannot_be_recorded(body: Callable[..., None], reason: str, line: str) -> None:
    def prepare(member: Any) -> None:
        member.other = member.scratch = None

    with pytest.warns(CaptureRefused) as warned:
        ran = both(program(body, prepare))
    (warning,) = warned
    text = str(warning.message)
    assert text.startswith("segment 'three' is not captured and runs as without capture: ")
    assert re.search(reason, text), text
    assert "'middle'" in text or body is use_own_stream
    assert line in text
    if line:
        assert f"{Path(body.__code__.co_filename).name}, line" in text
    segment = ran.segment
    assert (segment.state, segment.frames) == ("eager", FRAMES)
    assert segment.replayed == (1 if body is use_own_stream else 0)  # the one that was compared
    assert segment.reason in text
    assert segment.reason in segment.report()


def test_a_kernel_that_is_launched_elsewhere_is_found_before_a_wrong_frame_leaves() -> None:
    """Beside its own stream the operator uses another, of which nothing is recorded."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if self.other is None:
            self.other = gpu.StreamHandle(gpu.Device().create_stream())
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        if not gpu.is_capturing(stream):
            stream.stream.sync()
        result, table = self.new(stream), self.new(stream)
        launch(self.other, affine, self.table, self.table, COUNT, 1, 1)  # adds to what it keeps
        self.other.stream.sync()
        launch(stream, affine, result, frame, COUNT, 2, 3)
        launch(stream, affine, table, self.table, COUNT, 1, 0)
        op_output.emit((result, table), "out")

    def compose(app: Any) -> None:
        def begin(self: Any) -> None:
            stream = self._headrace.node.streams.run.default_stream().handle
            self.table, self.other = self.new(stream), None
            launch(stream, affine, self.table, self.table, COUNT, 0, 0)
            stream.stream.sync()

        middle = Work(app, body=body, begin=begin, name="middle")
        chain(app, Source(app, name="source"), middle, Sink(app, name="sink"))
        app.capture(middle)

    with pytest.warns(CaptureRefused, match=r"differs from a compute.*middle.out: 16 of 16 elements"):
        run_with(compose)


def test_what_is_left_in_an_array_that_an_operator_keeps_is_compared() -> None:
    """The operator emits nothing; only what it keeps tells that the recording is wrong."""
    totals: list[Any] = []

    def compose(app: Any) -> None:
        def begin(self: Any) -> None:
            stream = self._headrace.node.streams.run.default_stream().handle
            self.total = self.new(stream)
            launch(stream, affine, self.total, self.total, COUNT, 0, 0)
            stream.stream.sync()
            totals.append((self.total, stream))

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            launch(stream, affine, self.total, self.total, COUNT, 1, source.number)

        source = Source(app, name="source")
        member = Work(app, body=body, begin=begin, outputs=(), name="member")
        chain(app, source, member)
        chain(app, source, Sink(app, name="sink"))
        app.capture(member, check_every=0)

    with pytest.warns(CaptureRefused, match="'total' of operator 'member': 16 of 16 elements"):
        both(compose)
    expected, captured = (plain(*total) for total in totals)
    assert captured == expected


def test_a_join_of_branches_of_which_one_sometimes_emits_nothing() -> None:
    """Messages that wait inside a segment wait as they would without it."""

    def thin_out(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        self.number += 1
        if self.number % 2:
            op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        from tests.gpu.segment_programs import Blend

        first, left, blend = Stage(app, name="first"), Stage(app, name="left"), Blend(app, name="blend")
        right = Work(app, body=thin_out, name="right")
        right.number = 0
        chain(app, Source(app, name="source"), first, left)
        chain(app, first, right)
        app.add_flow(left, blend, {("out", "one")})
        app.add_flow(right, blend, {("out", "two")})
        chain(app, blend, Sink(app, name="sink"))
        app.capture(first, left, right, blend, warmup=2)

    expected = run_with(compose, "off")
    with pytest.warns(CaptureRefused, match="'blend' had messages at one input and none at another"):
        ran = run_with(compose)
    assert ran.seen == expected.seen
    assert ran.app.outcome.ended_by == expected.app.outcome.ended_by


def test_an_operator_that_only_passes_frames_on_is_captured() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    assert both(program(body)).segment.state == "captured"


def test_an_operator_that_sometimes_emits_nothing() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, number = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        launch(stream, affine, frame, frame, COUNT, 2, 3)
        if number:
            op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        def make(frame: Any, number: int) -> Any:
            return (frame, number % 3)

        middle, last = Work(app, body=body, name="middle"), Stage(app, name="last")
        chain(app, Source(app, frames=60, make=make, name="source"), middle, last, Sink(app, name="sink"))
        app.capture(middle, last)

    with pytest.warns(CaptureRefused, match="operator 'middle' emitted 0 messages at 'out'"):
        ran = both(compose)
    assert len(ran.seen["sink"]) == 40


def test_an_input_that_is_not_received() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("one")
        stream = op_input.receive_cuda_stream("one")
        launch(stream, affine, frame, frame, COUNT, 2, 3)
        if not gpu.is_capturing(stream):
            op_input.receive("two")
        op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        source = Source(app, name="source")
        middle = Work(app, body=body, inputs=("one", "two"), name="middle")
        app.add_flow(source, middle, {("out", "one"), ("out", "two")})
        chain(app, middle, Sink(app, name="sink"))
        app.capture(middle)

    with pytest.warns(CaptureRefused, match="'middle' did not receive what waits at 'two'"):
        both(compose)
