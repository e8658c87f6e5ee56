"""Room downstream: what each producer waits for, where it shares a queue with others."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from headrace import ConditionType, CountCondition, PeriodicCondition
from headrace.core import Condition, GraphError, SchedulingStatusType
from headrace.schedulers import EventBasedScheduler
from tests.harness import PATIENCE, App, MakeScheduler, Step, greedy, run, sink, source


def burst(
    app: Any, name: str, size: int, count: int, *args: Any, condition: bool = False, **kwargs: Any
) -> Step:
    """An operator that emits `size` messages at once, `count` times."""

    def setup(spec: Any) -> None:
        if condition:
            spec.output("out").condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=size)
        else:
            spec.output("out", size=size)

    def send(op: Step, i: Any, o: Any) -> None:
        for n in range(size):
            o.emit((name, (op.ticks - 1) * size + n))

    return Step(app, CountCondition(app, count), *args, setup=setup, body=send, name=name, **kwargs)


def batch(app: Any, taken: list[Any], size: int, least: int | None = None, *args: Any) -> Step:
    def setup(spec: Any) -> None:
        port = spec.input("in", size=size)
        if least is not None:
            port.condition(ConditionType.MESSAGE_AVAILABLE, min_size=least)

    return Step(app, *args, setup=setup, body=lambda op, i, o: taken.append(i.receive()), name="batch")


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (1, 3), (2, 3), (1, 2, 3)])
@pytest.mark.parametrize("limit", [3, 4])
@pytest.mark.parametrize("least", [1, 2])
def test_each_of_several_producers_gets_its_turn(
    scheduler: MakeScheduler, sizes: Any, limit: int, least: int
) -> None:
    """One that needs little room does not keep out one that needs more.

    With several workers a producer may be running for as long as its thread is kept from the interpreter, and the
    others go on meanwhile. So the turns are counted where there is one.
    """
    taken: list[Any] = []

    def compose(app: App) -> None:
        b = batch(app, taken, limit, least)
        for n, size in enumerate(sizes):
            app.add_flow(burst(app, f"a{n}", size, 60), b)

    run(compose, scheduler)
    seen: Counter[str] = Counter()
    for each in taken:
        seen.update(name for name, _ in each)
        computes = [seen[f"a{n}"] / size for n, size in enumerate(sizes)]
        if scheduler is greedy and max(computes) <= 50:
            assert max(computes) <= 3 * min(computes) + 3, computes
    if scheduler is greedy or least == 1:
        # Otherwise one message may be left which is too few for the consumer and too many for a producer.
        left = limit if least > 1 else 0
        assert sum(seen.values()) >= 60 * sum(sizes) - left


def test_a_producer_that_has_ended_keeps_nobody_out(scheduler: MakeScheduler) -> None:
    """The one that needs most room is first in line, and is stopped while it waits."""
    taken: list[Any] = []

    def compose(app: App) -> None:
        b = batch(app, taken, 3, 1, PeriodicCondition(app, 10))
        large = burst(app, "large", 3, 50)
        app.add_flow(large, b)
        app.add_flow(burst(app, "small", 1, 50), b)
        app.add_operator(
            Step(
                app,
                PeriodicCondition(app, 45),
                CountCondition(app, 2),
                body=lambda op, i, o: large.stop_execution() if op.ticks == 2 else None,
                name="stopper",
            )
        )

    run(compose, scheduler)
    counts = Counter(name for each in taken for name, _ in each)
    assert counts["small"] == 50
    assert 0 < counts["large"] < 150


def test_a_producer_runs_when_the_consumer_that_was_to_make_room_finds_none_itself(
    scheduler: MakeScheduler,
) -> None:
    """`small` does not overtake `huge` while the consumer is ready. But the consumer has no room for what it emits
    until `small` has emitted what the last operator waits for."""
    joined: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            o.emit("small", "out")
            o.emit("go", "go")

        def join(op: Step, i: Any, o: Any) -> None:
            joined.append((i.receive("in"), i.receive("go")))

        consumer = Step(
            app,
            inputs=["in"],
            outputs=["out"],
            body=lambda op, i, o: o.emit(i.receive("in")),
            name="consumer",
        )
        last = Step(app, inputs=["in", "go"], body=join, name="last")
        small = Step(app, CountCondition(app, 1), outputs=["out", "go"], body=send, name="small")
        for producer in (burst(app, "large", 3, 1), burst(app, "huge", 4, 1), small):
            app.add_flow(producer, consumer, {("out", "in")}, size=4)
        app.add_flow(consumer, last, {("out", "in")})
        app.add_flow(source(app, (), name="other"), last, {("out", "in")})  # so that it is shared
        app.add_flow(small, last, {("go", "go")})

    run(compose, scheduler)
    assert [go for _, go in joined] == ["go"]


@pytest.mark.parametrize("name", ["first", "second", "third"])
@pytest.mark.parametrize("at", [2, 3, 4])
def test_any_of_the_producers_that_wait_for_room_can_be_stepped(name: str, at: int) -> None:
    """The others, whose turn it would be, may not run in the pause. On one thread, where the order is known."""
    taken: list[str] = []

    def compose(app: App) -> None:
        def take(op: Step, i: Any, o: Any) -> None:
            taken.append(i.receive())
            if op.ticks == at:
                app.step(1, name)

        def send(op: Step, i: Any, o: Any) -> None:
            o.emit(op.name)
            if len(taken) >= at:
                app.resume()

        consumer = Step(app, inputs=["in"], body=take, name="consumer")
        for each in ("first", "second", "third"):
            producer = Step(app, CountCondition(app, 4), outputs=["out"], body=send, name=each)
            app.add_flow(producer, consumer)

    run(compose)  # which would not end
    assert taken[at] == name
    assert Counter(taken) == {"first": 4, "second": 4, "third": 4}


def test_producers_that_change_their_mind_whenever_they_are_asked_do_not_ask_each_other_for_ever(
    scheduler: MakeScheduler,
) -> None:
    """Each might be ready only while the room is kept for the other."""

    class Moody(Condition):
        asked = 0

        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            self.asked += 1
            assert self.asked < 1_000
            return (SchedulingStatusType.READY if self.asked % 2 else SchedulingStatusType.WAIT), None

    taken: list[Any] = []

    def compose(app: App) -> None:
        consumer = sink(app, taken, Moody(app))
        for n in range(4):
            app.add_flow(source(app, range(5), Moody(app), name=f"producer{n}"), consumer)

    run(compose, scheduler, stop_on_deadlock_timeout=1_000)
    assert len(taken) == 20


@pytest.mark.parametrize("count", [3, 50])
def test_producers_that_share_a_queue_take_turns(count: int) -> None:
    taken: list[str] = []

    def compose(app: App) -> None:
        consumer = sink(app, taken)
        for n in range(count):
            app.add_flow(source(app, [n] * 4, name=f"producer{n}"), consumer)

    run(compose)
    assert taken == [*range(count)] * 4


def test_a_producer_of_two_shared_queues_holds_no_room_in_one_while_it_waits_in_the_other(
    scheduler: MakeScheduler,
) -> None:
    """Otherwise two of them, each with a place in one queue, could wait for each other."""
    taken: dict[str, list[Any]] = {"left": [], "right": []}

    def compose(app: App) -> None:
        left, right = (sink(app, taken[name], name=name) for name in taken)
        for name, consumers in (("a", (left, right)), ("b", (right, left)), ("c", (right,)), ("d", (left,))):
            producer = source(app, [name] * 20, name=name)
            for consumer in consumers:
                app.add_flow(producer, consumer)

    run(compose, scheduler)
    assert Counter(taken["left"]) == {"a": 20, "b": 20, "d": 20}
    assert Counter(taken["right"]) == {"a": 20, "b": 20, "c": 20}


def test_room_that_is_made_in_the_middle_of_a_compute_is_told_at_once() -> None:
    again = threading.Event()
    in_time: list[bool] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 2:
                again.set()
            o.emit(op.ticks)

        def take(op: Step, i: Any, o: Any) -> None:
            i.receive()
            if op.ticks == 1:
                in_time.append(again.wait(PATIENCE))

        b = Step(app, inputs=["in"], body=take, name="b")
        app.add_flow(Step(app, CountCondition(app, 2), outputs=["out"], body=send, name="a"), b)
        app.add_flow(source(app, []), b)

    run(compose, lambda app: EventBasedScheduler(app, worker_thread_number=2))
    assert in_time == [True]


def test_more_room_than_there_is_is_an_error_that_says_what_would_be_right() -> None:
    with pytest.raises(
        GraphError,
        match=r"emits up to 3 messages at once, but .* holds 2; declare that input with size=3 or more",
    ):
        run(lambda app: app.add_flow(burst(app, "a", 3, 1), batch(app, [], 2)))
    with pytest.raises(GraphError, match=r"waits for room for 3 messages.* holds 2"):
        run(lambda app: app.add_flow(burst(app, "a", 3, 1, condition=True), batch(app, [], 2)))


def test_the_room_of_a_producer_that_ends_while_it_waits_goes_to_the_next() -> None:
    taken: list[int] = []

    class Thrice(Condition):
        """Holds until a producer has waited for room, and never again."""

        checks = 0

        def check(self, timestamp: int) -> Any:
            self.checks += 1
            status = SchedulingStatusType.READY if self.checks < 3 else SchedulingStatusType.NEVER
            return status, None

    def compose(app: App) -> None:
        last = sink(app, taken)
        for name, conditions in (("ends", [Thrice(app)]), ("goes on", [])):
            app.add_flow(source(app, range(5), *conditions, name=name), last)

    run(compose)
    assert sorted(taken) == sorted([0, *range(5)])
