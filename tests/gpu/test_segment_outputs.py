"""What a segment sends is written again only when nobody reads it any more, on the host or on the device.

A segment sends small arrays again (`headrace.tensor.lent_arrays`).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.gpu.allocation import in_use
from headrace.gpu.sim import arrays
from tests.gpu.segment_programs import (
    COUNT,
    Sink,
    Source,
    Work,
    affine,
    both,
    chain,
    is_captured,
    launch,
    slowly,
)
from tests.limits import pairs

pytestmark = pytest.mark.usefixtures("simulated_pipelines")
FRAMES = 45


@pytest.fixture
def simulated_pipelines(of_this_process: Any) -> Iterator[None]:
    if not of_this_process.is_simulated:
        pytest.skip("the arrays are simulated")
    gc.collect()
    before = {address: known() for address, known in in_use.items()}  # what other tests hold
    yield
    gc.collect()
    assert in_use.keys() <= before.keys()  # nothing is kept after the run


def as_array(frame: Any, number: int = 0) -> Any:
    """Return an array on the memory of a tensor."""
    return arrays.asarray(frame)


def emit_array(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    made = self.new(stream)
    launch(stream, affine, made, frame, COUNT, 2, 1)
    op_output.emit(as_array(made), "out")


def seen_weakly(array: Any) -> Any:
    seen.append(weakref.ref(array))
    return array


seen: list[weakref.ref[Any]] = []
# What a reader makes of each frame, and for how many computes it holds it before the device reads it.
READERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "drops it at once": (lambda array: array, 0),
    "holds it": (lambda array: array, 2),
    "holds a part": (lambda array: array[...], 2),
    "holds it for long": (lambda array: array, 20),
    "has a weak reference": (seen_weakly, 0),
}


def reading(how: str) -> dict[str, Any]:
    """Return the functions of an operator that reads frames slowly, and lets go of them before the device has."""
    take, held = READERS[how]

    def begin(self: Any) -> None:
        self.frames = []

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.frames.append(take(op_input.receive("in")))
        stream = op_input.receive_cuda_stream("in")
        frame = self.frames.pop(0) if len(self.frames) > held else self.frames[0]
        result = self.new(stream)
        launch(stream, slowly, result, frame, COUNT)
        op_output.emit(result, "out")

    return {"body": body, "begin": begin}


def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    op_input.receive_cuda_stream("in")
    op_output.emit(frame, "out")


@pytest.mark.parametrize(
    ("how", "is_passed_on", "make"),
    pairs(list(READERS), [False, True], [as_array, lambda frame, number: frame]),
)
def test_no_reader_sees_a_later_frame(how: str, is_passed_on: bool, make: Any) -> None:
    def compose(app: Any) -> None:
        stage = Work(app, body=emit_array, name="stage")
        reader = Work(app, **reading(how), name="reader")
        reader.max_in_flight = FRAMES  # so that its work is further behind than arrays are sent again
        between = [Work(app, body=pass_on, name="between")] if is_passed_on else []
        chain(
            app,
            Source(app, frames=FRAMES, make=make, name="source"),
            stage,
            *between,
            reader,
            Sink(app, late=30, name="sink"),
        )
        app.capture(stage)

    assert is_captured(both(compose), FRAMES, 5)
    assert not [one for each in seen if (one := each()) is not None]
    seen.clear()


@pytest.mark.parametrize("how", READERS)
def test_a_graph_that_is_closed_leaves_its_arrays_to_their_readers(how: str) -> None:
    """The next graph, for state of another shape, does not get their memory before they have read it."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        made = self.new(stream)
        launch(stream, affine, made, frame, COUNT, 2, 1)
        self.last = frame
        op_output.emit(as_array(made), "out")

    def begin(self: Any) -> None:
        self.last = None

    def compose(app: Any) -> None:
        counts = [COUNT + number // 12 for number in range(FRAMES)]
        stage = Work(app, body=body, begin=begin, state=["last"], name="stage")
        reader = Work(app, **reading(how), name="reader")
        reader.max_in_flight = FRAMES
        source = Source(app, frames=FRAMES, counts=counts, name="source")
        chain(app, source, stage, reader, Sink(app, late=30, name="sink"))
        app.capture(stage)

    assert both(compose).segment.recordings == 4
    seen.clear()
