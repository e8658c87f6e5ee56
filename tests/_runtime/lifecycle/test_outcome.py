"""What a run says about its end: why, who waits for whom, what was left; and a line of log."""

from __future__ import annotations

import contextlib
import copy
import logging
import pickle
import threading
from typing import Any

import pytest

from penstock import ConditionType, CountCondition, IOSpec, Outcome, PeriodicCondition, op
from penstock.conditions import AsynchronousCondition, AsynchronousEventState, BooleanCondition
from penstock.core import Condition, EndedBy, Resource, SchedulingStatusType
from tests.harness import SCHEDULERS, App, MakeScheduler, Step, event_based, run, sink, source, through


def outcome_of(compose: Any, scheduler: MakeScheduler = SCHEDULERS[0], **settings: Any) -> Outcome:
    return App(compose, scheduler, **settings).run()


def join(app: Any, taken: list[Any] | None = None, name: str = "join") -> Step:
    kept = [] if taken is None else taken
    return Step(
        app,
        inputs=["left", "right"],
        body=lambda op, i, o: kept.append((i.receive("left"), i.receive("right"))),
        name=name,
    )


# Finished.


def test_a_chain_whose_source_has_ended_is_finished(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        middle = through(app, name="middle")
        app.add_flow(source(app, range(5)), middle)
        app.add_flow(middle, sink(app, []))

    outcome = outcome_of(compose, scheduler)
    assert outcome.ended_by is EndedBy.FINISHED
    assert {name: op.computes for name, op in outcome.operators.items()} == {
        "source": 5,
        "middle": 5,
        "sink": 5,
    }
    assert outcome.computes == 15
    assert (outcome.starved, outcome.errors, outcome.dropped, outcome.undelivered) == ((), (), {}, {})


def test_a_filter_that_lets_nothing_through_is_finished() -> None:
    def compose(app: App) -> None:
        keep = Step(app, inputs=["in"], outputs=["out"], body=lambda op, i, o: i.receive(), name="keep")
        app.add_flow(source(app, range(5)), keep)
        app.add_flow(keep, sink(app, []))

    outcome = outcome_of(compose)
    assert outcome.ended_by == "finished"
    assert outcome.operators["sink"].computes == 0


def test_a_consumer_that_ends_by_its_own_count_finishes_the_run() -> None:
    def compose(app: App) -> None:
        middle = through(app, name="middle")
        app.add_flow(source(app, range(9)), middle)
        app.add_flow(middle, sink(app, [], CountCondition(app, 1)))

    outcome = outcome_of(compose)
    assert outcome.ended_by == "finished"
    assert outcome.undelivered == {"middle.in": 1, "sink.in": 1}


def test_a_join_whose_sources_end_together_is_finished() -> None:
    def compose(app: App) -> None:
        both = join(app)
        app.add_flow(source(app, range(3), name="a"), both, {("out", "left")})
        app.add_flow(source(app, range(3), name="b"), both, {("out", "right")})

    assert outcome_of(compose).ended_by == "finished"


def test_a_loop_that_carries_a_state_from_frame_to_frame_is_finished(scheduler: MakeScheduler) -> None:
    """After the last frame its state still waits; it came from the loop itself."""

    def compose(app: App) -> None:
        def step(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive("state") + i.receive("frame"), "out")

        add = Step(app, inputs=["state", "frame"], outputs=["out"], body=step, name="add")
        delay = through(app, name="delay")
        app.add_flow(source(app, range(4), name="frames"), add, {("out", "frame")})
        app.add_flow(source(app, [0], name="seed"), add, {("out", "state")})
        app.add_flow(add, delay)
        app.add_flow(delay, add, {("out", "state")})

    outcome = outcome_of(compose, scheduler)
    assert outcome.ended_by == "finished", str(outcome)
    assert outcome.operators["add"].computes == 4


def test_a_loop_that_was_never_needed_is_finished() -> None:
    """The operator that would send work back never ran, and the one it would go to did."""

    def compose(app: App) -> None:
        work = Step(
            app,
            inputs=["in"],
            outputs=["done", "again"],
            body=lambda op, i, o: o.emit(i.receive(), "done"),
            name="work",
        )
        retry = through(app, name="retry")
        app.add_flow(source(app, range(3)), work)
        app.add_flow(work, sink(app, []), {("done", "in")})
        app.add_flow(work, retry, {("again", "in")})
        app.add_flow(retry, work)

    assert outcome_of(compose).ended_by == "finished"


def test_what_is_left_at_an_input_that_may_be_left_is_no_starvation() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("frame")
            spec.input("setting").condition(ConditionType.NONE)

        main = Step(app, setup=setup, body=lambda op, i, o: i.receive("frame"), name="main")
        app.add_flow(source(app, range(2), name="frames"), main, {("out", "frame")})
        app.add_flow(source(app, [1], name="settings"), main, {("out", "setting")})

    outcome = outcome_of(compose)
    assert outcome.ended_by == "finished"
    assert outcome.undelivered == {"main.setting": 1}


def test_a_source_that_ends_by_a_switch_is_finished() -> None:
    def compose(app: App) -> None:
        switch = BooleanCondition(app)
        a = Step(app, switch, outputs=["out"], body=lambda op, i, o: switch.disable_tick(), name="a")
        app.add_flow(a, sink(app, []))

    assert outcome_of(compose).ended_by == "finished"


# Starved.


@pytest.mark.parametrize("longer", [4, 9])
def test_a_join_of_which_one_source_ended_early_is_starved_and_says_of_what(
    scheduler: MakeScheduler, longer: int
) -> None:
    def compose(app: App) -> None:
        both = join(app)
        app.add_flow(source(app, range(3), name="short"), both, {("out", "left")})
        app.add_flow(source(app, range(longer), name="long"), both, {("out", "right")})

    outcome = outcome_of(compose, scheduler)
    assert outcome.ended_by is EndedBy.STARVED
    (starved,) = outcome.starved
    assert (starved.operator, starved.computes, starved.left) == ("join", 3, {"right": 1})
    assert str(starved) == (
        "'join' waits for a message at 'left' from 'short' (ended after 3 computes), with 1 message left at 'right'"
    )


def test_a_feedback_loop_without_a_first_message_is_starved(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        def step(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive("state") + i.receive("frame"), "out")

        add = Step(app, inputs=["state", "frame"], outputs=["out"], body=step, name="add")
        app.add_flow(source(app, range(4), name="frames"), add, {("out", "frame")})
        app.add_flow(add, add, {("out", "state")})

    outcome = outcome_of(compose, scheduler)
    assert outcome.ended_by == "starved"
    (starved,) = outcome.starved
    assert str(starved) == (
        "'add' waits for a message at 'state' from 'add' (waits for it in turn, after 0 computes), "
        "with 1 message left at 'frame'"
    )


def test_a_loop_that_nothing_ever_enters_is_starved() -> None:
    def compose(app: App) -> None:
        a, b = through(app, name="a"), through(app, name="b")
        app.add_flow(a, b)
        app.add_flow(b, a)

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved"
    assert str(outcome.starved[0]) == (
        "'a' waits for a message at 'in' from 'b' (waits for it in turn, after 0 computes), and never ran"
    )


def test_a_batch_that_never_fills_is_starved() -> None:
    def compose(app: App) -> None:
        batch = Step(app, inputs=[("in", {"size": 4})], body=lambda op, i, o: i.receive(), name="batch")
        app.add_flow(source(app, range(10)), batch)

    outcome = outcome_of(compose)
    assert [(s.operator, s.computes, s.left) for s in outcome.starved] == [("batch", 2, {"in": 2})]


def test_a_join_over_several_ports_by_one_condition_is_starved() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("p", size=4)
            spec.input("q", size=4)
            spec.multi_port_condition(
                ConditionType.MULTI_MESSAGE_AVAILABLE, ["p", "q"], sampling_mode="SumOfAll", min_sum=4
            )

        both = Step(app, setup=setup, body=lambda op, i, o: (i.receive("p"), i.receive("q")), name="both")
        app.add_flow(source(app, range(3)), both, {("out", "p")})

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved"
    assert outcome.starved[0].left == {"p": 3}
    assert [waiting.port for waiting in outcome.starved[0].waits_for] == ["q"]


def test_an_operator_that_a_condition_never_let_run_is_starved() -> None:
    def compose(app: App) -> None:
        event = AsynchronousCondition(app, name="signal")
        event.event_state = AsynchronousEventState.WAIT
        app.add_flow(Step(app, event, outputs=["out"], name="camera"), sink(app, []))

    outcome = outcome_of(compose)
    assert [str(starved) for starved in outcome.starved] == [
        "'camera' waits for condition 'signal', and never ran"
    ]


def test_a_circle_of_full_queues_is_starved() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)
            spec.output("out")

        a = Step(app, setup=setup, body=lambda op, i, o: o.emit(1), name="a")  # never receives
        b = through(app, name="b")
        app.add_flow(a, b)
        app.add_flow(b, a)

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved", str(outcome)
    assert {starved.operator for starved in outcome.starved} == {"a", "b"}
    assert "waits for room at 'in' of 'b', which waits for it in turn" in str(outcome)


def test_a_circle_in_which_one_has_ended_by_its_own_count_is_finished() -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)
            spec.output("out")

        a = Step(app, setup=setup, body=lambda op, i, o: o.emit(1), name="a")
        b = through(app, CountCondition(app, 1), name="b")
        app.add_flow(a, b)
        app.add_flow(b, a)

    outcome = outcome_of(compose)
    assert outcome.ended_by == "finished"
    assert outcome.undelivered == {"a.in": 1, "b.in": 1}


