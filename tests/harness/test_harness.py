"""The examples in the docstring of the harness, and what `Step` passes to its body."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition
from headrace.gpu import sim
from headrace.resources import MachineClock, ManualClock
from tests.harness import App, Consumer, MakeScheduler, Producer, Step, run, sink, source


def test_a_sink_receives_what_a_source_emits(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        app.add_flow(source(app, [1, 2, 3]), sink(app, taken))

    assert isinstance(run(compose, scheduler).scheduler().clock, ManualClock)
    assert taken == [1, 2, 3]


def test_a_consumer_reads_what_a_producer_wrote(machine: sim.Machine) -> None:
    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(Producer(app, CountCondition(app, 3), name="producer"), app.consumer)

    app = run(compose)
    assert isinstance(app.scheduler().clock, MachineClock)
    assert app.consumer.seen == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (lambda self, op_input, op_output: self.given.append(3), 3),
        (lambda self, op_input, op_output, context: self.given.append(4), 4),
        (lambda self, op_input, op_output, default=3: self.given.append(default), 3),
        (lambda self, *rest: self.given.append(1 + len(rest)), 4),
    ],
)
def test_a_body_is_passed_the_context_if_it_takes_it(body: Any, count: int) -> None:
    def compose(app: Any) -> None:
        app.step = Step(app, CountCondition(app, 1), body=body)
        app.step.given = []
        app.add_operator(app.step)

    assert run(compose).step.given == [count]
