"""Arrays that share memory, and arrays that are changed in place, on either side of a captured segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace.capture import CaptureRefused
from headrace.tensor import Tensor
from tests.gpu.segment_programs import (
    COUNT,
    Blend,
    Sink,
    Source,
    Work,
    affine,
    both,
    chain,
    count_up,
    gather,
    is_captured,
    launch,
)

pytestmark = [
    pytest.mark.usefixtures("of_this_process"),
    pytest.mark.turns("scheduler", "mode", "outputs", "check_every"),
]


def viewed(frame: Tensor, first: int, count: int, step: int = 1) -> Tensor:
    """Return a view of a part of a frame."""
    described = (
        *(frame.data + 4 * first, (count,), (4 * step,)),
        *(frame.dl_dtype, frame.device, frame.is_readonly),
    )
    return Tensor._create(described, frame.owner, frame._exporter, None)


def whole(part: Tensor) -> Tensor:
    """Return a tensor with what is between its elements."""
    (count,), (stride,) = part.shape, part.strides
    return viewed(part, 0, (count - 1) * stride // 4 + 1)


def change_one_and_read_the_other(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    one, two = [whole(part) for part in op_input.receive("in")]
    stream = op_input.receive_cuda_stream("in")
    launch(stream, affine, one, one, one.shape[0], 2, 3)
    result = self.new(stream, two)
    launch(stream, affine, result, two, two.shape[0], 1, 0)
    op_output.emit(result, "out")


def begin(self: Any) -> None:
    self.number = 0


# What enters.


@pytest.mark.parametrize(("first", "later"), [(8, 4), (4, 2)], ids=["not at first", "otherwise at first"])
def test_two_parts_of_a_frame_that_begin_to_overlap(first: int, later: int) -> None:
    """How they overlap belongs to the recording."""

    def divide(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        self.number += 1
        op_output.emit((viewed(frame, 0, 8), viewed(frame, later if self.number > 9 else first, 8)), "out")

    def compose(app: Any) -> None:
        divides = Work(app, body=divide, begin=begin, name="divides")
        member = Work(app, body=change_one_and_read_the_other, name="member")
        chain(app, Source(app, frames=20, name="source"), divides, member, Sink(app, name="sink"))
        app.capture(member)

    ran = both(compose)
    assert (ran.segment.state, ran.segment.reason, ran.segment.recordings) == ("captured", "", 2)


SENT: dict[str, Callable[[Any], Any]] = {
    "twice the same": lambda frame: (frame, frame),
    "one inside the other": lambda frame: (frame, viewed(frame, 4, 8)),
    "the other inside one": lambda frame: (viewed(frame, 4, 8), frame),
    "overlapping": lambda frame: (viewed(frame, 0, 10), viewed(frame, 4, 10)),
    "overlapping, the later first": lambda frame: (viewed(frame, 4, 10), viewed(frame, 0, 10)),
}


@pytest.mark.parametrize("check_every", [None, 0])
@pytest.mark.parametrize("parts", SENT)
def test_arrays_that_enter_share_memory_inside_and_behind(parts: str, check_every: float | None) -> None:
    """A member and an operator behind it each change one of them, and read the other."""

    def passes(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        one, two = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        launch(stream, affine, two, two, two.shape[0], 1, 5)
        result = self.new(stream, one)
        launch(stream, affine, result, one, one.shape[0], 1, 0)
        op_output.emit(result, "seen")
        op_output.emit((one, two), "out")

    def compose(app: Any) -> None:
        source = Source(app, frames=20, make=lambda frame, number: SENT[parts](frame), name="source")
        member = Work(app, outputs=("out", "seen"), body=passes, name="member")
        behind = Work(app, body=change_one_and_read_the_other, name="behind")
        chain(app, source, member)
        app.add_flow(member, behind, {("out", "in")})
        chain(app, behind, Sink(app, name="sink"))
        app.add_flow(member, Sink(app, name="inside"), {("seen", "in")})
        app.capture(member, check_every=check_every)

    ran = both(compose)
    assert (ran.segment.state, ran.segment.reason) == ("captured", "")
    assert ran.segment.replayed > 5


def send_buffers(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    """Emit frames as buffers, which have no shape, in turn of four sizes."""
    stream = context.allocate_cuda_stream("mine")
    op_output.set_cuda_stream(stream, "out")
    count = COUNT + 4 * (self.number % 4)
    buffer = gpu.Device().allocate(4 * count, stream=stream.stream)
    launch(stream, count_up, buffer, count, 100 * self.number)
    op_output.emit(self.make(buffer), "out")
    self.number += 1


def buffers(app: Any, make: Callable[[Any], Any]) -> Any:
    """Return a source of buffers; `make` makes each message of one."""

    def prepare(self: Any) -> None:
        self.number, self.make = 0, make

    return Work(app, CountCondition(app, 48), inputs=(), body=send_buffers, begin=prepare, name="source")


def test_a_changed_array_with_gaps_where_no_frames_are_compared() -> None:
    def double_in_place(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        part = whole(op_input.receive("in"))
        stream = op_input.receive_cuda_stream("in")
        launch(stream, affine, part, part, part.shape[0], 2, 0)
        result = self.new(stream, part)
        launch(stream, affine, result, part, part.shape[0], 1, 0)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        source = Source(app, make=lambda frame, number: viewed(frame, 0, 5, 3), name="source")
        member = Work(app, body=double_in_place, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member, check_every=None)

    with pytest.warns(CaptureRefused, match="without gaps"):
        assert both(compose).segment.replayed == 0


# What leaves.

PARTS: dict[str, Callable[[Any], Any]] = {
    "twice the same": lambda frame: (frame, frame),
    "one inside the other": lambda frame: (frame, viewed(frame, 4, 8)),
    "the other inside one": lambda frame: (viewed(frame, 4, 8), frame),
    "overlapping": lambda frame: (viewed(frame, 0, 10), viewed(frame, 4, 10)),
    "interleaved": lambda frame: (viewed(frame, 0, 5, 3), viewed(frame, 1, 5, 3)),
    "apart": lambda frame: (viewed(frame, 0, 8), viewed(frame, 8, 8)),
}


@pytest.mark.parametrize("parts", PARTS)
def test_arrays_that_share_memory_still_do_behind_a_segment(parts: str) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream, frame)
        launch(stream, affine, result, frame, COUNT, 2, 1)
        op_output.emit(PARTS[parts](result), "out")

    def compose(app: Any) -> None:
        member = Work(app, body=body, name="member")
        behind = Work(app, body=change_one_and_read_the_other, name="behind")
        chain(app, Source(app, frames=20, name="source"), member, behind, Sink(app, late=3, name="sink"))
        app.capture(member)

    assert is_captured(both(compose), 20, 5)


# What is changed in place.


def add_one_in_place(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    launch(stream, affine, frame, frame, COUNT, 1, 1)
    result = self.new(stream)
    launch(stream, affine, result, frame, COUNT, 1, 0)
    op_output.emit(result, "out")


@pytest.mark.parametrize("buffers", [1, 2, 6])
def test_what_is_changed_in_a_buffer_that_its_sender_keeps(buffers: int) -> None:
    """The source fills each buffer once, and sends it again as the segment left it."""

    def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        if len(self.history) < buffers:
            self.history.append(gpu.Device().allocate(4 * COUNT, stream=stream.stream))
            launch(stream, count_up, self.history[-1], COUNT, 100 * self.number)
        stream.device.sync()  # nobody works on it any more
        op_output.emit(self.history[self.number % buffers], "out")
        self.number += 1

    def prepare(self: Any) -> None:
        self.number, self.history = 0, []

    def compose(app: Any) -> None:
        source = Work(app, CountCondition(app, 40), body=emit, begin=prepare, inputs=(), name="source")
        member = Work(app, body=add_one_in_place, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member)

    ran = both(compose)
    assert (ran.segment.state, ran.segment.reason) == ("captured", "")
    assert ran.segment.replayed > 20


def test_what_the_first_frame_happens_to_leave_as_it_was() -> None:
    """A segment adds each frame to a buffer that its sender keeps; the first frame is zero, and changes nothing."""

    def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        if self.number == 0:
            self.total = self.new(stream)
            launch(stream, affine, self.total, self.total, COUNT, 0, 0)
        frame = self.new(stream)
        launch(stream, affine, frame, frame, COUNT, 0, self.number)
        op_output.emit([self.total, frame], "out")
        self.number += 1

    def prepare(self: Any) -> None:
        self.number = 0

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        total, frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        launch(stream, gather, total, frame, COUNT)
        result = self.new(stream)
        launch(stream, affine, result, total, COUNT, 1, 0)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        source = Work(app, CountCondition(app, 20), body=emit, begin=prepare, inputs=(), name="source")
        member = Work(app, body=body, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member)

    ran = both(compose)
    assert is_captured(ran, 20)
    # The first graph copies nothing back; a replay that is compared shows that, and those that follow do.
    assert ran.segment.recordings == 2


def joined(app: Any, member: Any, frames: Any, port: str) -> None:
    """Join what a segment emits with frames that go past it."""
    joins = Blend(app, name="join")
    app.add_flow(member, joins, {("out", "one")})
    app.add_flow(frames, joins, {(port, "two")})
    chain(app, joins, Sink(app, name="sink"))


@pytest.mark.parametrize("check_every", [None, 0])
def test_what_is_changed_in_a_frame_that_also_goes_past_the_segment(check_every: float | None) -> None:
    """The first frame, which the operators compute, shows what they change."""

    def compose(app: Any) -> None:
        source, member = (
            Source(app, frames=20, name="source"),
            Work(app, body=add_one_in_place, name="member"),
        )
        chain(app, source, member)
        joined(app, member, source, "out")
        app.capture(member, check_every=check_every)

    ran = both(compose)
    assert is_captured(ran, 20)
    assert ran.segment.recordings == 1


def from_the_tenth_frame_on(later: list[int]) -> Callable[[Any, int], Any]:
    """Return what a source makes of its frames; the list has something in it as soon as the tenth is sent."""

    def make(frame: Any, number: int) -> Any:
        later[:] = [number] if number >= 10 else []
        return frame

    return make


def test_a_change_in_place_that_a_replay_makes_otherwise_is_found() -> None:
    """What is emitted is the same, but not what the sender of the frame finds in it."""
    later: list[int] = []

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 2, 3)
        launch(stream, affine, frame, frame, COUNT, 1, 5 if later else 1)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        source = Source(app, frames=20, make=from_the_tenth_frame_on(later), name="source")
        member = Work(app, body=body, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member, check_every=0)

    with pytest.warns(
        CaptureRefused, match="a replay differs from a compute of the same frame: what it received"
    ):
        ran = both(compose)
    assert ran.segment.state == "eager"
    assert ran.segment.replayed > 5


def test_a_frame_whose_compute_fails_beside_its_replay_is_changed_once() -> None:
    later: list[int] = []

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        add_one_in_place(self, op_input, op_output, context)
        if later:
            assert context.timestamp >= 0  # which no captured compute may ask

    def compose(app: Any) -> None:
        source = Source(app, frames=20, make=from_the_tenth_frame_on(later), name="source")
        member = Work(app, body=body, name="member")
        chain(app, source, member)
        joined(app, member, source, "out")
        app.capture(member, check_every=0)

    with pytest.warns(CaptureRefused, match="an ordinary compute of the same frame failed"):
        ran = both(compose)
    assert ran.segment.state == "eager"
    assert ran.segment.replayed > 5


def test_an_array_with_gaps_that_is_changed_in_place() -> None:
    """What is between its elements may be in use by others, so it cannot be copied back."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        one = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        first = viewed(one, 0, 1)
        launch(stream, affine, first, first, 1, 2, 3)
        op_output.emit(one, "out")

    def compose(app: Any) -> None:
        source = Source(app, make=lambda frame, number: viewed(frame, 0, 8, 2), name="source")
        member = Work(app, body=body, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member)

    with pytest.warns(CaptureRefused, match="change an array in place that they receive"):
        assert both(compose).segment.state == "eager"
