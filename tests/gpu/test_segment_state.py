"""State of operators in captured segments: on the device it goes on, and on the host it is found."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace import op
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
    blend,
    both,
    chain,
    gather,
    is_captured,
    launch,
)

pytestmark = [
    pytest.mark.usefixtures("of_this_process"),
    pytest.mark.turns("scheduler", "mode", "outputs", "check_every"),
]


def refused(compose: Callable[[Any], None], *parts: str, mode: str = "") -> Any:
    """Run a program that is refused, and assert that one warning has these parts; all frames are right."""
    with pytest.warns(CaptureRefused) as warned:
        ran = both(compose, mode)
    (warning,) = warned
    text = str(warning.message)
    for part in parts:
        assert part in text
    segment = ran.segment
    assert segment.state == "eager"
    assert segment.reason in text
    return ran


def single(body: Callable[..., None], state: Sequence[str] = (), **settings: Any) -> Callable[[Any], None]:
    """Return a program whose segment has one operator of this compute and one behind it."""

    def compose(app: Any) -> None:
        member = Gain(app, body=body, begin=begin, state=state, name="member")
        stage = Stage(app, name="stage")
        chain(app, Source(app, name="source", **settings), member, stage, Sink(app, late=2, name="sink"))
        app.member = member
        app.capture(member, stage)

    return compose


class Gain(Work):
    """Work with parameters."""

    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.param("gain", 2)
        spec.param("settings", {"plus": 1})


def begin(self: Any) -> None:
    """Prepare what the computes below use: an array on the device that is zero, and things on the host."""
    stream = self._headrace.node.streams.run.default_stream().handle
    self.total = self.new(stream)
    launch(stream, affine, self.total, self.total, COUNT, 0, 0)
    stream.stream.sync()
    self.number = 0
    self.history: list[Any] = []


def received(self: Any, op_input: Any) -> tuple[Any, Any]:
    frame = op_input.receive("in")
    return frame, op_input.receive_cuda_stream("in")


def work(self: Any, op_input: Any, op_output: Any, plus: int = 0, times: int = 2) -> None:
    """Emit ``times * frame + plus``."""
    frame, stream = received(self, op_input)
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, frame.shape[0], times, plus)
    op_output.emit(result, "out")


# On the device.


def add_up(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    launch(stream, gather, self.total, frame, min(frame.shape[0], COUNT))
    result = self.new(stream)
    launch(stream, affine, result, self.total, COUNT, 1, 0)
    op_output.emit(result, "out")


@dataclass
class Bank:
    total: Any


class Pair(NamedTuple):
    total: Any
    other: Any


WRAPPED = {
    "a dataclass": (Bank, lambda bank: bank.total),
    "a named tuple": (lambda total: Pair(total, 1), lambda bank: bank.total),
    "a deque": (lambda total: deque([total]), lambda bank: bank[0]),
    "nested": (lambda total: [Bank({"total": (total, 1)})], lambda bank: bank[0].total["total"][0]),
}


@pytest.mark.parametrize(("wrap", "get"), WRAPPED.values(), ids=WRAPPED)
def test_an_array_in_a_container_is_put_back_before_a_comparison(wrap: Any, get: Any) -> None:
    """Otherwise the comparison itself would add the frame a second time."""

    def begin_wrapped(self: Any) -> None:
        begin(self)
        self.bank = wrap(self.total)
        del self.total

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = received(self, op_input)
        launch(stream, gather, get(self.bank), frame, COUNT)
        result = self.new(stream)
        launch(stream, affine, result, get(self.bank), COUNT, 1, 0)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        single(body)(app)
        app.member._begin = begin_wrapped

    assert is_captured(both(compose))


# What compute assigns.


def keep_previous(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    result = self.new(stream)
    launch(stream, blend, result, frame, self.total, COUNT)
    self.total = frame
    op_output.emit(result, "out")


def keep_the_first_one_too(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    if self.number == 0:
        self.other = None
        self.number = 1
    previous = frame if self.other is None else self.other
    result = self.new(stream)
    launch(stream, blend, result, frame, previous, COUNT)
    self.other = frame
    op_output.emit(result, "out")


def keep_the_result(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    self.result = self.new(stream)
    launch(stream, affine, self.result, frame, COUNT, 2, 1)
    op_output.emit(self.result, "out")


def emit_the_previous(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, _ = received(self, op_input)
    op_output.emit(self.total, "out")
    self.total = frame


def swap(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    launch(stream, gather, self.total, frame, COUNT)
    result = self.new(stream)
    launch(stream, blend, result, self.total, self.other, COUNT)
    op_output.emit(result, "out")
    self.total, self.other = self.other, self.total


def begin_with_two(self: Any) -> None:
    begin(self)
    stream = self._headrace.node.streams.run.default_stream().handle
    self.other = self.new(stream)
    launch(stream, affine, self.other, self.other, COUNT, 0, 5)
    stream.stream.sync()


STATES = {
    "the previous frame": (keep_previous, ["total"]),
    "the previous frame, none at first": (keep_the_first_one_too, ["other"]),
    "the result": (keep_the_result, ["result"]),
    "the state itself is emitted": (emit_the_previous, ["total", "other"]),
    "two buffers that are swapped": (swap, ["total", "other"]),
}


@pytest.mark.parametrize("mode", ["", "verify"])
@pytest.mark.parametrize(("body", "state"), STATES.values(), ids=STATES)
def test_declared_state_that_compute_assigns_goes_on(body: Any, state: list[str], mode: str) -> None:
    def compose(app: Any) -> None:
        single(body, state)(app)
        app.member._begin = begin_with_two

    ran = both(compose, mode)
    assert is_captured(ran)
    if body is keep_the_result:
        assert isinstance(ran.app.member.result, Tensor)


@pytest.mark.parametrize("mode", ["", "verify"])
def test_state_that_leaves_the_segment_is_not_overwritten(mode: str) -> None:
    """Receivers read it late, and frames of other shapes, which are computed, send it as well."""

    def compose(app: Any) -> None:
        counts = [COUNT] * 4 + [32, COUNT, COUNT, 48, 64, 80, 96, COUNT]
        member = Work(app, body=emit_the_previous, begin=begin, state=["total"], name="member")
        shorten = Work(app, body=shortened, name="shorten")
        source = Source(app, frames=30, counts=counts, name="source")
        chain(app, source, shorten, member, Sink(app, late=5, name="sink"))
        app.capture(shorten, member)

    assert is_captured(both(compose, mode), 30, unreplayed=20)


def shortened(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    result = self.new(stream)
    launch(stream, affine, result, frame, COUNT, 1, 0)
    op_output.emit(result, "out")


def test_assigned_state_goes_on_between_frames_of_different_shapes() -> None:
    """Each shape has a buffer; a graph of the earlier one would go on with what was in it then."""
    counts = [16] * 6 + [8] * 6 + [16] * 6 + [8] * 4
    ran = both(single(emit_the_previous, ["total"], frames=len(counts), counts=counts))
    assert ran.segment.state == "captured"
    assert ran.segment.replayed > 10


@pytest.mark.parametrize("is_none", [False, True])
def test_declared_state_may_be_set_from_outside(is_none: bool) -> None:
    """Whoever sets it between two frames begins anew, replays or not."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, _ = received(self, op_input)
        op_output.emit(frame if self.total is None else self.total, "out")
        self.total = frame

    class Resetting(Source):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == FRAMES // 2:
                self.fragment.member.total = None if is_none else self.fragment.member.zero
            super().compute(op_input, op_output, context)

    def begin_with_zero(self: Any) -> None:
        begin(self)
        self.zero = self.total

    def compose(app: Any) -> None:
        app.member = Work(app, body=body, begin=begin_with_zero, state=["total"], name="member")
        chain(app, Resetting(app, name="source"), app.member, Sink(app, name="sink"))
        app.capture(app.member)

    assert is_captured(both(compose))


