"""A function that yields emits one value in each step, for each message, before it takes the next."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, op
from tests._runtime.scheduling.generators.functions import repeat
from tests.harness import SCHEDULERS, App, MakeScheduler, Step, run, sink, source


def test_several_outputs_take_a_tuple_or_a_dict_in_each_step(scheduler: MakeScheduler) -> None:
    low: list[int] = []
    high: list[int] = []

    @op(outputs=("low", "high"))
    def split(value: int) -> Any:
        yield value, None
        yield {"high": value + 1}
        yield None
        yield value + 2, value + 3

    def compose(app: App) -> None:
        parts = split(app)
        app.add_flow(source(app, [0, 10]), parts)
        app.add_flow(parts, sink(app, low, name="l"), {"low": "in"})
        app.add_flow(parts, sink(app, high, name="h"), {"high": "in"})

    run(compose, scheduler)
    assert (low, high) == ([0, 2, 10, 12], [1, 3, 11, 13])


def test_metadata_goes_out_with_every_value(scheduler: MakeScheduler) -> None:
    seen: list[tuple[int, int]] = []

    def send(body: Step, op_input: Any, op_output: Any) -> None:
        body.metadata["frame"] = body.ticks
        op_output.emit(2)

    def take(body: Step, op_input: Any, op_output: Any) -> None:
        seen.append((op_input.receive(), body.metadata["frame"]))

    def compose(app: App) -> None:
        several = repeat(app)
        app.add_flow(
            Step(app, CountCondition(app, 3), outputs=["out"], body=send, name="camera"),
            several,
            Step(app, inputs=["in"], body=take, name="screen"),
        )

    run(compose, scheduler)
    assert seen == [(2, 1), (2, 1), (2, 2), (2, 2), (2, 3), (2, 3)]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_timestamp_of_a_message_goes_out_with_every_value(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []

    def emit(body: Step, op_input: Any, op_output: Any) -> None:
        op_output.emit(body.ticks, "out", acq_timestamp=1000 * body.ticks)

    def receive(body: Step, op_input: Any, op_output: Any) -> None:
        seen.append((op_input.receive(), op_input.get_acquisition_timestamp()))

    @op
    def twice(value: int) -> Any:
        yield value
        yield -value

    def compose(app: App) -> None:
        numbers = Step(app, CountCondition(app, 2), outputs=["out"], body=emit, name="numbers")
        doubled = twice(app)
        app.add_flow(numbers, doubled, Step(app, inputs=["in"], body=receive, name="in"))

    run(compose, scheduler)
    assert seen == [(1, 1000), (-1, 1000), (2, 2000), (-2, 2000)]