def test_an_operator_behind_a_starved_one_is_not_reported_for_it() -> None:
    def compose(app: App) -> None:
        both = Step(
            app,
            inputs=["left", "right"],
            outputs=["out"],
            body=lambda op, i, o: (i.receive("left"), i.receive("right")),
        )
        app.add_flow(source(app, [], name="none"), both, {("out", "left")})
        app.add_flow(source(app, [1], name="one"), both, {("out", "right")})
        app.add_flow(both, sink(app, []))

    outcome = outcome_of(compose)
    assert [starved.operator for starved in outcome.starved] == ["step"]


def test_a_shared_queue_with_too_little_room_is_starved_and_says_so() -> None:
    """Three of four places are taken, and one of its producers wants two."""

    def compose(app: App) -> None:
        twice = Step(
            app,
            inputs=["in"],
            outputs=[("out", {"size": 2})],
            body=lambda op, i, o: [o.emit(n) for n in [i.receive()] * 2],
            name="twice",
        )
        four = Step(app, inputs=[("in", {"size": 4})], body=lambda op, i, o: i.receive(), name="four")
        app.add_flow(source(app, range(7)), twice)
        app.add_flow(twice, four)
        app.add_flow(source(app, range(3), name="second"), four)

    outcome = outcome_of(compose)
    assert outcome.ended_by == "starved"
    assert "'twice' (waits for room for 2 messages there, after 2 computes)" in str(outcome)


