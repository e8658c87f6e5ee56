"""When an operator runs, condition by condition, under every scheduler and in virtual time."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from penstock import ConditionType, CountCondition, IOSpec, PeriodicCondition
from penstock.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    BooleanCondition,
    DownstreamMessageAffordableCondition,
    ExpiringMessageAvailableCondition,
    MessageAvailableCondition,
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
    OrConditionCombiner,
    PeriodicConditionPolicy,
)
from penstock.core import Condition, GraphError, SchedulingStatusType
from tests.harness import App, MakeScheduler, Step, run, sink, source

READY, WAIT, NEVER = SchedulingStatusType.READY, SchedulingStatusType.WAIT, SchedulingStatusType.NEVER
WAIT_TIME, WAIT_EVENT = SchedulingStatusType.WAIT_TIME, SchedulingStatusType.WAIT_EVENT


def now(op: Step) -> int:
    return op.fragment.scheduler().clock.timestamp()


# Count and Boolean.


def test_a_count_is_how_often_an_operator_runs(scheduler: MakeScheduler) -> None:
    ticks: list[int] = []
    run(
        lambda app: app.add_operator(
            Step(app, CountCondition(app, 3), body=lambda op, i, o: ticks.append(1))
        ),
        scheduler,
    )
    assert len(ticks) == 3


def test_of_two_counts_the_smaller_holds() -> None:
    app = run(
        lambda app: app.add_operator(Step(app, CountCondition(app, 5), CountCondition(app, 2), name="a"))
    )
    assert app.graph.find("a").ticks == 2  # type: ignore[attr-defined]


def test_a_count_must_be_an_int() -> None:
    with pytest.raises(TypeError, match="count must be an int"):
        CountCondition(None, "3")  # type: ignore[arg-type]


def test_an_operator_that_is_switched_off_never_runs_again(scheduler: MakeScheduler) -> None:
    log: list[str] = []

    def compose(app: App) -> None:
        switch = BooleanCondition(app)

        def body(op: Step, i: Any, o: Any) -> None:
            log.append(op.name)
            if op.ticks == 3:
                switch.disable_tick()

        app.add_operator(Step(app, switch, body=body, name="a"))

    run(compose, scheduler)
    assert log == ["a", "a", "a"]


def test_an_operator_can_be_switched_off_while_it_waits() -> None:
    def compose(app: App) -> None:
        switch = BooleanCondition(app)
        waiting = Step(app, switch, PeriodicCondition(app, 1_000), name="waiting")
        app.add_operator(waiting)
        app.add_operator(
            Step(app, CountCondition(app, 1), body=lambda op, i, o: switch.disable_tick(), name="other")
        )

    app = run(compose)
    assert app.graph.find("waiting").ticks <= 1  # type: ignore[attr-defined]


# Periodic.


@pytest.mark.parametrize("period", [10_000_000, 0.01, timedelta(milliseconds=10)])
def test_a_period_is_kept_in_the_clocks_time(scheduler: MakeScheduler, period: Any) -> None:
    times: list[int] = []

    def compose(app: App) -> None:
        pace = PeriodicCondition(app, period)
        assert pace.recess_period_ns() == 10_000_000
        app.add_operator(Step(app, pace, CountCondition(app, 4), body=lambda op, i, o: times.append(now(op))))

    run(compose, scheduler)
    assert times == [0, 10_000_000, 20_000_000, 30_000_000]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("CatchUpMissedTicks", [0, 100, 350, 350, 400]),
        ("MinTimeBetweenTicks", [0, 100, 350, 450, 550]),
        (PeriodicConditionPolicy.NO_CATCH_UP_MISSED_TICKS, [0, 100, 350, 400, 500]),
    ],
)
def test_a_policy_says_what_follows_a_late_tick(policy: Any, expected: list[int]) -> None:
    times: list[int] = []

    def body(op: Step, i: Any, o: Any) -> None:
        times.append(now(op))
        if op.ticks == 2:
            op.fragment.scheduler().clock.sleep_for(250)

    run(
        lambda app: app.add_operator(
            Step(app, PeriodicCondition(app, 100, policy), CountCondition(app, 5), body=body)
        )
    )
    assert times == expected


def test_a_periodic_operator_waits_for_its_message_too() -> None:
    times: list[tuple[int, int]] = []

    def compose(app: App) -> None:
        slow = Step(
            app,
            PeriodicCondition(app, 70),
            CountCondition(app, 3),
            outputs=["out"],
            body=lambda op, i, o: o.emit(op.ticks),
            name="slow",
        )
        fast = Step(
            app,
            PeriodicCondition(app, 50),
            inputs=["in"],
            body=lambda op, i, o: times.append((now(op), i.receive())),
            name="fast",
        )
        app.add_flow(slow, fast)

    run(compose)
    assert times == [(0, 1), (70, 2), (140, 3)]


def test_an_unknown_policy_lists_the_policies() -> None:
    with pytest.raises(ValueError, match="there are CatchUpMissedTicks, MinTimeBetweenTicks"):
        PeriodicCondition(None, 1, "sometimes")


# Asynchronous.


def test_an_operator_waits_for_an_event_from_another_thread(scheduler: MakeScheduler) -> None:
    states: list[str] = []
    threads: list[threading.Thread] = []

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)

        def body(op: Step, i: Any, o: Any) -> None:
            states.append(event.event_state.name)
            if op.ticks == 3:
                event.event_state = AsynchronousEventState.EVENT_NEVER
                return
            event.event_state = AsynchronousEventState.EVENT_WAITING
            done = AsynchronousEventState.EVENT_DONE
            threads.append(threading.Thread(target=lambda: setattr(event, "event_state", done)))
            threads[-1].start()

        app.add_operator(Step(app, event, body=body))

    run(compose, scheduler)
    for thread in threads:
        thread.join()
    assert states == ["READY", "EVENT_DONE", "EVENT_DONE"]


def test_an_event_outstanding_is_not_a_deadlock_even_where_a_message_is_missing_too(
    scheduler: MakeScheduler,
) -> None:
    """The operator that waits for the event also waits for a message that only then can come."""
    taken: list[int] = []
    go = threading.Event()

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.EVENT_WAITING
        held = Step(
            app,
            event,
            CountCondition(app, 1),
            inputs=["in"],
            outputs=["out"],
            body=lambda op, i, o: o.emit(i.receive()),
        )
        app.add_flow(source(app, [7]), held)
        app.add_flow(held, sink(app, taken))

        def release() -> None:
            assert go.wait(10)
            event.event_state = AsynchronousEventState.EVENT_DONE

        threading.Thread(target=release).start()

    app = App(compose, scheduler)
    future = app.run_async()
    go.set()
    future.result(timeout=10)
    assert taken == [7]


# Messages and room.


def test_an_operator_waits_for_as_many_messages_as_it_asks_for(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        least = MessageAvailableCondition(app, min_size=2, receiver="in")
        batch = Step(
            app, least, inputs=[("in", {"size": 3})], body=lambda op, i, o: taken.append(i.receive())
        )
        app.add_flow(source(app, range(7)), batch)

    app = run(compose, scheduler)
    assert all(len(batch) >= 2 for batch in taken)
    assert [value for batch in taken for value in batch] == list(range(7 - sum(app.undelivered().values())))


def test_a_queue_of_several_is_a_batch_unless_its_condition_says_otherwise() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        batch = Step(app, inputs=[("in", {"size": 3})], body=lambda op, i, o: taken.append(i.receive()))
        app.add_flow(source(app, range(7)), batch)

    run(compose)
    assert taken == [(0, 1, 2), (3, 4, 5)]


def test_front_stage_max_size_holds_an_operator_while_too_many_wait() -> None:
    def compose(app: App) -> None:
        bounded = MessageAvailableCondition(app, 1, 2, "in")
        slow = Step(app, bounded, inputs=[("in", {"size": 5})], body=lambda op, i, o: None, name="slow")
        burst = Step(
            app,
            CountCondition(app, 1),
            outputs=[("out", {"size": 3})],
            body=lambda op, i, o: [o.emit(n) for n in range(3)],
        )
        app.add_flow(burst, slow)

    app = run(compose)
    assert app.graph.find("slow").ticks == 0  # type: ignore[attr-defined]


def test_a_condition_about_a_port_the_operator_does_not_have_lists_the_ports() -> None:
    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), sink(app, [], MessageAvailableCondition(app, receiver="inn")))

    with pytest.raises(GraphError, match=r"about a port 'inn' that the operator does not have; it has 'in'"):
        run(compose)


def test_a_producer_waits_for_the_room_it_asks_for(scheduler: MakeScheduler) -> None:
    waiting: list[int] = []

    def compose(app: App) -> None:
        room = DownstreamMessageAffordableCondition(app, min_size=2, transmitter="out")

        def body(op: Step, i: Any, o: Any) -> None:
            waiting.append(op._node.transmitter("out").free)  # type: ignore[union-attr]
            o.emit(1)
            o.emit(2)

        pairs = Step(app, room, CountCondition(app, 5), outputs=["out"], body=body)

        def setup(spec: Any) -> None:
            spec.input("in", size=3).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)

        app.add_flow(pairs, Step(app, setup=setup, body=lambda op, i, o: i.receive(), name="b"))

    run(compose, scheduler)
    assert len(waiting) == 5
    assert min(waiting) >= 2


def test_an_input_and_an_output_of_the_same_name_keep_their_own_conditions(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("image", size=2).condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)
            spec.output("image").condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1)

        pairs = Step(
            app, setup=setup, body=lambda op, i, o: o.emit(i.receive("image"), "image"), name="pairs"
        )
        app.add_flow(source(app, range(6)), pairs)
        app.add_flow(pairs, sink(app, taken, PeriodicCondition(app, 10)))

    run(compose, scheduler)
    assert taken == [(0, 1), (2, 3), (4, 5)]


def test_without_a_condition_on_its_output_a_producer_does_not_wait() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.output("out").condition(ConditionType.NONE)

        careless = Step(
            app, CountCondition(app, 5), setup=setup, body=lambda op, i, o: o.emit(op.ticks), name="a"
        )
        dead = Step(
            app, CountCondition(app, 0), inputs=[("in", {"policy": IOSpec.QueuePolicy.POP})], name="b"
        )
        app.add_flow(careless, dead)

    app = run(compose)
    assert app.dropped() == {"b.in": 4}
    assert app.undelivered() == {"b.in": 1}


# Expiring and over several inputs.


@pytest.mark.parametrize("stamped", [True, False])
def test_a_batch_runs_when_it_is_full_or_when_its_first_message_is_old_enough(
    scheduler: MakeScheduler, stamped: bool
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            o.emit(op.ticks, "out", acq_timestamp=now(op) if stamped else -1)

        a = Step(
            app, PeriodicCondition(app, 30), CountCondition(app, 4), outputs=["out"], body=send, name="a"
        )
        expiring = ExpiringMessageAvailableCondition(app, 3, 50, receiver="in")
        b = Step(
            app,
            expiring,
            inputs=[("in", {"size": 4})],
            body=lambda op, i, o: taken.append((now(op), i.receive())),
            name="b",
        )
        app.add_flow(a, b)

    run(compose, scheduler)
    assert taken == [(50, (1, 2)), (110, (3, 4))]


def test_a_run_does_not_wait_for_the_time_of_a_batch_that_was_complete_before(
    scheduler: MakeScheduler,
) -> None:
    def compose(app: App) -> None:
        send = source(app, range(2), PeriodicCondition(app, 30))
        expiring = ExpiringMessageAvailableCondition(app, 2, 1000, receiver="in")
        batch = Step(
            app, expiring, inputs=[("in", {"size": 2})], body=lambda op, i, o: i.receive(), name="in"
        )
        app.add_flow(send, batch)

    app = run(compose, scheduler)
    assert app.graph.find("in").ticks == 1  # type: ignore[attr-defined]
    assert app.scheduler().clock.timestamp() == 30


def test_a_full_batch_does_not_wait_for_its_time() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            kind = ConditionType.EXPIRING_MESSAGE_AVAILABLE
            spec.input("in", size=2).condition(kind, max_batch_size=2, max_delay_ns=timedelta(seconds=1))

        app.add_flow(
            source(app, range(4)),
            Step(app, setup=setup, body=lambda op, i, o: taken.append((now(op), i.receive())), name="b"),
        )

    run(compose)
    assert taken == [(0, (0, 1)), (0, (2, 3))]


def two_inputs(app: App, taken: list[Any], *conditions: Any, **multi: Any) -> Step:
    def setup(spec: Any) -> None:
        spec.input("left", size=4)
        spec.input("right", size=4)
        if multi:
            spec.multi_port_condition(
                multi.pop("kind", ConditionType.MULTI_MESSAGE_AVAILABLE), ["left", "right"], **multi
            )

    def take(op: Step, i: Any, o: Any) -> None:
        taken.append((now(op), i.receive("left") or (), i.receive("right") or ()))

    return Step(app, *conditions, setup=setup, body=take, name="join")


def feed(app: App, join: Step, left: int, right: int, period: int = 10) -> None:
    for name, count in (("left", left), ("right", right)):
        app.add_flow(
            source(app, range(count), PeriodicCondition(app, period), name=name), join, {("out", name)}
        )


def test_the_sum_of_messages_over_inputs(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        feed(app, two_inputs(app, taken, sampling_mode="SumOfAll", min_sum=4), 2, 6)

    run(compose, scheduler)
    assert [len(left) + len(right) for _, left, right in taken] == [4, 4]


def test_as_many_messages_of_each_input_as_named() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        condition = MultiMessageAvailableCondition(
            app, "PerReceiver", min_sizes=[1, 2], receivers=["left", "right"]
        )
        feed(app, two_inputs(app, taken, condition), 4, 4)

    run(compose)
    assert [(len(left), len(right)) for _, left, right in taken] == [(2, 2), (2, 2)]


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
        feed(app, join, 2, 1, period=60)

    run(compose, scheduler)
    assert [time for time, _, _ in taken] == [100, 200, 300]
    assert [len(left) + len(right) for _, left, right in taken] == [3, 0, 0]


def test_a_frequency_that_cannot_be_read_shows_some_that_can() -> None:
    with pytest.raises(ValueError, match="'33ms', '1.5s', '2min', '30Hz'; not 'often'"):
        MultiMessageAvailableTimeoutCondition(None, "often")


@pytest.mark.parametrize("order", [(1, 3), (3, 1)])
@pytest.mark.parametrize("where", ["port", "port and given", "given"])
def test_of_two_numbers_of_messages_at_one_input_both_hold(
    scheduler: MakeScheduler, order: Any, where: str
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        on_port = {"port": order, "port and given": order[:1], "given": ()}[where]

        def setup(spec: Any) -> None:
            port = spec.input("in", size=4)
            for least in on_port:
                port.condition(ConditionType.MESSAGE_AVAILABLE, min_size=least)

        # Without a name it is about the only input.
        given = [MessageAvailableCondition(app, least) for least in order[len(on_port) :]]
        batch = Step(app, *given, setup=setup, body=lambda op, i, o: taken.append(i.receive()), name="b")
        app.add_flow(source(app, range(7), PeriodicCondition(app, 10)), batch)

    run(compose, scheduler)
    assert taken == [(0, 1, 2), (3, 4, 5)]


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


def test_a_batch_that_expires_keeps_the_least_that_its_input_asks_for(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            port = spec.input("in", size=4).condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)
            port.condition(ConditionType.EXPIRING_MESSAGE_AVAILABLE, max_batch_size=4, max_delay_ns=50)

        b = Step(app, setup=setup, body=lambda op, i, o: taken.append(i.receive()), name="b")
        app.add_flow(source(app, range(3), PeriodicCondition(app, 100)), b)

    run(compose, scheduler)
    assert taken == [(0, 1)]


def expiring_join(app: App, taken: list[Any], *sources: Step, delay: int = 50, **flow: Any) -> None:
    def setup(spec: Any) -> None:
        spec.input("all", size=IOSpec.ANY_SIZE).condition(
            ConditionType.EXPIRING_MESSAGE_AVAILABLE, max_batch_size=3, max_delay_ns=delay
        )

    join = Step(app, setup=setup, body=lambda op, i, o: taken.append((now(op), i.receive())), name="join")
    for each in sources:
        app.add_flow(each, join, **flow)


@pytest.mark.parametrize("same", [False, True])
def test_messages_of_several_connections_expire(scheduler: MakeScheduler, same: bool) -> None:
    """Each connection's first message has an age of its own, though the objects may be the same."""
    taken: list[Any] = []

    def compose(app: App) -> None:
        a = source(app, ["x" if same else "a"], name="a")
        b = source(app, ["x" if same else "b"], PeriodicCondition(app, 10), name="b")
        c = Step(app, CountCondition(app, 0), outputs=["out"], name="c")
        expiring_join(app, taken, a, b, c)

    run(compose, scheduler)
    assert taken == [(50, ("x", "x") if same else ("a", "b"))]


