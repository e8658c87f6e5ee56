"""A function that yields emits one value in each step, for each message, before it takes the next."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock import Application, CountCondition, EventBasedScheduler, PeriodicCondition, op
from penstock.conditions import (
    BooleanCondition,
    ExpiringMessageAvailableCondition,
    MessageAvailableCondition,
    MultiMessageAvailableCondition,
    OrConditionCombiner,
)
from penstock.core import Condition, SchedulingStatusType
from penstock.resources import ManualClock, RealtimeClock
from tests.harness import SCHEDULERS, App, MakeScheduler, Step, run, sink, source


@op
def repeat(value: int) -> Any:
    """Yield each number as often as it says."""
    for _ in range(value):
        yield value


def workers(count: int) -> MakeScheduler:
    def make(app: Application, **kwargs: Any) -> EventBasedScheduler:
        clock = kwargs.pop("clock", None) or ManualClock(app)
        return EventBasedScheduler(app, clock=clock, worker_thread_number=count, **kwargs)

    make.__name__ = f"workers_{count}"
    return make


def real_time(app: Application, **kwargs: Any) -> EventBasedScheduler:
    return EventBasedScheduler(app, clock=RealtimeClock(app), worker_thread_number=3, **kwargs)


WITH_MORE_WORKERS = [*SCHEDULERS, workers(1), workers(5), real_time]


@pytest.fixture(params=WITH_MORE_WORKERS)
def scheduler(request: pytest.FixtureRequest) -> Any:
    return request.param


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


def test_an_exception_in_the_middle_comes_out_after_what_was_emitted(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    @op
    def fail(value: int) -> Any:
        yield value
        raise ZeroDivisionError("on purpose")

    def compose(app: App) -> None:
        failing = fail(app)
        app.add_flow(source(app, range(9)), failing)
        app.add_flow(failing, sink(app, taken))

    with pytest.raises(ZeroDivisionError) as caught:
        run(compose, scheduler)
    assert caught.value.__notes__ == ["raised in compute of operator 'fail' (FunctionOperator)"]
    assert taken in ([0], [])


def test_a_generator_goes_on_with_the_next_message_where_an_exception_is_caught(
    scheduler: MakeScheduler,
) -> None:
    taken: list[int] = []
    caught: list[int] = []

    @op
    def fail(value: int) -> Any:
        if value == 1:
            raise ZeroDivisionError("at once")
        yield value
        if value == 3:
            raise ZeroDivisionError("in the middle")
        yield value

    def compose(app: App) -> None:
        failing = fail(app)
        start = failing.start

        def start_and_catch() -> None:
            start()
            compute = failing.compute

            def careful(*contexts: Any) -> None:
                try:
                    compute(*contexts)
                except ZeroDivisionError:
                    caught.append(1)

            failing.compute = careful

        failing.start = start_and_catch
        app.add_flow(source(app, range(6)), failing)
        app.add_flow(failing, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 0, 2, 2, 3, 4, 4, 5, 5]
    assert len(caught) == 2


def test_a_stop_in_the_middle_closes_the_generator(scheduler: MakeScheduler) -> None:
    log: list[str] = []

    @op
    def endless(value: int) -> Any:
        try:
            while True:
                yield value
        finally:
            log.append("closed")

    def stop(body: Step, op_input: Any, op_output: Any) -> None:
        op_input.receive()
        if body.ticks == 3:
            body.fragment.stop_execution()

    def compose(app: App) -> None:
        going = endless(app)
        app.add_flow(source(app, range(9)), going)
        app.add_flow(going, Step(app, inputs=["in"], body=stop))

    run(compose, scheduler)
    assert log == ["closed"]


def test_an_application_can_be_run_again_after_a_stop_in_the_middle() -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        several = repeat(app)
        app.add_flow(source(app, [2, 2]), several)
        app.add_flow(several, sink(app, taken, CountCondition(app, 3)))

    app = App(compose)
    app.run()
    app.run()
    assert taken == [2, 2, 2] * 2


def test_values_left_over_are_emitted_after_the_source_has_ended() -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        several = repeat(app)
        app.add_flow(source(app, [50]), several)
        app.add_flow(several, sink(app, taken))

    run(compose)
    assert taken == [50] * 50


def test_a_function_that_yields_once_takes_one_step_for_each_message_that_waits() -> None:
    """The step that finds a generator at its end begins the next message."""
    times: list[int] = []

    @op
    def same(value: int) -> Any:
        yield value

    def note(body: Step, op_input: Any, op_output: Any) -> None:
        op_input.receive()
        times.append(body.fragment.now // 1_000_000)

    def compose(app: App) -> None:
        paced = same(app, PeriodicCondition(app, "10ms"))
        app.add_flow(source(app, range(4)), paced)
        app.add_flow(paced, Step(app, inputs=["in"], body=note))

    run(compose)
    assert times == [0, 10, 20, 30]


def test_a_pace_is_that_of_the_values() -> None:
    times: list[int] = []

    def note(body: Step, op_input: Any, op_output: Any) -> None:
        op_input.receive()
        times.append(body.fragment.now // 1_000_000)

    def compose(app: App) -> None:
        paced = repeat(app, PeriodicCondition(app, "10ms"))
        app.add_flow(source(app, [2, 3]), paced)
        app.add_flow(paced, Step(app, inputs=["in"], body=note))

    run(compose)
    assert times == [0, 10, 20, 30, 40]


def test_a_count_is_one_of_steps() -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        several = repeat(app, CountCondition(app, 4))
        app.add_flow(source(app, [3, 9]), several)
        app.add_flow(several, sink(app, taken))

    run(compose)
    assert taken == [3, 3, 3, 9]


def test_a_switch_ends_a_generator_in_the_middle() -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        switch = BooleanCondition(app)

        def take(body: Step, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive())
            if body.ticks == 2:
                switch.disable_tick()

        several = repeat(app, switch)
        app.add_flow(source(app, [9]), several)
        app.add_flow(several, Step(app, inputs=["in"], body=take))

    run(compose)
    assert len(taken) in (2, 3)


CONDITIONS_ON_INPUTS = {
    "counted": lambda app: MessageAvailableCondition(app, 1, receiver="value"),
    "bounded": lambda app: MessageAvailableCondition(app, 1, front_stage_max_size=1, receiver="value"),
    "expiring": lambda app: ExpiringMessageAvailableCondition(app, 1, "1ms", receiver="value"),
    "several": lambda app: MultiMessageAvailableCondition(app, "SumOfAll", 1, receivers=["value"]),
    "any": lambda app: OrConditionCombiner(app, [MessageAvailableCondition(app, 1, receiver="value")]),
    "own": lambda app: Waiting(app),
}


class Waiting(Condition):
    """A condition of the program's own, which says what it is about."""

    port_names = ("value",)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        waits = self.receiver("value").size > 0
        return (SchedulingStatusType.READY if waits else SchedulingStatusType.WAIT), None

    def on_execute(self, timestamp: int) -> None:
        self.told = getattr(self, "told", 0) + 1


@pytest.mark.parametrize("condition", CONDITIONS_ON_INPUTS)
def test_a_condition_on_an_input_does_not_hold_values_back(condition: str, scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        several = repeat(app, CONDITIONS_ON_INPUTS[condition](app))
        app.add_flow(source(app, [3, 0, 2]), several)
        app.add_flow(several, sink(app, taken))

    run(compose, scheduler)
    assert taken == [3, 3, 3, 2, 2]


def test_a_condition_on_an_input_is_told_of_the_steps_that_received() -> None:
    told: list[Waiting] = []

    def compose(app: App) -> None:
        told.append(Waiting(app))
        several = repeat(app, told[0])
        app.add_flow(source(app, [3, 0, 2]), several)
        app.add_flow(several, sink(app, []))

    run(compose)
    assert told[0].told == 3
    assert not told[0].notify_scheduler()  # it is not part of the run any more


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