def test_a_seed_that_no_frame_ever_joined_is_starved() -> None:
    def compose(app: App) -> None:
        def step(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive("state") + i.receive("frame"), "out")

        add = Step(app, inputs=["state", "frame"], outputs=["out"], body=step, name="add")
        app.add_flow(source(app, [], name="frames"), add, {("out", "frame")})
        app.add_flow(source(app, [0], name="seed"), add, {("out", "state")})
        app.add_flow(add, add, {("out", "state")})

    outcome = outcome_of(compose)
    assert [(starved.operator, starved.left) for starved in outcome.starved] == [("add", {"state": 1})]


@pytest.mark.parametrize("end", ["stopped", "failed"])
def test_only_a_run_that_ended_by_itself_is_searched_for_who_starves(end: str) -> None:
    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 20:
                if end == "failed":
                    raise ZeroDivisionError
                app.stop_execution()

        both = join(app)
        app.add_flow(source(app, range(1), name="short"), both, {("out", "left")})
        app.add_flow(source(app, range(2), name="long"), both, {("out", "right")})
        app.add_operator(Step(app, body=body, name="last"))

    app = App(compose)
    with contextlib.suppress(ZeroDivisionError):
        app.run()
    assert app.outcome is not None
    assert (app.outcome.ended_by, app.outcome.starved) == (end, ())
    assert app.outcome.undelivered == {"join.right": 1}


