"""Ambient streams: the operator's stream is current while it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import CountCondition, gpu, op
from headrace.gpu.ambient import leave, remember_stream, thread
from headrace.gpu.lasting_stream import LastingStream
from headrace.resources import CudaStreamPool
from tests._runtime.streams.pipelines import answers
from tests._runtime.streams.rows import here
from tests.harness import MS, MakeScheduler, Producer, Step, launch, run


def test_an_ambient_stream_is_current_while_the_operator_computes() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        data = op_input.receive("in")
        mine = gpu.current_stream()
        found: list[int] = []
        launch(mine, MS, lambda source: found.append(int(source[0])), data)  # ordered with no further call
        self.found = found
        return int(mine)

    streams = answers(body, setup=lambda spec: spec.ambient_stream())
    assert len(set(streams)) == 1
    assert gpu.current_stream() is None  # and put back afterwards


def test_an_ambient_operator_reads_right_frames_and_passes_them_on(scheduler: MakeScheduler) -> None:
    from tests.harness import Consumer, Doubler, frame, write

    class Ambient(Doubler):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.ambient_stream()

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            result = frame(gpu.current_stream())
            launch(
                gpu.current_stream(),
                MS / 10,
                lambda target, source: write(target, 2 * int(source.view("int64")[0])),
                result,
                data,
            )
            op_output.emit(result, "out")

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        ambient = Ambient(app, name="ambient")
        app.add_flow(Producer(app, CountCondition(app, 20), name="producer"), ambient)
        app.add_flow(ambient, app.consumer)

    assert run(compose, scheduler).consumer.seen == [2 * number for number in range(20)]


def test_an_ambient_operator_for_which_no_stream_is_left_is_ordered_on_the_default_stream(
    scheduler: MakeScheduler,
) -> None:
    class Ambient(Step):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.ambient_stream()

    def compose(app: Any) -> None:
        app.seen = []
        pool = CudaStreamPool(app, stream_flags=1, max_size=1)

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            launch(
                gpu.current_stream(),
                MS / 10 if self.ticks % 2 else 5 * MS,
                lambda source: app.seen.append(int(source.view("int64")[0])),
                data,
            )

        app.add_flow(
            Producer(app, CountCondition(app, 20), pool, name="producer"),
            Ambient(app, pool, inputs=("in",), body=take, name="take"),
        )

    assert run(compose, scheduler).seen == list(range(20))


def streams_of_a_function(*pools: Callable[[Any], CudaStreamPool]) -> list[Any]:
    """Run a function that was given these pools, and return the current stream of each call."""
    seen: list[Any] = []

    @op
    def numbers() -> Any:
        yield from range(3)

    @op(outputs=())
    def look(value: Any) -> None:
        seen.append(gpu.current_stream())

    run(lambda app: app.add_flow(numbers(app), look(app, *(make(app) for make in pools))))
    return seen


def test_a_function_given_streams_has_an_ambient_one() -> None:
    seen = streams_of_a_function(CudaStreamPool)
    assert len(seen) == 3
    assert len(set(map(int, seen))) == 1


def test_a_function_that_was_given_none_is_left_alone() -> None:
    assert streams_of_a_function() == [None] * 3


@pytest.mark.usefixtures("plain_library")
def test_what_was_current_before_a_run_is_again_after_it_although_another_run_was_inside() -> None:
    """The last operator of the inner run was left alone, and found what was current before both."""
    before, shared, inner = [gpu.StreamHandle(gpu.Device(0).create_stream()) for _ in range(3)]
    here.stream = before
    try:
        LastingStream(shared).enter(thread.current)
        restore = remember_stream()
        LastingStream(inner).enter(thread.current)
        leave()
        assert here.stream is before
        restore()
        assert here.stream is shared
        LastingStream(shared).enter(thread.current)
        leave()
        assert here.stream is before
    finally:
        here.stream = None