def test_the_age_of_a_connection_is_not_reset_by_messages_of_another(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        slow = source(app, ["slow"], name="slow")
        fast = source(app, range(2), PeriodicCondition(app, 20), name="fast")
        expiring_join(app, taken, slow, fast, size=4)

    run(compose, scheduler)
    assert taken[0] == (20, ("slow", 0))  # three wait: the batch is complete
    assert taken[1] == (70, (1,))


def test_what_is_left_of_a_batch_keeps_its_age(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.output("out", size=2)

        two = Step(
            app,
            CountCondition(app, 1),
            setup=setup,
            body=lambda op, i, o: (o.emit("first"), o.emit("second")),
            name="two",
        )
        late = Step(
            app,
            CountCondition(app, 2),
            PeriodicCondition(app, 30),
            outputs=["out"],
            body=lambda op, i, o: o.emit("late") if op.ticks == 2 else None,
            name="late",
        )
        expiring_join(app, taken, two, late, size=4)

    run(compose, scheduler)
    # Three wait at 30, and two are taken. The third has been there since 0.
    assert taken == [(30, ("first", "late")), (50, ("second",))]


def test_a_condition_on_an_expiring_input_must_be_named_where_there_are_several() -> None:
    def compose(app: App) -> None:
        expiring = ExpiringMessageAvailableCondition(app, 3, 50)
        feed(app, two_inputs(app, [], expiring), 1, 1)

    with pytest.raises(GraphError, match=r"must name its input: receiver=... \(one of 'left', 'right'\)"):
        run(compose)


# Any of several.


def test_or_combined_ports_run_on_either(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("left")
            spec.input("right")
            spec.or_combine_port_conditions(["left", "right"])

        either = Step(
            app, setup=setup, body=lambda op, i, o: taken.append((i.receive("left"), i.receive("right")))
        )
        app.add_flow(source(app, [1, 2], PeriodicCondition(app, 10), name="a"), either, {("out", "left")})
        app.add_flow(source(app, [3], PeriodicCondition(app, 10), name="b"), either, {("out", "right")})

    run(compose, scheduler)
    received = sorted(value for pair in taken for value in pair if value is not None)
    assert received == [1, 2, 3]


@pytest.mark.parametrize("given_twice", [True, False])
def test_a_combiner_runs_an_operator_by_message_or_by_time(given_twice: bool) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        terms = [MessageAvailableCondition(app, receiver="in"), PeriodicCondition(app, 100)]
        either = OrConditionCombiner(app, terms=terms)
        extra = terms if given_twice else []
        app.add_flow(
            source(app, "xy", PeriodicCondition(app, 70)),
            Step(
                app,
                either,
                *extra,
                CountCondition(app, 5),
                inputs=["in"],
                body=lambda op, i, o: taken.append((now(op), i.receive())),
            ),
        )

    run(compose)
    assert [time for time, _ in taken] == sorted(time for time, _ in taken)
    assert [value for _, value in taken if value] == ["x", "y"]
    assert len(taken) == 5


def test_room_downstream_can_be_one_of_several_terms(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        room = DownstreamMessageAffordableCondition(app, transmitter="out")
        switch = BooleanCondition(app, False)
        either = OrConditionCombiner(app, terms=[room, switch])
        app.add_flow(source(app, range(5), either), sink(app, taken, PeriodicCondition(app, 100)))

    run(compose, scheduler)
    assert taken == list(range(5))


def shared_condition(app: App, how: str) -> None:
    """Give a condition to two operators, or twice to one."""
    shared = PeriodicCondition(app, 10, name="shared")

    def either(term: Any) -> Any:
        return OrConditionCombiner(app, terms=[term, CountCondition(app, 1)])

    first, second = {
        "plain": (shared, shared),
        "two combiners": (either(shared), either(shared)),
        "combiner and plain": (either(shared), shared),
        "plain and combiner": (shared, either(shared)),
        "nested": (either(either(shared)), shared),
    }[how]
    app.add_operator(Step(app, first, name="a"))
    app.add_operator(Step(app, second, name="b"))


@pytest.mark.parametrize(
    "how", ["plain", "two combiners", "combiner and plain", "plain and combiner", "nested"]
)
def test_a_condition_belongs_to_one_operator_also_as_a_term(how: str) -> None:
    app = App(lambda app: shared_condition(app, how))
    for _ in range(2):  # the second time as the first: nothing is left of a run that did not begin
        with pytest.raises(
            GraphError, match=r"condition 'shared' was given to the operators 'a' and 'b'; make one for each"
        ):
            app.run()


@pytest.mark.parametrize("how", ["twice in one", "in two"])
def test_a_condition_is_a_term_once(how: str) -> None:
    def compose(app: App) -> None:
        term = PeriodicCondition(app, 10, name="term")
        if how == "twice in one":
            combiners = [OrConditionCombiner(app, terms=[term, term])]
        else:
            combiners = [OrConditionCombiner(app, terms=[term, CountCondition(app, 1)]) for _ in range(2)]
        app.add_operator(Step(app, *combiners, name="a"))

    with pytest.raises(GraphError, match=r"condition 'term' of operator 'a' is a term more than once"):
        run(compose)


@pytest.mark.parametrize("combined", [False, True])
def test_a_condition_belongs_to_one_running_application(combined: bool) -> None:
    shared = BooleanCondition(name="shared")
    running, done = threading.Event(), threading.Event()

    def compose(app: App) -> None:
        condition = OrConditionCombiner(app, terms=[shared]) if combined else shared

        def body(op: Step, i: Any, o: Any) -> None:
            running.set()
            assert done.wait(10)

        app.add_operator(Step(app, condition, CountCondition(app, 1), body=body, name="a"))

    first = App(compose)
    first.name = "first"
    future = first.run_async()
    try:
        assert running.wait(10)
        with pytest.raises(
            GraphError,
            match=r"condition 'shared' of operator 'a' is in use by operator 'a' of 'first', which is running",
        ):
            run(compose)
    finally:
        done.set()
    future.result(timeout=10)
    run(compose)  # one after the other is no mistake


def test_a_condition_can_be_used_again_after_a_run_that_failed_to_begin() -> None:
    shared = BooleanCondition(name="shared")

    def wrong(app: App) -> None:
        operator = Step(app, OrConditionCombiner(app, terms=[shared]), name="a")
        operator.max_in_flight = 0
        app.add_operator(operator)

    with pytest.raises(ValueError, match="max_in_flight"):
        run(wrong)
    run(lambda app: app.add_operator(Step(app, shared, CountCondition(app, 1))))


def test_a_combiner_needs_conditions() -> None:
    with pytest.raises(ValueError, match="has no terms"):
        OrConditionCombiner(None, terms=[])
    with pytest.raises(TypeError, match="terms are conditions"):
        OrConditionCombiner(None, terms=[1])  # type: ignore[list-item]


# Conditions written by users.


class Scripted(Condition):
    """Gives the answers of a function, and notes when it was told that compute ran."""

    def __init__(self, fragment: Any, answer: Any, **kwargs: Any) -> None:
        self.answer = answer
        self.executed: list[int] = []
        super().__init__(fragment, **kwargs)

    def check(self, timestamp: int) -> Any:
        return self.answer(self, timestamp)

    def on_execute(self, timestamp: int) -> None:
        self.executed.append(timestamp)


def test_a_users_condition_waits_until_the_time_it_names(scheduler: MakeScheduler) -> None:
    times: list[int] = []

    def compose(app: App) -> None:
        def every_seventy(condition: Scripted, timestamp: int) -> Any:
            due = 50 + 70 * len(condition.executed)
            return (READY, due) if timestamp >= due else (WAIT_TIME, due)

        app.add_operator(
            Step(
                app,
                Scripted(app, every_seventy),
                CountCondition(app, 3),
                body=lambda op, i, o: times.append(now(op)),
            )
        )

    run(compose, scheduler)
    assert times == [50, 120, 190]


def test_a_users_condition_is_woken_by_notify_scheduler_from_any_thread(scheduler: MakeScheduler) -> None:
    asked = threading.Event()
    ticks: list[int] = []

    def compose(app: App) -> None:
        done: list[bool] = []

        def waits(condition: Scripted, timestamp: int) -> Any:
            asked.set()
            return (READY if done else WAIT_EVENT), None

        condition = Scripted(app, waits)

        def announce() -> None:
            assert asked.wait(10)
            done.append(True)
            assert condition.notify_scheduler()

        threading.Thread(target=announce).start()
        app.add_operator(Step(app, condition, CountCondition(app, 1), body=lambda op, i, o: ticks.append(1)))

    run(compose, scheduler)
    assert ticks == [1]


def test_an_event_that_a_condition_waits_for_after_compute_is_not_a_deadlock(
    scheduler: MakeScheduler,
) -> None:
    """The operator has no message to go on with, and its condition began to wait without telling anyone."""
    conditions: list[Any] = []

    class Settles(Condition):
        waiting = False

        def check(self, timestamp: int) -> Any:
            return (WAIT_EVENT if self.waiting else READY), None

        def on_execute(self, timestamp: int) -> None:
            self.waiting = True

    def compose(app: App) -> None:
        conditions[:] = [Settles(app)]
        app.add_flow(source(app, [1]), sink(app, [], conditions[0]))

    app = App(compose, scheduler)
    future = app.run_async()
    while not (conditions and conditions[0].waiting and app._engine and app._engine.ready_queues[0].parked):
        assert not future.done(), "a deadlock was declared while an event was outstanding"
        threading.Event().wait(0.001)
    conditions[0].waiting = False
    assert conditions[0].notify_scheduler()
    future.result(timeout=10)


def test_a_users_condition_that_says_wait_is_asked_again_as_long_as_others_run(
    scheduler: MakeScheduler,
) -> None:
    """Nothing announces this change: the condition looks at what another operator counts."""
    log: list[str] = []

    def compose(app: App) -> None:
        other = Step(app, CountCondition(app, 6), name="other")
        condition = Scripted(app, lambda condition, timestamp: (READY if other.ticks >= 5 else WAIT, None))
        app.add_operator(other)
        app.add_operator(
            Step(
                app,
                condition,
                CountCondition(app, 1),
                body=lambda op, i, o: log.append(f"{other.ticks >= 5}"),
            )
        )

    run(compose, scheduler)
    assert log == ["True"]


def test_a_users_condition_that_says_wait_for_ever_is_a_deadlock(scheduler: MakeScheduler) -> None:
    app = run(
        lambda app: app.add_operator(Step(app, Scripted(app, lambda c, t: (WAIT, None)), name="a")), scheduler
    )
    assert app.graph.find("a").ticks == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("other", [(WAIT_TIME, 3_600_000_000_000), (WAIT_EVENT, None)], ids=["time", "event"])
def test_a_term_that_says_wait_is_polled_while_another_waits_for_a_time_or_an_event(
    other: Any, scheduler: MakeScheduler
) -> None:
    """Nothing announces this change, and nothing else runs."""
    asked: list[int] = []

    def compose(app: App) -> None:
        def third_time(condition: Scripted, timestamp: int) -> Any:
            asked.append(timestamp)
            return (READY if len(asked) > 2 else WAIT), None

        terms = [Scripted(app, third_time, name="mine"), Scripted(app, lambda c, t: other, name="other")]
        combiners = [OrConditionCombiner(app, terms=terms)]
        app.add_operator(Step(app, *combiners, CountCondition(app, 1), name="a"))

    app = App(compose, scheduler, check_recession_period_ms=1)
    app.run_async().result(timeout=10)
    assert app.graph.find("a").ticks == 1  # type: ignore[attr-defined]
    assert asked[-1] < 3_600_000_000_000


def test_never_wins_over_every_other_state() -> None:
    def compose(app: App) -> None:
        for n, other in enumerate([(READY, None), (WAIT, None), (WAIT_TIME, 10), (WAIT_EVENT, None)]):
            app.add_operator(
                Step(
                    app,
                    Scripted(app, lambda c, t, other=other: other, name="other"),
                    Scripted(app, lambda c, t: (NEVER, None), name="never"),
                    name=f"a{n}",
                )
            )

    app = run(compose)
    assert all(operator.ticks == 0 for operator in app.graph)  # type: ignore[attr-defined]


def test_a_users_condition_can_look_at_the_ports() -> None:
    seen: list[Any] = []

    class Looks(Condition):
        def check(self, timestamp: int) -> Any:
            receiver = self.receiver("in")
            seen.append((receiver.size, receiver.capacity, receiver.peek()))
            return (READY if receiver.size else WAIT), None

    run(lambda app: app.add_flow(source(app, ["x"]), sink(app, [], Looks(app))))
    assert (1, 1, "x") in seen


def test_a_users_condition_has_parameters() -> None:
    class Limit(Condition):
        def setup(self, spec: Any) -> None:
            spec.param("most", 3)

    assert Limit(None, most=5).most == 5  # type: ignore[attr-defined]
    assert Limit(None).most == 3  # type: ignore[attr-defined]


def test_an_exception_in_a_condition_comes_out_with_the_operator_named(scheduler: MakeScheduler) -> None:
    def broken(condition: Scripted, timestamp: int) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        run(lambda app: app.add_operator(Step(app, Scripted(app, broken), name="bad")), scheduler)
    assert "raised by a condition of operator 'bad'" in caught.value.__notes__


def test_waiting_for_a_time_without_naming_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="gave WAIT_TIME without a time"):
        run(lambda app: app.add_operator(Step(app, Scripted(app, lambda c, t: (WAIT_TIME, None)))))


@pytest.mark.parametrize("answer", [None, SchedulingStatusType.READY, ("READY", None), "READY", (1, 2, 3)])
def test_an_answer_that_is_none_is_told_with_what_would_be_one(answer: Any) -> None:
    class Wrong(Condition):
        def check(self, timestamp: int) -> Any:
            return answer

    with pytest.raises(
        TypeError, match=r"check of condition 'wrong' \(Wrong\) must return a SchedulingStatus"
    ) as told:
        run(lambda app: app.add_operator(Step(app, Wrong(app), name="body")))
    assert "raised by a condition of operator 'body'" in told.value.__notes__


def test_one_receiver_may_be_named_without_a_list() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        from penstock.conditions import MultiMessageAvailableCondition

        condition = MultiMessageAvailableCondition(app, min_sum=1, receivers="in")
        app.add_flow(source(app, [1, 2]), sink(app, taken, condition))

    run(compose)
    assert taken == [1, 2]