# The other ends.


def test_a_run_that_is_stopped_says_so(scheduler: MakeScheduler) -> None:
    outcome = outcome_of(
        lambda app: app.add_operator(Step(app, body=lambda op, i, o: op.fragment.stop_execution())), scheduler
    )
    assert outcome.ended_by == "stopped"


def test_a_run_that_reaches_its_longest_duration_says_so(scheduler: MakeScheduler) -> None:
    outcome = outcome_of(
        lambda app: app.add_operator(Step(app, PeriodicCondition(app, 300_000))), scheduler, max_duration_ms=1
    )
    assert outcome.ended_by is EndedBy.DURATION
    assert outcome.seconds == pytest.approx(1e-3)
    assert "'App' reached its duration after 0.001 s: 4 computes" in str(outcome)


def test_a_run_that_fails_keeps_its_outcome(scheduler: MakeScheduler) -> None:
    def fail(op: Step, i: Any, o: Any) -> None:
        raise ZeroDivisionError("on purpose")

    app = App(lambda app: app.add_operator(Step(app, body=fail, name="bad")), scheduler)
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert app.outcome is not None
    assert app.outcome.ended_by == "failed"
    assert [str(error) for error in app.outcome.errors] == [
        "ZeroDivisionError: on purpose (raised in compute of operator 'bad' (Step))"
    ]


def test_a_run_that_fails_while_it_stops_has_failed() -> None:
    class Bad(Step):
        def stop(self) -> None:
            raise ZeroDivisionError("too late")

    app = App(lambda app: app.add_operator(Bad(app, CountCondition(app, 1))))
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert app.outcome is not None
    assert app.outcome.ended_by == "failed"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_errors_that_cannot_be_shown_do_not_keep_operators_from_being_stopped(
    scheduler: MakeScheduler,
) -> None:
    stopped = []

    class Bad(Step):
        def stop(self) -> None:
            stopped.append(self.name)
            raise Unspeakable

    def fail(self: Step, op_input: Any, op_output: Any) -> None:
        raise Unspeakable

    def compose(app: App) -> None:
        app.add_operator(Bad(app, name="first", body=fail))
        app.add_operator(Bad(app, CountCondition(app, 0), name="second"))

    app = App(compose, scheduler)
    with pytest.raises(Unspeakable):
        app.run()
    assert stopped == ["second", "first"]
    assert app.outcome is not None
    assert [error.kind for error in app.outcome.errors] == ["Unspeakable"] * 3


def test_an_error_that_cannot_be_shown_can_be_skipped() -> None:
    def fail(self: Step, op_input: Any, op_output: Any) -> None:
        raise Unspeakable

    outcome = outcome_of(
        lambda app: app.add_operator(Step(app, CountCondition(app, 3), body=fail, name="a", on_error="skip"))
    )
    assert outcome.ended_by == "finished"
    assert outcome.operators["a"].last_error == "Unspeakable: <its __str__ raised>"


