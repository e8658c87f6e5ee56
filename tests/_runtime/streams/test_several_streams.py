"""What an operator emits comes after all of its streams, whichever of them made the frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import CountCondition
from tests.harness import (
    MS,
    Consumer,
    MakeScheduler,
    Producer,
    Step,
    frame,
    greedy,
    launch,
    read_frame,
    run,
    write,
    write_frame,
)

FRAMES = 6
Body = Callable[[Any, Any, Any, Any], None]


def copied(stream: Any, data: Any) -> Any:
    """Copy a frame on a stream, which takes a while."""
    result = frame(stream)
    launch(stream, MS, lambda target, source: write(target, int(source.view(np.int64)[0])), result, data)
    return result


def passed_through(body: Body, scheduler: MakeScheduler = greedy) -> list[int]:
    """Run a producer through an operator that copies frames into a quick reader, and return what that read."""

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 100
        middle = Step(app, inputs=("in",), outputs=("out",), body=body, name="middle")
        producer = Producer(app, CountCondition(app, FRAMES), name="producer")
        producer.seconds = MS / 10
        app.add_flow(producer, middle, app.consumer)

    return run(compose, scheduler).consumer.seen


def test_a_named_stream_beside_the_own_one_is_waited_for(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        own = op_input.receive_cuda_stream("in")
        side = context.allocate_cuda_stream("side")
        context.synchronize_streams([own], side)
        op_output.emit(copied(side, data), "out")

    assert passed_through(body, scheduler) == list(range(FRAMES))


def test_two_outputs_with_a_stream_each_come_after_both(scheduler: MakeScheduler) -> None:
    """Each message holds a frame of the other output's stream."""

    def compose(app: Any) -> None:
        app.seen = {"left": [], "right": []}

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            streams = {name: context.allocate_cuda_stream(name) for name in ("left", "right")}
            frames = {name: frame(stream) for name, stream in streams.items()}
            for (name, stream), seconds in zip(streams.items(), (MS / 10, MS), strict=True):
                op_output.set_cuda_stream(stream, name)
                write_frame(stream, seconds, frames[name], self.ticks)
            op_output.emit(frames["right"], "left")
            op_output.emit(frames["left"], "right")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            read_frame(op_input.receive_cuda_stream("in"), MS / 100, data, app.seen[self.name])

        sends = Step(app, CountCondition(app, FRAMES), outputs=("left", "right"), body=send, name="sends")
        for name in ("left", "right"):
            app.add_flow(sends, Step(app, inputs=("in",), body=take, name=name), {(name, "in")})

    seen = run(compose, scheduler).seen
    assert seen["left"] == seen["right"] == list(range(1, FRAMES + 1))
