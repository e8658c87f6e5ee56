"""Chains that are found by themselves: where one operator cannot be recorded, the rest still is."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from headrace import op
from headrace.core import IOSpec
from headrace.core.segment import CaptureError, CaptureRefused
from tests.gpu.segment_programs import (
    COUNT,
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
from tests.harness import SCHEDULERS, MakeScheduler

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
    @op
    def doubled(frame: Any) -> Any:
        yield frame

    def compose(app: Any) -> None:
        members = stages(app, 9, (5,))
        members[2].capturable = "it has a camera"
        members[5] = doubled(app, name="doubled")
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture_chains()

    assert names(both(compose)) == [["s0", "s1"], ["s3", "s4"], ["s6", "s7", "s8"]]


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


# Where an operator cannot be recorded.


@pytest.mark.parametrize(
    ("places", "recordings"),
    [((0,), 1), ((6,), 1), ((3,), 2), ((1,), 1), ((2, 5), 2), ((3, 4), 2), ((1, 3, 5), 0), ((2,), 2)],
)
def test_the_operators_around_one_that_cannot_be_recorded(places: tuple[int, ...], recordings: int) -> None:
    with pytest.warns(CaptureRefused) as warned:
        ran = both(chained(*places))
    segment = ran.segment
    assert segment.recordings == recordings
    assert segment.state == ("captured" if recordings else "eager")
    assert len(warned) == 1
    for place in places:
        assert f"'x{place}'" in segment.reason
    if recordings:
        assert "is recorded in parts" in str(warned[0].message)
        # The first part to be refused has run for a while, and so has the next.
        assert LONG - 5 - 4 * (len(places) + 1) <= segment.replayed <= LONG - 8
    assert segment.frames == LONG
    computes = {one.computes for one in ran.app.outcome.operators.values()}
    assert computes == {LONG}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_divided_chain_under_each_scheduler(scheduler: MakeScheduler) -> None:
    with pytest.warns(CaptureRefused, match="'x3'"):
        ran = both(chained(3), scheduler=scheduler)
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 2)


def test_a_difference_that_nobody_in_particular_causes_is_searched_by_halves() -> None:
    def hidden(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream, frame)
        launch(stream, affine, result, frame, COUNT, 1, int(self.number[0]))
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        chained(5, count=8, body=hidden, frames=60)(app)
        # The collector does not look into arrays of NumPy.
        source = weakref.ref(next(one for one in app.graph if one.name == "source"))

        class Number:
            def __int__(self) -> int:
                return int(source().number)

        member = next(one for one in app.graph if one.name == "x5")
        member.number = np.array([Number()], object)

    with pytest.warns(CaptureRefused, match="differs from an ordinary run") as warned:
        ran = both(compose)
    assert len(warned) == 1
    segment = ran.segment
    assert segment.state == "captured"
    assert (
        segment.reason.count("differs from an ordinary run") == 3
    )  # of all, of the second half, and of its first half
    assert segment.replayed > 30


def test_a_part_whose_first_operator_copies_to_the_device() -> None:
    def upload(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        number = int(op_input.receive("in")[0])
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        result = self.new(stream)
        launch(stream, affine, result, result, COUNT, 0, number)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        chained(0, body=upload)(app)
        source = next(one for one in app.graph if one.name == "source")
        source.make = lambda frame, number: np.array([number])

    with pytest.warns(CaptureRefused, match="'x0' receives at 'in' is an array in memory of the host"):
        ran = both(compose)
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 1)


def test_a_part_in_which_an_operator_sometimes_emits_nothing() -> None:
    def thin_out(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 1)
        self.number += 1
        if self.number % 3:
            op_output.emit(frame, "out")

    def compose(app: Any) -> None:
        chained(3, body=thin_out, frames=60)(app)
        next(one for one in app.graph if one.name == "x3").number = 0

    with pytest.warns(CaptureRefused, match="'x3' changes self.number in compute|emitted nothing"):
        ran = both(compose)
    assert len(ran.seen["sink"]) == 40
    assert ran.segment.state == "captured"


def test_a_chain_is_divided_again_when_another_shape_comes() -> None:
    def only_small(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        if frame.shape[0] > COUNT:
            stream.stream.sync()
        result = self.new(stream, frame)
        launch(stream, affine, result, frame, frame.shape[0], 1, 1)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        chained(3, body=only_small, frames=60)(app)
        next(one for one in app.graph if one.name == "source").counts = [COUNT] * 20 + [2 * COUNT, COUNT] * 20

    with pytest.warns(CaptureRefused, match="'x3'"):
        ran = both(compose)
    segment = ran.segment
    assert (segment.state, segment.recordings) == ("captured", 1 + 2 * 2)
    assert segment.replayed > 30
    assert {one.computes for one in ran.app.outcome.operators.values()} == {60}


def test_messages_of_a_divided_chain_are_counted() -> None:
    def compose(app: Any) -> None:
        app.count_messages = True
        chained(3)(app)

    expected = run_with(compose, "off").app.outcome.operators
    with pytest.warns(CaptureRefused):
        ran = both(compose)
    assert ran.app.outcome.operators == expected


def test_a_ring_of_a_divided_chain() -> None:
    with pytest.warns(CaptureRefused, match="'x3'"):
        ran = both(chained(3, frames=60, outputs="ring", slots=8))
    assert ran.segment.state == "captured"
    assert ran.segment.replayed > 10


def test_a_sink_at_the_end_of_a_chain_is_left_out() -> None:
    def compose(app: Any) -> None:
        chained()(app)
        next(one for one in app.graph if one.name == "sink").capturable = True

    with pytest.warns(CaptureRefused, match="is recorded in parts: operator 'sink' reads the acquisition"):
        ran = both(compose)
    assert names(ran) == [[*[f"s{k}" for k in range(7)], "sink"]]
    assert (ran.segment.state, ran.segment.recordings, ran.segment.replayed) == ("captured", 1, LONG - 4 - 5)


def test_a_strict_chain_is_not_divided() -> None:
    with pytest.raises(CaptureError, match="'x3'"):
        run_with(chained(3, strict=True))


def test_a_segment_that_was_declared_is_not_divided() -> None:
    def compose(app: Any) -> None:
        members = stages(app, 7, (3,))
        members[3] = Work(app, body=waiting, name="x3")
        chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members)

    with pytest.warns(CaptureRefused, match="is not recorded and runs as without capture: .*'x3'"):
        ran = both(compose)
    assert (ran.segment.state, ran.segment.replayed) == ("eager", 0)


def test_two_outputs_between_two_parts() -> None:
    def split(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        for port, plus in (("b", 5), ("a", 3)):
            result = self.new(stream, frame)
            launch(stream, affine, result, frame, COUNT, 1, plus)
            op_output.emit(result, port)

    def blend_and_wait(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        one, two = op_input.receive("one"), op_input.receive("two")
        op_input.receive_cuda_stream("one")
        stream = op_input.receive_cuda_stream("two")
        stream.stream.sync()
        launch(stream, affine, one, two, COUNT, 2, 1)
        op_output.emit(one, "out")

    def compose(app: Any) -> None:
        s0, s1, s2, s3 = stages(app, 4)
        splits = Work(app, body=split, outputs=("a", "b"), name="split")
        blends = Work(app, body=blend_and_wait, inputs=("one", "two"), name="blend")
        chain(app, Source(app, frames=LONG, name="source"), s0, s1, splits)
        app.add_flow(splits, blends, {("a", "one"), ("b", "two")})
        chain(app, blends, s2, s3, Sink(app, name="sink"))
        app.capture_chains()

    with pytest.warns(CaptureRefused, match="'blend'"):
        ran = both(compose)
    assert names(ran) == [["s0", "s1", "split", "blend", "s2", "s3"]]
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 2)


@pytest.mark.parametrize("places", [(3,), (2, 5), ()])
def test_a_divided_chain_is_seen_whole(places: tuple[int, ...]) -> None:
    """Tracking counts every compute and follows every path, in replays of parts as well."""
    from contextlib import nullcontext

    from tests.harness import App

    app = App(chained(*places, count=7))
    tracker = app.track(0, 0)
    with pytest.warns(CaptureRefused) if places else nullcontext():
        app.run()
    statistics = tracker.statistics
    (segment,) = statistics.segments
    assert (segment.state, segment.frames) == ("captured", LONG)
    assert segment.replayed == app.segments[0].replayed > 5
    (path,) = statistics.paths
    assert path.count == LONG
    assert {one.count for one in statistics.operators} == {LONG}