@pytest.mark.parametrize("phase", ["initialize", "release"])
def test_an_error_of_a_resource_names_it(phase: str) -> None:
    class Camera(Resource):
        pass

    def fail(self: Resource) -> None:
        raise ZeroDivisionError("on purpose")

    setattr(Camera, phase, fail)
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 1), Camera(app, name="usb"))))
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert app.outcome is not None
    assert [str(error) for error in app.outcome.errors] == [
        f"ZeroDivisionError: on purpose (raised in {phase} of resource 'usb' (Camera))"
    ]


def test_an_error_of_a_condition_that_is_let_go_is_told_once() -> None:
    class Clinging(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            return SchedulingStatusType.READY, None

        def detach(self) -> None:
            super().detach()
            raise ZeroDivisionError("on purpose")

    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 1), Clinging(app))))
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert app.outcome is not None
    assert len(app.outcome.errors) == 1


def test_run_async_gives_the_outcome_too() -> None:
    app = App(lambda app: app.add_flow(source(app, range(3)), sink(app, [])))
    outcome = app.run_async().result(timeout=10)
    assert outcome.computes == 6
    assert app.outcome is outcome


def test_the_outcome_is_of_the_last_run() -> None:
    counts = [1, 5, 0]
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, counts.pop(0)), name="a")))
    computes = []
    while counts:
        app.run()
        assert app.outcome is not None
        computes.append(app.outcome.operators["a"].computes)
    assert computes == [1, 5, 0]


def test_an_outcome_is_plain_data() -> None:
    outcome = outcome_of(lambda app: app.add_flow(source(app, range(3)), sink(app, [])))
    assert pickle.loads(pickle.dumps(outcome)) == copy.deepcopy(outcome) == outcome


# What went through the ports.


def test_what_was_dropped_and_left_is_in_the_outcome_by_port() -> None:
    def compose(app: App) -> None:
        burst = Step(
            app,
            CountCondition(app, 1),
            outputs=["out", "loose"],
            body=lambda op, i, o: [o.emit(n, port) for n in range(5) for port in ("out", "loose")],
            name="burst",
        )
        newest = Step(
            app, inputs=[("in", {"policy": IOSpec.QueuePolicy.POP})], body=lambda op, i, o: i.receive()
        )
        app.add_flow(burst, newest, {("out", "in")})

    app = App(compose)
    outcome = app.run()
    assert outcome.dropped == app.dropped() == {"burst.loose": 5, "step.in": 4}
    assert outcome.operators["burst"].dropped == {"loose": 5}
    assert outcome.operators["burst"].sent is None
    assert "9 messages dropped" in str(outcome)


def test_messages_are_counted_where_the_application_asks_for_it(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        app.count_messages = True
        twice = Step(
            app,
            inputs=["in"],
            outputs=[("out", {"size": 2})],
            body=lambda op, i, o: [o.emit(n) for n in [i.receive()] * 2],
            name="twice",
        )
        many = Step(
            app, inputs=[("in", {"size": IOSpec.ANY_SIZE})], body=lambda op, i, o: i.receive(), name="many"
        )
        pool = Step(app, inputs=[("in", {"size": 4})], body=lambda op, i, o: i.receive(), name="pool")
        pool.spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
        first = source(app, range(7), name="first")
        app.add_flow(first, twice)
        app.add_flow(twice, pool)
        app.add_flow(source(app, range(3), name="second"), pool)
        app.add_flow(first, many)

    outcome = outcome_of(compose, scheduler)
    ports = {name: (operator.received, operator.sent) for name, operator in outcome.operators.items()}
    assert ports == {
        "first": ({}, {"out": 7}),
        "second": ({}, {"out": 3}),
        "twice": ({"in": 7}, {"out": 14}),
        "many": ({"in": 7}, {}),
        "pool": ({"in": 17}, {}),
    }


@pytest.mark.parametrize("policy", IOSpec.QueuePolicy)
def test_counted_messages_add_up_with_every_policy(policy: IOSpec.QueuePolicy) -> None:
    def compose(app: App) -> None:
        burst = Step(
            app,
            CountCondition(app, 3),
            outputs=["out"],
            body=lambda op, i, o: [o.emit(n) for n in range(5)],
            name="a",
        )
        app.add_flow(
            burst, Step(app, inputs=[("in", {"policy": policy})], body=lambda op, i, o: i.receive(), name="b")
        )

    app = App(compose)
    app.count_messages = True
    if policy is IOSpec.QueuePolicy.FAULT:
        with pytest.raises(RuntimeError, match="full"):
            app.run()
    else:
        app.run()
    assert app.outcome is not None
    a, b = app.outcome.operators["a"], app.outcome.operators["b"]
    assert a.sent is not None
    assert b.received is not None
    assert b.received["in"] == b.computes
    assert a.sent["out"] == b.received["in"] + b.dropped["in"] + b.undelivered.get("in", 0)


# The log.


def test_a_run_that_finished_is_one_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        run(lambda app: app.add_flow(source(app, range(3)), sink(app, [])))
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("penstock.run", "INFO", "'App' finished after 0.000 s: 6 computes")
    ]


