"""The order of streams goes through operators that do not look at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import CountCondition, TensorMap, as_tensor
from tests.harness import (
    MS,
    Consumer,
    MakeScheduler,
    Producer,
    Step,
    greedy,
    read_frame,
    run,
)


def passed_through(body: Callable[..., None], scheduler: MakeScheduler = greedy, **step: Any) -> list[int]:
    """Run a slow producer through an operator into a quick reader, and return what that read."""

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 100
        middle = Step(
            app, inputs=step.pop("inputs", ("in",)), outputs=("out",), body=body, name="middle", **step
        )
        app.add_flow(Producer(app, CountCondition(app, 8), name="producer"), middle, app.consumer)

    return run(compose, scheduler).consumer.seen


def test_an_operator_that_asks_for_no_stream_passes_the_order_on(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    assert passed_through(body, scheduler) == list(range(8))


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
        app.add_flow(
            Producer(app, CountCondition(app, 8), name="producer"),
            middle,
            Step(app, inputs=("in",), body=take, name="take"),
        )

    assert run(compose, scheduler).seen == list(range(8))
