"""Corners of captured segments, where one thing meets another: rings and refusals, buffers and changes."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from headrace import gpu
from headrace.capture import CaptureRefused
from headrace.core import MetadataPolicy
from tests.gpu.segment_programs import (
    COUNT,
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
    run_with,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


def begin(self: Any) -> None:
    self.number = 0
    self.kept: list[Any] = []


def test_rare_values_do_not_end_the_replays_of_the_others() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, plus = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 1, plus)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        source = Source(
            app, frames=60, make=lambda frame, number: (frame, number % 2 * number), name="source"
        )
        member = Work(app, body=body, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member, shapes=2)

    ran = both(compose)
    assert (ran.segment.state, ran.segment.reason) == ("captured", "")
    assert ran.segment.replayed >= 20


@pytest.mark.parametrize("every", [2, 3])
def test_metadata_and_timestamps_of_some_frames_alone(every: int) -> None:
    """A frame without any, behind one that has some, leaves without any."""

    def label(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        timestamp = -1
        if self.number % every == 0:
            self.metadata["number"] = self.number
            timestamp = 500 + self.number
        self.number += 1
        op_output.emit(frame, "out", acq_timestamp=timestamp)

    def compose(app: Any) -> None:
        source = Source(app, frames=20, name="source")
        labels = Work(app, body=label, begin=begin, name="label")
        stage, other, blends = (
            Stage(app, name="stage"),
            Stage(app, times=5, name="other"),
            Blend(app, name="blend"),
        )
        blends.metadata_policy = MetadataPolicy.UPDATE
        chain(app, source, labels)
        for one, port in ((stage, "one"), (other, "two")):
            app.add_flow(labels, one)
            app.add_flow(one, blends, {("out", port)})
            app.add_flow(one, Sink(app, name=f"sink of {one.name}"))
        chain(app, blends, Sink(app, name="sink"))
        app.capture(stage, other, blends)

    assert is_captured(both(compose), 20)


def test_a_part_waits_for_room_in_the_part_behind_it() -> None:
    """An operator behind lacks one of its messages from a frame on, as without capture, and the run ends there."""

    def mark(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, is_whole = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 2, 1)
        op_output.emit((result, is_whole), "out")

    def divide(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, is_whole = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        for port in ("one", "two") if is_whole else ("one",):
            result = self.new(stream)
            launch(stream, affine, result, frame, COUNT, 3, len(port))
            op_output.emit(result, port)

    def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("two")
        op_input.receive_cuda_stream("two").stream.sync()
        op_output.emit(op_input.receive("one"), "out")

    def compose(app: Any) -> None:
        source = Source(app, make=lambda frame, number: (frame, number < 10), name="source")
        marks, last = Work(app, body=mark, name="marks"), Stage(app, name="last")
        divides = Work(app, body=divide, outputs=("one", "two"), name="divides")
        joins = Work(app, body=join, inputs=("one", "two"), name="joins")
        chain(app, source, marks, divides)
        app.add_flow(divides, joins, {("one", "one"), ("two", "two")})
        chain(app, joins, last, Sink(app, name="sink"))
        app.capture_chains()

    with pytest.warns(CaptureRefused, match="'joins'"):
        ran = both(compose)
    assert len(ran.seen["sink"]) == 10
    assert ran.app.outcome.ended_by is run_with(compose, "off").app.outcome.ended_by


def test_no_garbage_is_collected_while_a_stream_captures() -> None:
    """A library may end the process if what it does to free memory is refused."""
    collects: list[tuple[bool, bool]] = []

    def look(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = op_input.receive("in"), op_input.receive_cuda_stream("in")
        collects.append((gpu.is_capturing(stream), gc.isenabled()))
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 2, 1)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        first, second = Work(app, body=look, name="first"), Work(app, body=look, name="second")
        chain(app, Source(app, name="source"), first, second, Sink(app, name="sink"))
        app.capture_chains()

    assert is_captured(both(compose))
    assert (True, False) in collects
    assert (True, True) not in collects
    assert gc.isenabled()
