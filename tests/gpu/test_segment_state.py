"""State of operators in captured segments: on the device it goes on, and on the host it is found."""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.core.segment import CaptureRefused
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

pytestmark = pytest.mark.usefixtures("of_this_process")

COUNTER = [0]


def refused(compose: Callable[[Any], None], *parts: str) -> Any:
    """Run a program that is refused, and assert that one warning has these parts; all frames are right."""
    with pytest.warns(CaptureRefused) as warned:
        ran = both(compose)
    (warning,) = warned
    text = str(warning.message)
    for part in parts:
        assert part in text
    segment = ran.segment
    assert segment.state == "eager"
    assert segment.reason in text
    return ran


def single(body: Callable[..., None], keeps_state: bool = False, **settings: Any) -> Callable[[Any], None]:
    """Return a program whose segment has one operator of this compute and one behind it."""

    def compose(app: Any) -> None:
        member = Work(app, body=body, begin=begin, name="member")
        member.keeps_state = keeps_state
        member.gain = 2
        stage = Stage(app, name="stage")
        chain(app, Source(app, name="source", **settings), member, stage, Sink(app, late=2, name="sink"))
        app.member = member
        app.capture(member, stage)

    return compose


def begin(self: Any) -> None:
    """Prepare what the computes below use: an array on the device that is zero, and things on the host."""
    stream = self._node.streams.run.default_stream().handle
    self.total = self.new(stream)
    launch(stream, affine, self.total, self.total, COUNT, 0, 0)
    stream.stream.sync()
    self.number = 0
    self.history: list[int] = []
    self.weights = np.ones(3, np.int32)
    COUNTER[0] = 0


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


@pytest.mark.parametrize("keeps_state", [False, True])
def test_each_frame_is_added_once_to_a_sum_on_the_device(keeps_state: bool) -> None:
    ran = both(single(add_up, keeps_state))
    assert is_captured(ran, unreplayed=3 if keeps_state else 5)
    last = ran.seen["sink"][-1].numbers[1]
    assert last[0] == 2 * sum(100 * number for number in range(FRAMES)) + 1


@pytest.mark.parametrize("keeps_state", [False, True])
def test_a_sum_goes_on_between_frames_of_different_shapes(keeps_state: bool) -> None:
    """Ordinary and replayed frames alternate, and both add to the same array."""
    counts = [16, 16, 16, 16, 16, 16, 16, 32, 16, 32, 16, 48, 64, 16, 80, 96, 16, 32, 32, 16, 32, 16, 96, 16]
    ran = both(single(add_up, keeps_state, frames=40, counts=counts))
    segment = ran.segment
    assert (segment.state, segment.frames) == ("captured", 40)
    assert segment.recordings == 2
    assert 15 <= segment.replayed <= 35


def test_an_array_in_a_container_of_an_object_is_state_too() -> None:
    class Filter:
        def __init__(self, total: Any) -> None:
            self.arrays = {"total": [total]}

        def apply(self, stream: Any, frame: Any) -> Any:
            launch(stream, gather, self.arrays["total"][0], frame, COUNT)
            return self.arrays["total"][0]

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = received(self, op_input)
        if self.filter is None:
            self.filter = Filter(self.total)
        result = self.new(stream)
        launch(stream, affine, result, self.filter.apply(stream, frame), COUNT, 1, 0)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        single(body)(app)
        app.member.filter = None

    assert is_captured(both(compose))


def test_the_previous_frame_kept_by_a_copy_on_the_device() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = received(self, op_input)
        result = self.new(stream)
        launch(stream, blend, result, frame, self.total, COUNT)
        launch(stream, affine, self.total, frame, COUNT, 1, 0)
        op_output.emit(result, "out")

    assert is_captured(both(single(body)))


