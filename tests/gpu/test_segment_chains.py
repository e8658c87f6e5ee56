"""Chains that are found by themselves: of operators that say that they may be captured, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import op
from headrace.capture import CaptureError, CaptureRefused
from headrace.core import IOSpec
from tests.gpu.segment_programs import (
    FRAMES,
    Blend,
    Ran,
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

LONG = 30


def stages(app: Any, count: int, left_out: tuple[int, ...] = ()) -> list[Any]:
    return [
        None if k in left_out else Stage(app, times=k % 3 + 1, plus=k, name=f"s{k}") for k in range(count)
    ]


def waiting(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    """Wait for the device, which cannot be recorded."""
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    stream.stream.sync()
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, frame.shape[0], 1, 1)
    op_output.emit(result, "out")


def chained(*places: int, count: int = 7, body: Any = waiting, frames: int = LONG, **options: Any) -> Any:
    """Return a program of a chain in which the operators at some places cannot be recorded."""

    def compose(app: Any) -> None:
        members = stages(app, count, places)
        for place in places:
            members[place] = Work(app, body=body, name=f"x{place}")
        source = Source(app, frames=frames, details=True, name="source")
        chain(app, source, *members, Sink(app, late=3, name="sink"))
        app.capture_chains(**options)

    return compose


def names(ran: Ran) -> list[list[str]]:
    return [[operator.name for operator in segment.operators] for segment in ran.segments]


def test_a_chain_is_found_and_recorded_as_a_whole() -> None:
    ran = both(chained(frames=FRAMES))
    assert names(ran) == [[f"s{k}" for k in range(7)]]
    assert ran.segment.name == "s0...s6"
    assert is_captured(ran)


def test_the_environment_finds_chains() -> None:
    def compose(app: Any) -> None:
        members = stages(app, 3)
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))

    assert names(both(compose)) == []
    ran = both(compose, "auto")
    assert names(ran) == [["s0", "s1", "s2"]]
    assert is_captured(ran)


def test_chains_end_where_frames_go_to_several_operators_or_come_from_several() -> None:
    def compose(app: Any) -> None:
        a, b, c, d, e, f, g, h = stages(app, 8)
        blend = Blend(app, name="blend")
        chain(app, Source(app, name="source"), a, b, c)  # `c` has two followers
        chain(app, c, d, e)
        chain(app, c, f, g)
        app.add_flow(e, blend, {("out", "one")})
        app.add_flow(g, blend, {("out", "two")})
        chain(app, blend, h, Sink(app, name="sink"))
        app.capture_chains()

    ran = both(compose)
    assert names(ran) == [["s0", "s1", "s2"], ["s3", "s4"], ["s5", "s6"], ["blend", "s7"]]
    assert {segment.state for segment in ran.segments} == {"captured"}


def test_what_is_declared_by_hand_is_left_alone() -> None:
    def compose(app: Any) -> None:
        members = stages(app, 6)
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture(members[2], members[3], name="mine")
        app.capture_chains()

    ran = both(compose)
    assert names(ran) == [["s2", "s3"], ["s0", "s1"], ["s4", "s5"]]
    assert {segment.state for segment in ran.segments} == {"captured"}


def test_operators_that_declare_that_they_cannot_be_recorded_are_left_out() -> None:
    @op(capturable=True)
    def doubled(frame: Any) -> Any:
        yield frame

    def compose(app: Any) -> None:
        members = stages(app, 9, (5,))
        members[2].capturable = "it has a camera"
        members[7].capturable = False
        members[5] = doubled(app, name="doubled")
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture_chains()

    assert names(both(compose)) == [["s0", "s1"], ["s3", "s4"]]


def test_flows_with_queues_of_their_own_end_a_chain() -> None:
    def compose(app: Any) -> None:
        a, b, c, d, e, f = stages(app, 6)
        chain(app, Source(app, name="source"), a, b)
        app.add_flow(b, c, size=3)
        chain(app, c, d)
        app.add_flow(d, e, policy=IOSpec.QueuePolicy.REJECT)
        chain(app, e, f, Sink(app, name="sink"))
        app.capture_chains()

    assert names(both(compose)) == [["s0", "s1"], ["s2", "s3"], ["s4", "s5"]]


# Where an operator cannot be captured although it says so.


def test_a_chain_with_an_operator_that_waits_for_the_device_runs_as_without_capture() -> None:
    with pytest.warns(CaptureRefused, match="'x3' at 'stream.stream.sync"):
        ran = both(chained(3))
    assert (ran.segment.state, ran.segment.replayed) == ("eager", 0)


def test_a_strict_chain_is_captured_or_an_error() -> None:
    with pytest.raises(CaptureError, match="'x3'"):
        run_with(chained(3, strict=True))
