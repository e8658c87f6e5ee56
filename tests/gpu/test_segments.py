"""Captured segments of every shape: the frames of a program are the same with and without capture."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.capture import CaptureRefused
from tests.gpu.segment_programs import (
    FRAMES,
    Blend,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    both,
    chain,
    gather,
    is_captured,
    launch,
    run_with,
    stages,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


def test_a_chain_is_recorded_and_replayed() -> None:
    def compose(app: Any) -> None:
        members = stages(app)
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members)

    ran = both(compose)
    assert is_captured(ran)
    assert ran.segment.recordings == 1
    computes = {name: one.computes for name, one in ran.app.outcome.operators.items()}
    assert computes == dict.fromkeys(["source", "stage 1", "stage 2", "stage 3", "sink"], FRAMES)


def test_one_operator_is_a_segment() -> None:
    def compose(app: Any) -> None:
        stage = Stage(app, name="stage")
        chain(app, Source(app, name="source"), stage, Sink(app, name="sink"))
        app.capture(stage)

    assert is_captured(both(compose))


def test_the_order_in_which_operators_are_named_does_not_matter() -> None:
    def compose(app: Any) -> None:
        members = stages(app, 4)
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture(*reversed(members))

    assert is_captured(both(compose))


def test_frames_that_a_reader_reads_late_are_not_overwritten() -> None:
    def compose(app: Any) -> None:
        members = stages(app)
        chain(app, Source(app, frames=30, name="source"), *members, Sink(app, late=8, name="sink"))
        app.capture(*members)

    assert is_captured(both(compose), 30)


def test_a_segment_has_several_inputs() -> None:
    def compose(app: Any) -> None:
        one, two = Stage(app, times=5, name="one"), Stage(app, times=7, name="two")
        blend = Blend(app, name="blend")
        chain(app, Source(app, name="left"), one)
        chain(app, Source(app, name="right"), two)
        app.add_flow(one, blend, {("out", "one")})
        app.add_flow(two, blend, {("out", "two")})
        chain(app, blend, Sink(app, name="sink"))
        app.capture(one, two, blend)

    assert is_captured(both(compose))


def test_a_frame_that_enters_at_two_inputs() -> None:
    def compose(app: Any) -> None:
        source, blend = Source(app, name="source"), Blend(app, name="blend")
        app.add_flow(source, blend, {("out", "one"), ("out", "two")})
        chain(app, blend, Sink(app, name="sink"))
        app.capture(blend)

    assert is_captured(both(compose))


def test_a_segment_has_several_outputs() -> None:
    def compose(app: Any) -> None:
        one, two, three = stages(app)
        chain(app, Source(app, name="source"), one, two, Sink(app, name="a"))
        chain(app, one, three, Sink(app, name="b"))
        chain(app, one, Sink(app, name="c"))
        app.capture(one, two, three)

    assert is_captured(both(compose))


def test_a_diamond() -> None:
    def compose(app: Any) -> None:
        first, left, right = stages(app)
        blend, last = Blend(app, name="blend"), Stage(app, name="last")
        chain(app, Source(app, name="source"), first)
        chain(app, first, left)
        chain(app, first, right)
        app.add_flow(left, blend, {("out", "one")})
        app.add_flow(right, blend, {("out", "two")})
        chain(app, blend, last, Sink(app, name="sink"))
        app.capture(first, left, right, blend, last)

    assert is_captured(both(compose))


def test_frames_go_to_several_receivers_inside_and_outside() -> None:
    def compose(app: Any) -> None:
        first, left, right = stages(app)
        blend = Blend(app, name="blend")
        outside = Stage(app, times=11, name="outside")
        chain(app, Source(app, name="source"), first)
        for follower in (left, right, outside, Sink(app, name="a"), Sink(app, late=3, name="b")):
            app.add_flow(first, follower)
        app.add_flow(left, blend, {("out", "one")})
        app.add_flow(right, blend, {("out", "two")})
        app.add_flow(blend, Sink(app, name="c"))
        app.add_flow(blend, Sink(app, name="d"))
        app.add_flow(outside, Sink(app, name="e"))
        app.capture(first, left, right, blend)

    assert is_captured(both(compose))


def test_a_frame_goes_to_a_segment_and_past_it() -> None:
    def compose(app: Any) -> None:
        source, blend = Source(app, name="source"), Blend(app, name="blend")
        one, two = stages(app, 2)
        chain(app, source, one, two)
        app.add_flow(two, blend, {("out", "one")})
        app.add_flow(source, blend, {("out", "two")})
        chain(app, blend, Sink(app, name="sink"))
        app.capture(one, two)

    assert is_captured(both(compose))


def test_segments_one_after_another_and_beside_each_other() -> None:
    def compose(app: Any) -> None:
        a, b, c, d, e, f, g = stages(app, 7)
        source = Source(app, name="source")
        chain(app, source, a, b, c, d, e, Sink(app, name="sink"))
        chain(app, source, f, g, Sink(app, name="other"))
        app.capture(a, b, name="first")
        app.capture(c, d, name="second")  # `e` is not captured
        app.capture(f, g, name="beside")

    ran = both(compose)
    assert [(one.name, one.state, one.replayed) for one in ran.segments] == [
        (name, "captured", FRAMES - 1) for name in ("first", "second", "beside")
    ]


def test_an_operator_without_outputs_is_a_member() -> None:
    totals: list[Any] = []

    def compose(app: Any) -> None:
        def begin(self: Any) -> None:
            stream = self._headrace.node.streams.run.default_stream().handle
            self.total = self.new(stream)
            launch(stream, affine, self.total, self.total, 16, 0, 0)
            stream.stream.sync()
            totals.append((self.total, stream))

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            launch(op_input.receive_cuda_stream("in"), gather, self.total, frame, frame.shape[0])

        stage = Stage(app, name="stage")
        sink = Work(app, body=body, begin=begin, outputs=(), name="member")
        chain(app, Source(app, name="source"), stage, sink)
        chain(app, stage, Sink(app, name="sink"))
        app.capture(stage, sink)

    assert is_captured(both(compose), unreplayed=3)
    from tests.gpu.segment_programs import plain

    expected, captured = [plain(total, stream) for total, stream in totals]
    assert captured == expected


def test_a_segment_of_one_sink() -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            launch(stream, affine, self.new(stream), frame, frame.shape[0], 2, 2)

        source, member = Source(app, name="source"), Work(app, body=body, outputs=(), name="member")
        chain(app, source, member)
        chain(app, source, Sink(app, name="sink"))
        app.capture(member)

    assert is_captured(both(compose))


def test_an_output_that_leads_nowhere() -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            result = self.new(stream)
            launch(stream, affine, result, frame, frame.shape[0], 2, 2)
            op_output.emit(frame, "unconnected")
            op_output.emit(result, "out")

        member = Work(app, body=body, outputs=("out", "unconnected"), name="member")
        chain(app, Source(app, name="source"), member)
        app.add_flow(member, Sink(app, name="sink"), {("out", "in")})
        app.capture(member)

    expected = run_with(compose, "off").app.outcome.operators["member"]
    ran = both(compose)
    assert is_captured(ran)
    assert ran.app.outcome.operators["member"] == expected


def test_a_segment_that_is_refused_does_not_keep_another_from_being_recorded() -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            stream.stream.sync()
            op_output.emit(frame, "out")

        a, b, c = stages(app)
        waits = Work(app, body=body, name="waits")
        chain(app, Source(app, name="source"), a, waits, b, c, Sink(app, name="sink"))
        app.capture(a, waits, name="refused")
        app.capture(b, c, name="recorded")

    with pytest.warns(CaptureRefused, match="'refused'.*'waits'") as warned:
        ran = both(compose)
    assert len(warned) == 1
    assert [one.state for one in ran.segments] == ["eager", "captured"]


def test_messages_are_counted_as_without_capture() -> None:
    def compose(app: Any) -> None:
        app.count_messages = True
        first, left, right = stages(app)
        blend = Blend(app, name="blend")
        chain(app, Source(app, name="source"), first)
        for follower in (left, right, Sink(app, name="a")):
            app.add_flow(first, follower)
        app.add_flow(left, blend, {("out", "one")})
        app.add_flow(right, blend, {("out", "two")})
        app.add_flow(blend, Sink(app, name="b"))
        app.capture(first, left, right, blend)

    expected = run_with(compose, "off").app.outcome.operators
    ran = both(compose)
    assert is_captured(ran)
    assert ran.app.outcome.operators == expected
    assert expected["blend"].received == {"one": FRAMES, "two": FRAMES}
