"""What may enter and leave a captured segment: arrays of every layout, containers, values, and nothing."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace import gpu
from headrace.capture import CaptureRefused
from headrace.tensor import Tensor
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
    is_captured,
    launch,
)

pytestmark = [
    pytest.mark.usefixtures("of_this_process"),
    pytest.mark.turns("scheduler", "mode", "outputs", "check_every"),
]


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


class Pair(NamedTuple):
    frame: Any
    label: str


def double(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    """Emit the message with twice the numbers in each of its arrays."""
    data = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    op_output.emit(doubled(self, data, stream), "out")


def doubled(self: Any, data: Any, stream: Any) -> Any:
    if isinstance(data, Tensor):
        if not data.nbytes:
            return data
        result = self.new(stream, data)
        launch(stream, affine, result, data, data.size, 2, 0)
        return result
    if isinstance(data, gpu.Buffer):
        result = gpu.Device().allocate(data.size, stream=stream.stream) if not capturing(stream) else data
        launch(stream, affine, result, data, data.size // 4, 2, 0)
        return result
    if isinstance(data, dict):
        return {key: doubled(self, item, stream) for key, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[doubled(self, item, stream) for item in data])
    if isinstance(data, (list, tuple)):
        return type(data)(doubled(self, item, stream) for item in data)
    return data


def capturing(stream: Any) -> bool:
    return gpu.is_capturing(stream)


def passing(
    make: Callable[[Any, int], Any],
    body: Callable[..., None] = double,
    frames: int = FRAMES,
    counts: tuple[int, ...] = (COUNT,),
    **settings: Any,
) -> Any:
    """Return a program whose segment receives what `make` makes of a frame and its number."""

    def compose(app: Any) -> None:
        member = Work(app, body=body, name="member")
        source = Source(app, make=make, frames=frames, counts=counts, name="source")
        chain(app, source, member, Sink(app, late=2, name="sink"))
        app.member = member
        app.capture(member, **settings)

    return compose


@pytest.mark.parametrize(
    "make",
    [
        lambda frame, number: {"a": frame},
        lambda frame, number: {"a": frame, "b": frame},
        lambda frame, number: (frame, 3, "text", None, b"bytes", 1.5, True, 2j),
        lambda frame, number: [frame, [frame, (frame,)], {"deep": {"deeper": frame}}],
        lambda frame, number: {1: frame, "two": (frame, {"three": None})},
        lambda frame, number: Pair(frame, "label"),
        lambda frame, number: (frame, Mode.SLOW),
        lambda frame, number: (frame, float("nan"), float("inf"), -0.0),
        lambda frame, number: ((), [], frame),
    ],
    ids=["dict", "twice", "values", "nested", "keys", "named tuple", "enum", "floats", "empty"],
)
def test_arrays_in_containers_beside_values(make: Callable[[Any, int], Any]) -> None:
    assert is_captured(both(passing(make)))


def test_buffers_of_the_device() -> None:
    assert is_captured(both(passing(lambda frame, number: frame.owner.buffer)))


def test_two_arrays_of_which_one_is_empty() -> None:
    def make(frame: Any, number: int) -> Any:
        return (frame, frame[:0]) if hasattr(frame, "__getitem__") else (frame, empty_like(frame))

    assert is_captured(both(passing(make)))


def empty_like(frame: Tensor) -> Tensor:
    """Return a tensor without elements on the memory of another."""
    return viewed(frame, (0,), (4,))


def viewed(frame: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Tensor:
    """Return a view of a tensor."""
    described = (frame.data + offset, shape, strides, frame.dl_dtype, frame.device, frame.is_readonly)
    return Tensor._create(described, frame.owner, frame._exporter, None)


def flip(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    """Emit a view of twice the frame: every other element, backwards, and what lies between them."""
    data = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    memory = viewed(data, (COUNT,), (4,), -4 * (COUNT - 1) if data.strides[0] < 0 else 0)
    result = self.new(stream)
    launch(stream, affine, result, memory, COUNT, 2, 0)
    op_output.emit(viewed(result, (COUNT // 2,), (-8,), 4 * (COUNT - 1)), "out")


@pytest.mark.parametrize("layout", ["gaps", "backwards", "rows"])
def test_arrays_with_gaps_and_backwards(layout: str) -> None:
    def make(frame: Any, number: int) -> Any:
        if layout == "gaps":
            return viewed(frame, (COUNT // 2,), (8,))
        if layout == "backwards":
            return viewed(frame, (COUNT,), (-4,), 4 * (COUNT - 1))
        return viewed(frame, (2, 2), (4 * COUNT // 2, 4))

    def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        """Add one to the elements of the frame, and to what is between them."""
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        count = (
            1
            + sum((length - 1) * abs(stride) for length, stride in zip(data.shape, data.strides, strict=True))
            // 4
        )
        begin = -4 * (count - 1) if data.strides[0] < 0 else 0
        memory = viewed(data, (count,), (4,), begin)
        result = self.new(stream, memory)
        launch(stream, affine, result, memory, count, 1, 1)
        op_output.emit(viewed(result, data.shape, data.strides, -begin), "out")

    assert is_captured(both(passing(make, last)))


def test_messages_without_arrays() -> None:
    """A message may only say that something is to be done."""

    def draw(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        kind = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        launch(stream, affine, result, result, COUNT, 0, 5 if kind is None else kind)
        op_output.emit((result, None), "out")

    assert is_captured(both(passing(lambda frame, number: 7, draw)))
    assert is_captured(both(passing(lambda frame, number: None, draw)))


def test_an_operator_that_emits_no_arrays() -> None:
    def announce(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 0)
        op_output.emit("done", "out")

    assert is_captured(both(passing(lambda frame, number: frame, announce)), unreplayed=6)


# Shapes and values that change.


def test_each_shape_has_a_recording() -> None:
    compose = passing(lambda frame, number: frame, frames=24, counts=(16, 32, 48) * 8)
    ran = both(compose)
    segment = ran.segment
    assert (segment.state, segment.recordings, segment.replayed) == ("captured", 3, 24 - 3)


def test_frames_of_more_shapes_run_as_without_capture() -> None:
    counts = (*[16] * 6, *[32, 48, 64, 80, 96] * 2, *[16] * 8)
    compose = passing(lambda frame, number: frame, frames=24, counts=counts, shapes=2, warmup=1)
    segment = both(compose).segment
    assert (segment.state, segment.reason) == ("captured", "")
    assert (segment.recordings, segment.replayed) == (2, 14)


@dataclass(frozen=True)
class Shot:
    frame: Any
    number: int
    boxes: list[int]


VALUES = {
    "number": lambda frame, number: (frame, number),
    "dict": lambda frame, number: {"image": frame, "number": number},
    "text": lambda frame, number: (frame, f"frame {number}"),
    "array of the host": lambda frame, number: (frame, [np.arange(number)]),
    "set": lambda frame, number: [frame, {number}],
    "list of another length": lambda frame, number: {"image": frame, "boxes": list(range(number))},
    "dataclass": lambda frame, number: Shot(frame, number, list(range(number))),
    "object": lambda frame, number: {(1, 2): frame, "object": types.SimpleNamespace(number=number)},
}


def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    """Emit the message with other arrays and the same values, as operators do."""
    data = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    frame = data[0] if type(data) in (tuple, list) else getattr(data, "frame", None)
    if type(data) is dict:
        frame = data.get("image", data.get((1, 2)))
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, COUNT, 2, 0)
    if type(data) is dict:
        op_output.emit({**data, ("image" if "image" in data else (1, 2)): result}, "out")
    elif isinstance(data, Shot):
        op_output.emit(replace(data, frame=result), "out")
    else:
        op_output.emit(type(data)([result, data[1]]), "out")


@pytest.mark.parametrize("mode", ["", "verify"])
@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_values_that_are_passed_on_are_those_of_each_frame(make: Any, mode: str) -> None:
    ran = both(passing(make, pass_on), mode)
    assert is_captured(ran, unreplayed=1)


def scale(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, times = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    result = self.new(stream)
    launch(stream, affine, result, frame, COUNT, int(times), 0)
    op_output.emit((result, times), "out")


def test_each_of_a_few_values_that_are_used_has_a_graph() -> None:
    values = [1, True, 1.0, -1]
    compose = passing(lambda frame, number: (frame, values[number % 4]), scale, frames=80)
    segment = both(compose).segment
    assert (segment.state, segment.recordings) == ("captured", 4)
    assert segment.replayed >= 80 - 4 * 9


def test_a_value_that_is_used_and_keeps_changing_makes_it_eager_with_a_word_about_knobs() -> None:
    with pytest.warns(
        CaptureRefused, match="value that operator 'member' receives at 'in' and uses keeps changing.*knob"
    ):
        ran = both(passing(lambda frame, number: (frame, number), scale, frames=60))
    assert (ran.segment.state, ran.segment.replayed) == ("eager", 1)


USES = {
    "a host array": (lambda number: np.arange(4) + number, lambda value: int(value[0]), "memory of the host"),
    "an object": (lambda number: types.SimpleNamespace(n=number), lambda value: value.n, "'SimpleNamespace'"),
}


@pytest.mark.parametrize(("make", "use", "what"), USES.values(), ids=USES)
def test_what_is_used_and_cannot_be_compared_is_refused(make: Any, use: Any, what: str) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, value = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 1, use(value))
        op_output.emit(result, "out")

    with pytest.warns(CaptureRefused, match=f"'member' receives at 'in' and uses is an .*{what}"):
        ran = both(passing(lambda frame, number: (frame, make(number)), body))
    assert (ran.segment.state, ran.segment.recordings) == ("eager", 0)


@dataclass
class Label:
    text: str
    places: list[int]


def test_a_list_that_a_receiver_changes_is_a_new_one_in_each_frame() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 0)
        op_output.emit([frame, [1, {"boxes": []}], Label("new", [1])], "out")

    class Changing(Sink):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            _, boxes, label = op_input.receive("in")
            self.seen.append(repr((boxes, label)))
            boxes[1]["boxes"].append(len(self.seen))
            boxes.append(2)
            label.text = "old"
            label.places.clear()

    def compose(app: Any) -> None:
        member = Work(app, body=body, name="member")
        chain(app, Source(app, name="source"), member, Changing(app, name="sink"))
        app.capture(member)

    assert is_captured(both(compose))


# What cannot enter or leave.


def test_what_cannot_leave_is_refused_with_a_reason() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 0)
        op_output.emit((frame, {1, 2}), "out")

    with pytest.warns(CaptureRefused, match="operator 'member' emits at 'out' an object of type 'set'"):
        ran = both(passing(lambda frame, number: frame, body))
    assert ran.segment.state == "eager"


def test_a_shape_that_comes_late_may_still_be_refused() -> None:
    """Every frame is right, whatever comes."""

    def make(frame: Any, number: int) -> Any:
        message: Any = [frame]
        if number >= 9:
            message.append(message)
        return message

    def first(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")[0]
        op_output.emit(doubled(self, frame, op_input.receive_cuda_stream("in")), "out")

    with pytest.warns(CaptureRefused, match="contains itself"):
        ran = both(passing(make, first))
    assert (ran.segment.state, ran.segment.replayed) == ("eager", 8)
    assert len(ran.seen["sink"]) == FRAMES


def test_objects_inside_a_segment_may_be_of_any_kind() -> None:
    """Only what crosses the border has to be understood."""

    class Wrapped:
        def __init__(self, frame: Any) -> None:
            self.frame = frame

    def wrap(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 2, 0)
        op_output.emit(Wrapped(result), "out")

    def unwrap(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in").frame
        stream = op_input.receive_cuda_stream("in")
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 1, 4)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        one, two = Work(app, body=wrap, name="wrap"), Work(app, body=unwrap, name="unwrap")
        chain(app, Source(app, name="source"), one, two, Sink(app, late=3, name="sink"))
        app.capture(one, two)

    assert is_captured(both(compose))


def test_an_operator_that_emits_nothing_for_frames_of_another_shape() -> None:
    """They are too few to be recorded, and say nothing about the others."""

    def emit_if_large(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        if frame.size > 8:
            op_output.emit(doubled(self, frame, stream), "out")

    def compose(app: Any) -> None:
        members = [Work(app, body=emit_if_large, name="one"), Stage(app, name="two")]
        source = Source(app, frames=12, counts=[8, 16], name="source")
        chain(app, source, *members, Sink(app, name="sink"))
        app.capture(*members)

    assert is_captured(both(compose), 12, unreplayed=6)


def match_a_list(value: Any) -> bool:
    match value:
        case [*_]:
            return True
    return False


ASKED = {
    "callable": callable,
    "iterable": lambda value: isinstance(value, Iterable),
    "sized": lambda value: hasattr(value, "__len__"),
    "hashable": lambda value: isinstance(value, Hashable),
    "a sequence": lambda value: isinstance(value, Sequence),
    "a number": lambda value: isinstance(value, (int, Number)),
}


@pytest.mark.turns("make")
@pytest.mark.parametrize("make", [int, lambda number: [number], str, lambda number: {"a": number}])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_program_may_ask_what_a_value_is(ask: Any, make: Any) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, value = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, int(ask(value)))
        op_output.emit((frame, value), "out")

    assert is_captured(both(passing(lambda frame, number: (frame, make(number)), body)))


@pytest.mark.parametrize("make", [lambda number: 3, lambda number: [3]])
def test_a_pattern_is_a_use(make: Any) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, value = op_input.receive("in")
        times = 2 if match_a_list(value) else 3
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, times, 0)
        op_output.emit((frame, value), "out")

    assert is_captured(both(passing(lambda frame, number: (frame, make(number)), body)))


def test_a_value_that_is_an_argument_of_a_kernel_is_used() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, value = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        given = frame.data if stream.backend.runs_cuda else frame
        config, kernel = gpu.LaunchConfig(grid=1, block=256), affine.on(stream.device)
        gpu.launch(stream.stream, config, kernel, given, given, np.int32(COUNT), np.int32(1), value)
        op_output.emit(frame, "out")

    assert is_captured(both(passing(lambda frame, number: (frame, 7), body)))
