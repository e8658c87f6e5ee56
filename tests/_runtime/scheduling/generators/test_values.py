"""A function that yields emits one value in each step, for each message, before it takes the next."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition, op
from tests._runtime.scheduling.generators.functions import repeat
from tests._runtime.scheduling.generators.schedulers import workers
from tests.harness import SCHEDULERS, App, MakeScheduler, Step, run, sink, source


def test_every_value_arrives_in_order_at_a_queue_of_one(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        several = repeat(app)
        app.add_flow(source(app, [2, 0, 3, 1, 0]), several)
        app.add_flow(several, sink(app, taken))

    app = run(compose, scheduler)
    assert taken == [2, 2, 3, 3, 3, 1]
    assert app.dropped() == app.undelivered() == {}


def test_generators_follow_each_other(scheduler: MakeScheduler) -> None:
    taken: list[str] = []

    @op
    def lines(text: str) -> Any:
        yield from text.split("/")

    @op
    def words(line: str) -> Any:
        yield from line.split()

    def compose(app: App) -> None:
        first, second = lines(app), words(app)
        app.add_flow(source(app, ["a b/c", "", "d/e f g"]), first)
        app.add_flow(first, second)
        app.add_flow(second, sink(app, taken))

    run(compose, scheduler)
    assert taken == list("abcdefg")


def test_a_message_is_not_taken_before_the_last_is_done(scheduler: MakeScheduler) -> None:
    log: list[str] = []

    @op
    def twice(value: int) -> Any:
        log.append(f"begin {value}")
        yield value
        yield value
        log.append(f"end {value}")

    def compose(app: App) -> None:
        pairs = twice(app)
        app.add_flow(source(app, range(4)), pairs)
        app.add_flow(pairs, sink(app, []))

    run(compose, scheduler)
    assert log == [f"{what} {n}" for n in range(4) for what in ("begin", "end")]


def test_a_slow_receiver_holds_a_generator_back() -> None:
    """One value waits at most, and the generator is one ahead of it."""
    made: list[int] = []
    ahead: list[int] = []

    @op
    def count(value: int) -> Any:
        for n in range(value):
            made.append(n)
            yield n

    def slow(body: Step, op_input: Any, op_output: Any) -> None:
        taken = op_input.receive("in")
        ahead.append(len(made) - taken)

    def compose(app: App) -> None:
        counted = count(app)
        app.add_flow(source(app, [20]), counted)
        app.add_flow(counted, Step(app, PeriodicCondition(app, "10ms"), inputs=["in"], body=slow))

    run(compose)
    assert len(made) == 20
    assert max(ahead) <= 2


def test_the_slowest_of_several_receivers_holds_a_generator_back(scheduler: MakeScheduler) -> None:
    fast: list[int] = []
    slow: list[int] = []

    def compose(app: App) -> None:
        several = repeat(app)
        app.add_flow(source(app, [5, 5]), several)
        app.add_flow(several, sink(app, fast, name="fast"))
        app.add_flow(several, sink(app, slow, PeriodicCondition(app, "1ms"), name="slow"))

    run(compose, scheduler)
    assert fast == slow == [5] * 10


def test_several_inputs_are_taken_together(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    @op
    def between(low: int, high: int) -> Any:
        yield from range(low, high)

    def compose(app: App) -> None:
        numbers = between(app)
        app.add_flow(source(app, [0, 10], name="a"), numbers, {"out": "low"})
        app.add_flow(source(app, [3, 12], name="b"), numbers, {"out": "high"})
        app.add_flow(numbers, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 1, 2, 10, 11]


def test_any_number_of_connections_is_taken_together(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    @op
    def each(*values: int) -> Any:
        yield from values

    def compose(app: App) -> None:
        all_of_them = each(app)
        for n in range(3):
            app.add_flow(source(app, [n, 10 * n], name=f"s{n}"), all_of_them)
        app.add_flow(all_of_them, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 1, 2, 0, 10, 20]


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
        app.add_flow(Step(app, CountCondition(app, 3), outputs=["out"], body=send, name="camera"), several)
        app.add_flow(several, Step(app, inputs=["in"], body=take, name="screen"))

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
        app.add_flow(numbers, doubled)
        app.add_flow(doubled, Step(app, inputs=["in"], body=receive, name="in"))

    run(compose, scheduler)
    assert seen == [(1, 1000), (-1, 1000), (2, 2000), (-2, 2000)]


def test_metadata_of_one_message_does_not_come_with_the_next() -> None:
    seen: list[dict[str, Any]] = []

    def send(body: Step, op_input: Any, op_output: Any) -> None:
        if body.ticks % 2:
            body.metadata["odd"] = body.ticks
        op_output.emit(1)

    def take(body: Step, op_input: Any, op_output: Any) -> None:
        op_input.receive()
        seen.append(dict(body.metadata))

    def compose(app: App) -> None:
        several = repeat(app)
        app.add_flow(Step(app, CountCondition(app, 4), outputs=["out"], body=send, name="camera"), several)
        app.add_flow(several, Step(app, inputs=["in"], body=take, name="screen"))

    run(compose)
    assert seen == [{"odd": 1}, {}, {"odd": 3}, {}]


def test_a_generator_runs_on_one_thread_at_a_time() -> None:
    inside = threading.Lock()
    total: list[int] = []

    @op
    def alone(value: int) -> Any:
        for n in range(20):
            assert inside.acquire(blocking=False)
            inside.release()
            yield n

    def compose(app: App) -> None:
        for n in range(4):
            several = alone(app, name=f"alone{n}") if n == 0 else repeat(app, name=f"repeat{n}")
            app.add_flow(source(app, [3] * 20, name=f"source{n}"), several)
            app.add_flow(several, sink(app, total, name=f"sink{n}"))

    run(compose, workers(5))
    assert len(total) == 20 * 20 + 3 * 20 * 3
