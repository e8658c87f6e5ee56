"""The order of streams goes through operators that do not look at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, TensorMap, as_tensor
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
    write_frame,
)


def passed_through(body: Callable[..., None], scheduler: MakeScheduler = greedy, **step: Any) -> list[int]:
    """Run a slow producer through an operator into a quick reader, and return what that read."""

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 100
        middle = Step(
            app, inputs=step.pop("inputs", ("in",)), outputs=("out",), body=body, name="middle", **step
        )
        app.add_flow(Producer(app, CountCondition(app, 8), name="producer"), middle)
        app.add_flow(middle, app.consumer)

    return run(compose, scheduler).consumer.seen


def test_an_operator_that_asks_for_no_stream_passes_the_order_on(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    assert passed_through(body, scheduler) == list(range(8))


def test_an_operator_that_sends_a_frame_later_passes_the_order_on(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        previous = self.__dict__.get("previous")
        self.previous = op_input.receive("in")
        if previous is not None:
            op_output.emit(previous, "out")

    assert passed_through(body, scheduler) == list(range(7))


def test_several_operators_in_a_row_pass_on_the_order_of_several_producers(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit([op_input.receive(port) for port in self.spec.inputs], "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            ((left, right),) = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")

            def look(a: np.ndarray, b: np.ndarray) -> None:
                app.seen.append((int(a.view(np.int64)[0]), int(b.view(np.int64)[0])))

            launch(stream, MS / 100, look, left, right)

        joint = Step(app, inputs=("a", "b"), outputs=("out",), body=join, name="joint")
        again = Step(app, inputs=("in",), outputs=("out",), body=join, name="again")
        for port, seconds in (("a", 5 * MS), ("b", MS)):
            producer = Producer(app, CountCondition(app, 8), name=port)
            producer.seconds = seconds
            app.add_flow(producer, joint, {("out", port)})
        app.add_flow(joint, again)
        app.add_flow(again, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == [(n, n) for n in range(8)]


def test_what_an_operator_launched_is_part_of_what_it_sends_without_naming_a_stream(
    scheduler: MakeScheduler,
) -> None:
    class Silent(Producer):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            class Output:
                emit = op_output.emit

                @staticmethod
                def set_cuda_stream(*_: Any) -> None: ...

            super().compute(op_input, Output, context)

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 100
        app.add_flow(Silent(app, CountCondition(app, 8), name="producer"), app.consumer)

    assert run(compose, scheduler).consumer.seen == list(range(8))


@pytest.mark.parametrize("kind", [dict, TensorMap])
def test_tensors_by_name_are_sent_after_what_was_received(scheduler: MakeScheduler, kind: Any) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def wrap(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            if self.ticks == 1:
                op_output.set_cuda_stream(context.allocate_cuda_stream("mine"))
            op_output.emit(kind(frame=as_tensor(data)), "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")["frame"].owner
            stream = op_input.receive_cuda_stream("in")
            read_frame(stream, MS / 100, data, app.seen)

        middle = Step(app, inputs=("in",), outputs=("out",), body=wrap, name="middle")
        app.add_flow(Producer(app, CountCondition(app, 8), name="producer"), middle)
        app.add_flow(middle, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == list(range(8))


def test_an_operator_that_is_sent_a_stream_late_passes_the_order_on(scheduler: MakeScheduler) -> None:
    """It is left alone after its first compute, and then a message comes that carries work."""

    def compose(app: Any) -> None:
        app.seen = []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.ticks < 4:
                op_output.emit(None, "out")
                return
            stream = context.allocate_cuda_stream("s")
            op_output.set_cuda_stream(stream)
            data = frame(stream)
            write_frame(stream, MS, data, self.ticks)
            op_output.emit(data, "out")

        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            messages = op_input.receive("in")
            op_output.emit(messages[0] if isinstance(messages, tuple) else messages, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            if data is not None:
                stream = op_input.receive_cuda_stream("in")
                read_frame(stream, MS / 100, data, app.seen)

        last = Step(app, CountCondition(app, 9), outputs=("out",), body=send, name="send")
        for port in ("in", ("in", {"size": 1, "policy": None})):
            stage = Step(app, inputs=(port,), outputs=("out",), body=pass_on, name=f"stage{port}")
            app.add_flow(last, stage)
            last = stage
        app.add_flow(last, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == [4, 5, 6, 7, 8, 9]