def test_state_that_is_no_array_on_the_device_is_refused() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        work(self, op_input, op_output)

    refused(single(body, ["number"]), "state 'number' of operator 'member' is 'int', and not an array")


def test_state_of_another_shape_is_refused() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = received(self, op_input)
        launch(stream, affine, frame, frame, COUNT, 2, 1)
        op_output.emit(frame, "out")
        self.total = self.pool.allocate_tensor((2 * self.total.shape[0],), np.int32, "device", stream=stream)

    refused(
        single(body, ["total"]), "'member' assigns an array of another shape or type to its state 'total'"
    )


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(("body", "state"), [(keep_previous, ["total"]), (add_up, [])])
def test_state_goes_on_if_only_the_compute_of_a_comparison_fails(
    body: Any, state: list[str], is_late: bool
) -> None:
    """The replay is what is sent then, so what it left is what the next frame goes on with."""

    def failing(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        fails, self.source.fails = self.source.fails, False
        if fails and not is_late:
            raise ValueError("once")
        body(self, op_input, op_output, context)
        if fails:
            raise ValueError("once")

    class Failing(Source):
        fails = False

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.fails = self.number == 8 and bool(self.fragment.segments[0].state == "captured")
            super().compute(op_input, op_output, context)

    def compose(app: Any) -> None:
        source = Failing(app, name="source")
        member = Work(app, body=failing, begin=begin, state=state, name="member")
        member.source = source
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member, check_every=0)

    refused(compose, "an ordinary compute of the same frame failed", "ValueError: once")


