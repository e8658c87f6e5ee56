"""MultiMessageAvailableCondition: messages over several inputs, and a timeout."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import ConditionType, CountCondition, PeriodicCondition
from headrace.conditions import (
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
)
from headrace.core import GraphError
from tests.conditions.joins import feed, two_inputs
from tests.harness import App, MakeScheduler, Step, run, source, wait_until
from tests.harness.application import event_based


def test_the_sum_of_messages_over_inputs(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        feed(app, two_inputs(app, taken, sampling_mode="SumOfAll", min_sum=4), 2, 6)

    run(compose, scheduler)
    assert [len(left) + len(right) for _, left, right in taken] == [4, 4]


def test_sampling_modes_say_what_they_take() -> None:
    with pytest.raises(ValueError, match="'PerReceiver' takes min_sizes"):
        MultiMessageAvailableCondition(None, "PerReceiver", min_sum=3)
    with pytest.raises(ValueError, match="'SumOfAll' takes min_sum"):
        MultiMessageAvailableCondition(None, "SumOfAll", min_sizes=[1])
    with pytest.raises(ValueError, match="must be 'SumOfAll' or 'PerReceiver'"):
        MultiMessageAvailableCondition(None, "All")

    def compose(app: App) -> None:
        feed(app, two_inputs(app, [], sampling_mode="PerReceiver", min_sizes=[1]), 1, 1)

    with pytest.raises(GraphError, match="min_sizes has 1 numbers for 2 inputs"):
        run(compose)


@pytest.mark.parametrize("frequency", ["100", "0.1us", "100ns", 100, "10000000Hz"])
def test_a_timeout_lets_an_operator_run_with_fewer_messages(scheduler: MakeScheduler, frequency: Any) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        timeout = MultiMessageAvailableTimeoutCondition(
            app, frequency, "SumOfAll", min_sum=4, receivers=["left", "right"]
        )
        join = two_inputs(app, taken, timeout, CountCondition(app, 3))
        feed(app, join, 1, 1, period=60)
        app.add_flow(source(app, range(2), PeriodicCondition(app, 1000)), join, {("out", "left")})

    run(compose, scheduler)
    assert [time for time, _, _ in taken] == [100, 200, 300]
    assert [len(left) + len(right) for _, left, right in taken] == [3, 0, 0]


def test_a_timeout_ends_when_a_compute_leaves_the_last_messages(scheduler: MakeScheduler) -> None:
    computes: list[int] = []

    def compose(app: App) -> None:
        timeout = MultiMessageAvailableTimeoutCondition(app, 100, "SumOfAll", min_sum=4, receivers=["in"])

        def setup(spec: Any) -> None:
            spec.input("in", size=4)

        watch = Step(app, timeout, setup=setup, body=lambda op, i, o: computes.append(op.ticks), name="watch")
        app.add_flow(source(app, range(2)), watch)

    assert run(compose, scheduler).outcome.ended_by == "finished"
    assert len(computes) == 1


@pytest.mark.parametrize("given", [False, True])
def test_a_number_at_one_input_holds_beside_a_number_over_several(
    scheduler: MakeScheduler, given: bool
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        over_both = {"sampling_mode": "SumOfAll", "min_sum": 2}

        def setup(spec: Any) -> None:
            spec.input("left", size=4).condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)
            spec.input("right", size=4)
            if not given:
                kind = ConditionType.MULTI_MESSAGE_AVAILABLE
                spec.multi_port_condition(kind, ["left", "right"], **over_both)

        def take(op: Step, i: Any, o: Any) -> None:
            taken.append((len(i.receive("left") or ()), len(i.receive("right") or ())))

        extra = [MultiMessageAvailableCondition(app, **over_both)] if given else []
        feed(app, Step(app, *extra, setup=setup, body=take, name="join"), 4, 8)

    run(compose, scheduler)
    assert [left for left, _ in taken] == [2, 2]


def test_after_the_ends_of_its_sources_it_runs_until_no_message_is_left(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def setup(spec: Any) -> None:
        spec.input("in", size=10)
        spec.multi_port_condition(
            ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT,
            ["in"],
            execution_frequency="50ms",
            sampling_mode="SumOfAll",
            min_sum=10,
        )

    def compose(app: App) -> None:
        # It takes one message at a time.
        step = Step(app, setup=setup, body=lambda op, i, o: taken.append(i.receive("in", kind="single")))
        app.add_flow(source(app, range(5)), step)

    app = run(compose, scheduler)
    assert taken == [0, 1, 2, 3, 4]
    assert app.undelivered() == {}


def test_what_arrives_during_a_compute_in_which_its_sender_ends_is_received() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        timeout = MultiMessageAvailableTimeoutCondition(app, "1h", "SumOfAll", min_sum=1, receivers=["in"])

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive("in"))
            wait_until(timeout._have_all_ended, "the end of the source")

        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)

        last = Step(app, timeout, setup=setup, body=take, name="last")
        app.add_flow(source(app, [1, 2, 3]), last, size=4)

    assert not run(compose, event_based).outcome.undelivered
    assert taken == [1, 2, 3]
