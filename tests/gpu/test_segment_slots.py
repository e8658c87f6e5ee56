"""The slots of a ring: a segment's own memory, which is written again only after all that was read of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from headrace import CountCondition
from headrace.conditions import PeriodicCondition
from tests.gpu.segment_programs import (
    COUNT,
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
    slowly,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


def reading(how: str) -> Callable[..., None]:
    """Return a compute that reads what it receives and lets go of it long before the device has."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        if how == "on another stream":
            other = context.allocate_cuda_stream("other")
            context.synchronize_streams([stream], other)
            launch(other, slowly, result, frame, COUNT)
        elif how == "slowly":
            launch(stream, slowly, result, frame, COUNT)
        else:
            launch(stream, affine, result, frame, COUNT, 1, 0)
        op_output.emit(result, "out")

    return body


def add_reader(app: Any, before: Any, port: str, name: str, how: str) -> None:
    reader = Work(app, body=reading(how), name=name)
    app.add_flow(before, reader, {(port, "in")})
    chain(app, reader, Sink(app, late=30, name=f"sink of {name}"))


def emit_two(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    for times, port in enumerate(("one", "two"), 2):
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, times, 1)
        op_output.emit(result, port)


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("how", ["slowly", "on another stream"])
def test_a_slot_is_not_written_while_a_slow_kernel_still_reads_it(how: str, slots: int) -> None:
    """The host lets go of the message at once, long before the device has read it."""

    def compose(app: Any) -> None:
        stage = Stage(app, name="stage")
        chain(app, Source(app, frames=20, name="source"), stage)
        add_reader(app, stage, "out", "reader", how)
        app.capture(stage, outputs="ring", slots=slots)

    assert is_captured(both(compose), 20, 3 + 2 * slots)


@pytest.mark.parametrize("hows", [("slowly", "at once"), ("at once", "slowly")])
def test_a_slot_is_not_written_while_any_of_its_arrays_is_read(hows: tuple[str, str]) -> None:
    def compose(app: Any) -> None:
        stage = Work(app, body=emit_two, outputs=("one", "two"), name="stage")
        chain(app, Source(app, frames=20, name="source"), stage)
        for port, how in zip(("one", "two"), hows, strict=True):
            add_reader(app, stage, port, f"reader of {port}", how)
        app.capture(stage, outputs="ring", slots=1)

    assert is_captured(both(compose), 20, 5)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_slot_is_in_use_while_any_of_its_arrays_is(kept: int) -> None:
    """Of the two arrays of every eighth message, one is held for five frames and then read."""

    def emit_both(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        results = [self.new(stream), self.new(stream)]
        for times, result in enumerate(results, 2):
            launch(stream, affine, result, frame, COUNT, times, 1)
        op_output.emit(tuple(results), "out")

    def hold(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")[kept]
        stream = op_input.receive_cuda_stream("in")
        if self.number % 8 == 0:
            self.held = frame
        if self.number % 8 == 5:
            frame, self.held = self.held, None
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 1, 0)
        op_output.emit(result, "out")
        self.number += 1

    def begin(self: Any) -> None:
        self.number, self.held = 0, None

    def compose(app: Any) -> None:
        stage = Work(app, body=emit_both, name="stage")
        holds = Work(app, body=hold, begin=begin, name="holds")
        chain(app, Source(app, frames=40, name="source"), stage, holds, Sink(app, name="sink"))
        app.capture(stage, outputs="ring", slots=3)

    assert is_captured(both(compose), 40, 9)


def test_frames_of_one_kind_are_held_until_one_of_another_comes() -> None:
    """All slots of the first kind are in use then, and the next frame needs none of them."""

    class Holding(Sink):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            self._held.append((frame, op_input.receive_cuda_stream("in"), {}, None))
            if frame.shape[0] == 8:
                self.stop()

    counts = [16, 8] * 6 + [16, 16, 16, 16, 16, 8] * 3

    def compose(app: Any) -> None:
        stage = Stage(app, name="stage")
        source = Source(app, frames=len(counts), counts=counts, name="source")
        chain(app, source, stage, Holding(app, name="sink"))
        app.capture(stage, outputs="ring", slots=4)

    ran = both(compose)
    assert ran.segment.state == "captured"
    assert ran.segment.frames == len(counts)
    assert ran.segment.replayed > len(counts) // 2


def test_a_segment_goes_on_as_soon_as_a_slot_comes_back() -> None:
    """Not after the second that it waits at most."""
    times: list[int] = []

    def hold(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.held = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        times.append(context.timestamp)

    def compose(app: Any) -> None:
        def free(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            holder.held = None

        stage = Stage(app, name="stage")
        holder = Work(app, body=hold, outputs=(), name="holder")
        conditions = PeriodicCondition(app, "10ms"), CountCondition(app, 40)
        app.add_operator(Work(app, *conditions, body=free, inputs=(), outputs=(), name="free"))
        chain(app, Source(app, frames=12, name="source"), stage, holder)
        app.capture(stage, outputs="ring", slots=1)

    run_with(compose)
    assert len(times) == 12
    assert max(later - earlier for earlier, later in pairwise(times)) < 500_000_000


def test_a_segment_gives_the_slots_of_another_back_after_each_frame() -> None:
    """The other one waits for them, so a look after some frames would come too late."""

    def compose(app: Any) -> None:
        one, two = Stage(app, name="one"), Stage(app, name="two")
        chain(app, Source(app, frames=30, name="source"), one, two, Sink(app, name="sink"))
        app.capture(one, outputs="ring", slots=2)
        app.capture(two)

    assert all(segment.replayed > 20 for segment in both(compose).segments)