def test_a_frame_that_is_changed_in_place_and_passed_on() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = received(self, op_input)
        launch(stream, affine, frame, frame, COUNT, 3, 1)
        op_output.emit(frame, "out")

    assert is_captured(both(single(body)), unreplayed=6)


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_frames_of_a_few_buffers_that_are_changed_in_place(buffers: int) -> None:
    """What comes in few buffers is read where it is, but a frame must not be changed twice."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = received(self, op_input)
        launch(stream, affine, frame, frame, COUNT, 3, 1)
        result = self.new(stream)
        launch(stream, affine, result, frame, COUNT, 1, 0)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        from headrace import CountCondition
        from tests.gpu.segment_programs import count_up

        def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            op_output.set_cuda_stream(stream, "out")
            while len(self.history) < buffers:
                self.history.append(gpu.Device().allocate(4 * COUNT, stream=stream.stream))
            frame = self.history[self.number % buffers]
            stream.device.sync()  # nobody reads it any more
            launch(stream, count_up, frame, COUNT, 100 * self.number)
            op_output.emit(frame, "out")
            self.number += 1

        source = Work(app, CountCondition(app, 30), body=emit, begin=begin, inputs=(), name="source")
        member = Work(app, body=body, name="member")
        chain(app, source, member, Sink(app, name="sink"))
        app.capture(member)

    ran = both(compose)
    assert (ran.segment.state, ran.segment.reason) == ("captured", "")
    assert ran.segment.replayed > 10


# On the host.


def count(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.number += 1
    work(self, op_input, op_output, self.number)


def remember(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.history.append(len(self.history))
    work(self, op_input, op_output, len(self.history))


def keep_previous(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    result = self.new(stream)
    launch(stream, blend, result, frame, self.total, COUNT)
    self.total = frame
    op_output.emit(result, "out")


def swap(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = received(self, op_input)
    launch(stream, affine, self.total, frame, COUNT, 1, 0)
    op_output.emit(self.total, "out")
    self.total = self.new(stream)


def weigh(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.weights[0] += 1
    work(self, op_input, op_output, int(self.weights[0]))


def count_globally(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    COUNTER[0] += 1
    work(self, op_input, op_output, COUNTER[0])


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (count, "self.number"),
        (remember, "self.history"),
        (keep_previous, "self.total"),
        (swap, "self.total"),
        (weigh, "self.weights"),
        (count_globally, "COUNTER"),
    ],
)
def test_state_of_the_host_that_compute_changes_is_refused(body: Callable[..., None], what: str) -> None:
    ran = refused(
        single(body), "segment 'segment'", "operator 'member'", f"changes {what} in compute", "leave"
    )
    assert ran.segment.recordings == 0


def test_a_variable_of_a_function_around_that_compute_changes_is_refused() -> None:
    def compose(app: Any) -> None:
        calls = 0

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            nonlocal calls
            calls += 1
            work(self, op_input, op_output, calls)

        single(body)(app)

    refused(compose, "operator 'member' changes calls in compute")


def test_what_moves_on_with_every_compute_is_refused_before_it_is_used() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        work(self, op_input, op_output, next(self.numbers))

    def compose(app: Any) -> None:
        single(body)(app)
        app.member.numbers = iter(range(100))

    refused(compose, "operator 'member' uses self.numbers of type 'range_iterator'", "leave the operator out")


def test_random_numbers_of_the_host_are_refused_and_none_is_lost() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        work(self, op_input, op_output, self.rng.randrange(1_000))

    def compose(app: Any) -> None:
        single(body)(app)
        app.member.rng = random.Random(5)

    refused(compose, "operator 'member' changes self.rng in compute")


def test_a_value_that_changes_where_nobody_can_see_it_is_found_by_comparison() -> None:
    def compose(app: Any) -> None:
        of_app = weakref.ref(app)  # the collector does not look into arrays of NumPy

        class Number:
            def __int__(self) -> int:
                return int(of_app().numbers.number)

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            work(self, op_input, op_output, int(self.hidden[0]))

        single(body)(app)
        app.member.hidden = np.array([Number()], object)
        app.numbers = next(operator for operator in app.graph if operator.name == "source")

    refused(compose, "stage.out: 16 of 16 elements, the worst at [", "in the ordinary run", "in the replay")


def test_a_value_in_a_message_that_differs_from_frame_to_frame_is_found_by_comparison() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame, stream = received(self, op_input)
        launch(stream, affine, frame, frame, COUNT, 3, 1)
        op_output.emit((frame, time.perf_counter_ns()), "out")

    def compose(app: Any) -> None:
        member = Work(app, body=body, name="member")

        def drop(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in")[0], "out")

        chain(
            app, Source(app, name="source"), member, Work(app, body=drop, name="drop"), Sink(app, name="sink")
        )
        app.capture(member)

    refused(compose, "member.out[1]", "in the ordinary run", "in the replay")


# From outside.


def changing(at: dict[int, Callable[[Any], None]]) -> Callable[[Any], None]:
    """Return a program in which an operator before the segment changes something at some frames."""

    def compose(app: Any) -> None:
        def change(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            at.get(self.number, lambda app: None)(self.fragment)
            self.number += 1
            op_output.emit(op_input.receive("in"), "out")

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            settings = self.settings
            work(self, op_input, op_output, settings["plus"] + self.fragment.plus, self.gain)

        control = Work(app, body=change, begin=begin, name="control")
        member = Work(app, body=body, begin=begin, name="member")
        stage = Stage(app, name="stage")
        member.gain, member.settings, app.plus = 2, {"plus": 1}, 0
        app.member, app.stage = member, stage
        chain(app, Source(app, frames=40, name="source"), control, member, stage, Sink(app, name="sink"))
        app.capture(member, stage)

    return compose


def test_an_attribute_that_is_changed_between_two_frames_is_recorded_again() -> None:
    def set_gain(app: Any) -> None:
        app.member.gain = 5

    def set_times(app: Any) -> None:
        app.stage.times = 7

    ran = both(changing({10: set_gain, 20: set_times, 21: set_gain}))
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 3)
    assert ran.segment.replayed == 40 - 5 - 2 * 3


def test_contents_and_attributes_of_others_that_are_changed_between_two_frames() -> None:
    def set_item(app: Any) -> None:
        app.member.settings["plus"] = 9

    def set_attribute(app: Any) -> None:
        app.plus = 4

    ran = both(changing({10: set_item, 20: set_attribute}))
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 3)


def test_an_attribute_that_keeps_changing_is_refused_with_a_word_about_knobs() -> None:
    def set_gain(app: Any) -> None:
        app.member.gain += 1

    ran = refused(
        changing(dict.fromkeys(range(10, 40), set_gain)),
        "'gain' of operator 'member' keeps changing",
        "context.knob('gain', dtype)",
    )
    assert ran.segment.recordings == 9


def test_an_attribute_that_is_set_to_the_same_value_is_not_recorded_again() -> None:
    def set_gain(app: Any) -> None:
        app.member.gain = int("2")
        app.member.settings = app.member.settings
        app.plus = 0

    ran = both(changing(dict.fromkeys(range(40), set_gain)))
    assert (ran.segment.recordings, ran.segment.replayed) == (1, 35)
