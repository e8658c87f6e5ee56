"""What a run says about its end: why it ended, what it counted, what was left; and a line of log."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

from headrace import ConditionType, CountCondition, IOSpec, PeriodicCondition, op
from headrace.core import EndedBy
from tests._runtime.lifecycle.outcomes import doubling, outcome_of
from tests.harness import App, MakeScheduler, Step, run, sink, source

# The other ends.


def test_a_run_that_reaches_its_longest_duration_says_so(scheduler: MakeScheduler) -> None:
    outcome = outcome_of(
        lambda app: app.add_operator(Step(app, PeriodicCondition(app, 300_000))), scheduler, max_duration_ms=1
    )
    assert outcome.ended_by is EndedBy.DURATION
    assert outcome.seconds == pytest.approx(1e-3)
    assert "'App' reached its duration after 0.001 s: 4 computes" in str(outcome)


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
        twice = doubling(app)
        many = Step(
            app, inputs=[("in", {"size": IOSpec.ANY_SIZE})], body=lambda op, i, o: i.receive(), name="many"
        )
        pool = Step(app, inputs=[("in", {"size": 4})], body=lambda op, i, o: i.receive(), name="pool")
        pool.spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
        first = source(app, range(7), name="first")
        app.add_flow(first, twice, pool)
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


# The log.


def test_a_run_that_finished_is_one_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        run(lambda app: app.add_flow(source(app, range(3)), sink(app, [])))
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("headrace.run", "INFO", "'App' finished after 0.000 s: 6 computes")
    ]


def test_a_run_that_starved_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def compose(app: App) -> None:
        both = Step(app, inputs=["left", "right"], outputs=["out"], name="join")
        app.add_flow(both, both, {("out", "left")})
        app.add_flow(source(app, range(1), name="frames"), both, {("out", "right")})

    run(compose)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "'App' starved after 0.000 s: 1 compute, 1 message undelivered; 'join' waits for a message at 'left' "
        "from 'join' (waits for it in turn, after 0 computes), with 1 message left at 'right'"
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