def test_a_run_that_starved_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def compose(app: App) -> None:
        both = join(app)
        app.add_flow(source(app, range(1), name="short"), both, {("out", "left")})
        app.add_flow(source(app, range(2), name="long"), both, {("out", "right")})

    run(compose)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "'App' starved after 0.000 s: 4 computes, 1 message undelivered; 'join' waits for a message at 'left' "
        "from 'short' (ended after 1 compute), with 1 message left at 'right'"
    )


def test_a_run_that_failed_is_one_error_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @op
    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        run(lambda app: app.add_operator(fail(app)))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == (
        "'App' failed after 0.000 s: 0 computes; ZeroDivisionError: on purpose "
        "(raised in compute of operator 'fail' (FunctionOperator))"
    )


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_computes_are_counted_whatever_the_number_of_workers(workers: int) -> None:
    from penstock.resources import ManualClock
    from penstock.schedulers import EventBasedScheduler

    def compose(app: App) -> None:
        last = source(app, range(200))
        for n in range(4):
            stage = through(app, name=f"stage{n}")
            app.add_flow(last, stage)
            last = stage
        app.add_flow(last, sink(app, []))

    def scheduler(app: Any, **settings: Any) -> Any:
        return EventBasedScheduler(app, clock=ManualClock(app), worker_thread_number=workers, **settings)

    outcome = outcome_of(compose, scheduler)
    assert [operator.computes for operator in outcome.operators.values()] == [200] * 6


def test_a_run_that_was_stopped_was_stopped_even_if_its_duration_is_over_by_then(
    scheduler: MakeScheduler,
) -> None:
    def stop_and_sleep(op: Step, i: Any, o: Any) -> None:
        op.fragment.stop_execution()
        op.fragment.scheduler().clock.sleep_for("5ms")

    outcome = outcome_of(
        lambda app: app.add_operator(Step(app, body=stop_and_sleep)), scheduler, max_duration_ms=1
    )
    assert outcome.ended_by is EndedBy.STOPPED


def test_a_run_that_could_not_be_composed_does_not_have_the_outcome_of_the_one_before() -> None:
    runs: list[int] = []

    def compose(app: App) -> None:
        runs.append(1)
        if len(runs) == 2:
            raise ZeroDivisionError("on purpose")
        app.add_operator(Step(app, CountCondition(app, 1)))

    app = App(compose)
    app.run()
    assert app.outcome is not None
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert app.outcome is None


def test_a_stop_after_the_end_does_not_change_the_outcome() -> None:
    done = threading.Event()

    class Late(Step):
        def stop(self) -> None:
            self.fragment.stop_execution()
            done.set()

    outcome = outcome_of(lambda app: app.add_operator(Late(app, CountCondition(app, 1))), event_based)
    assert done.is_set()
    assert outcome.ended_by == "finished"