def test_state_that_is_never_assigned_is_named() -> None:
    refused(
        single(emit_the_previous, ["total", "totel"], frames=30),
        "runs as without capture until its state is known: state 'totel' of operator 'member' (spec.state) refers "
        "to nothing after 16 frames",
    )


def test_state_that_is_assigned_late_is_captured_then() -> None:
    class Late(Source):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == 30:
                self.fragment.member.totel = self.fragment.member.total
            super().compute(op_input, op_output, context)

    def compose(app: Any) -> None:
        app.member = Work(app, body=emit_the_previous, begin=begin, state=["total", "totel"], name="member")
        chain(app, Late(app, frames=40, name="source"), app.member, Sink(app, name="sink"))
        app.capture(app.member)

    with pytest.warns(CaptureRefused):
        ran = both(compose)
    assert is_captured(ran, 40, unreplayed=32)


# What a compute changes on the host.


def count(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.number += 1
    work(self, op_input, op_output, self.number)


def count_and_do_not_use_it(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.number += 1
    work(self, op_input, op_output)


def make_a_list_longer(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.history.append(len(self.history))
    work(self, op_input, op_output, len(self.history))


@pytest.mark.parametrize("body", [count, count_and_do_not_use_it, make_a_list_longer])
def test_an_operator_that_counts_on_the_host_is_refused(body: Any) -> None:
    """A recording is no frame, so it does not count; every frame is right."""
    ran = refused(single(body), "'member' changes `self.", "an effect on the host", "count on the device")
    assert ran.app.member.number in (0, FRAMES)
    assert ran.segment.recordings == 0


def test_what_is_assigned_in_a_recording_that_is_refused_is_put_back() -> None:
    """The array that was assigned is one that nothing was ever written to."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        keep_previous(self, op_input, op_output, context)
        self.number += 1
        op_input.receive_cuda_stream("in").stream.sync()

    ran = refused(single(body), "waits for the device")
    assert ran.app.member.number == FRAMES


def test_a_value_of_a_message_that_is_kept_is_an_effect() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, self.number = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), affine, frame, frame, COUNT, 2, 0)
        op_output.emit(frame, "out")

    ran = refused(single(body, make=lambda frame, number: (frame, number)), "'member' changes `self.number`")
    assert ran.app.member.number == FRAMES - 1


# What nobody declared is found by comparison.


def test_an_array_that_is_assigned_and_not_declared_is_named() -> None:
    refused(single(keep_previous), "'member' changes `self.total`", "declare", "spec.state('total')")


# Parameters.


def changing(at: dict[int, Callable[[Any], None]]) -> Callable[[Any], None]:
    """Return a program in which an operator before the segment changes something at some frames."""

    def compose(app: Any) -> None:
        def change(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            at.get(self.number, lambda app: None)(self.fragment)
            self.number += 1
            op_output.emit(op_input.receive("in"), "out")

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            work(self, op_input, op_output, self.settings["plus"], self.gain)

        control = Work(app, body=change, begin=begin, name="control")
        member = Gain(app, body=body, begin=begin, name="member")
        stage = Stage(app, name="stage")
        app.member, app.stage = member, stage
        chain(app, Source(app, frames=80, name="source"), control, member, stage, Sink(app, name="sink"))
        app.capture(member, stage)

    return compose


def test_frames_with_other_parameters_have_a_graph_of_their_own() -> None:
    def set_gain(app: Any) -> None:
        app.member.gain = 5

    def set_times(app: Any) -> None:
        app.stage.times = 7

    def set_settings(app: Any) -> None:
        app.member.settings = {"plus": 9}

    ran = both(changing({10: set_gain, 30: set_times, 31: set_gain, 50: set_settings}))
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 4)
    assert ran.segment.replayed == 80 - 1 - 3 * 8


def test_a_parameter_that_keeps_changing_makes_it_eager_with_a_word_about_knobs_until_it_stays() -> None:
    def set_gain(app: Any) -> None:
        app.member.gain += 1

    with pytest.warns(
        CaptureRefused, match="parameter 'gain' of operator 'member' keeps changing.*context.knob"
    ):
        ran = both(changing(dict.fromkeys(range(10, 60), set_gain)))
    assert (ran.segment.state, ran.segment.reason, ran.segment.recordings) == ("captured", "", 2)
    assert 20 <= ran.segment.replayed <= 25


def test_a_parameter_that_is_set_to_the_same_value_is_not_recorded_again() -> None:
    def set_gain(app: Any) -> None:
        app.member.gain = int("2")
        app.member.settings = {"plus": 1}

    ran = both(changing(dict.fromkeys(range(80), set_gain)))
    assert (ran.segment.recordings, ran.segment.replayed) == (1, 79)


def test_a_parameter_that_is_changed_in_place_is_named() -> None:
    """Only setting a parameter is seen; the comparison finds the rest, in the time that it takes."""

    class Changing(Source):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == 8:
                self.fragment.member.settings["plus"] = 9
            super().compute(op_input, op_output, context)

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        work(self, op_input, op_output, self.settings["plus"])

    def compose(app: Any) -> None:
        app.member = Gain(app, body=body, begin=begin, settings={"plus": 1}, name="member")
        chain(app, Changing(app, frames=20, name="source"), app.member, Sink(app, name="sink"))
        app.capture(app.member)

    refused(
        compose,
        "parameter 'settings' of operator 'member' was changed in place; assign a new object",
        mode="verify",
    )


def test_a_parameter_that_compute_sets_to_the_same_value_is_no_change() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.gain = 2
        work(self, op_input, op_output)

    assert is_captured(both(single(body)))


def test_a_parameter_that_compute_changes_is_refused() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.gain += 1
        work(self, op_input, op_output, self.gain)

    with pytest.warns(CaptureRefused, match="keeps changing|set whenever a frame is recorded"):
        ran = both(single(body, frames=60))
    assert (ran.segment.state, ran.segment.recordings) == ("eager", 0)


def test_a_parameter_of_a_function_that_is_set_is_seen() -> None:
    @op(capturable=True)
    def scaled(frame: Any, *, context: Any, times: int = 2) -> Any:
        launch(context.input.receive_cuda_stream("frame"), affine, frame, frame, COUNT, times, 0)
        return frame

    class Switching(Source):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.fragment.member.times = 3 if self.number >= 8 else 2
            super().compute(op_input, op_output, context)

    def compose(app: Any) -> None:
        app.member = scaled(app, times=2, name="member")
        chain(app, Switching(app, frames=40, name="source"), app.member, Sink(app, name="sink"))
        app.capture(app.member)

    ran = both(compose)
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 2)
