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


def test_the_order_in_which_operators_are_named_does_not_matter() -> None:
    def compose(app: Any) -> None:
        members = stages(app, 4)
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture(*reversed(members))

    assert is_captured(both(compose))


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
