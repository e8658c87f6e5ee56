"""Errors after which a message is tried again, or goes to an output for messages that are given up."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, PeriodicCondition, dead_letter, op, restart, retry, skip
from headrace.core import GraphError, ParameterError
from headrace.core.error_policy import ErrorPolicy
from headrace.gpu import sim
from tests.harness import (
    MS,
    App,
    MakeScheduler,
    Producer,
    Step,
    launch,
    read_frame,
    run,
    sink,
    source,
)

MILLISECOND = 1_000_000


def failing(app: Any, failures: dict[Any, int], seen: list[Any] | None = None, **settings: Any) -> Step:
    """Return an operator that passes values on, and fails for each of them as often as `failures` says."""
    left = dict(failures)

    def body(self: Step, i: Any, o: Any, context: Any) -> None:
        value = i.receive("in")
        if seen is not None:
            seen.append((value, context.timestamp))
        o.emit((value, left.get(value, 0)), "out")
        if left.get(value, 0):
            left[value] -= 1
            raise ValueError(f"{value} is bad")

    return Step(app, inputs=["in"], outputs=["out"], body=body, name="stage", **settings)


def chain(values: Any, taken: list[Any], *arguments: Any, **settings: Any) -> Any:
    def compose(app: App) -> None:
        stage = failing(app, *arguments, **settings)
        app.add_flow(source(app, values), stage, sink(app, taken))

    return compose


def test_a_retry_gets_the_same_message_and_sends_its_results_once(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []
    app = App(chain(range(6), taken, {2: 2, 5: 1}, on_error=retry(times=2)), scheduler)
    outcome = app.run()
    assert taken == [(value, 0) for value in range(6)]
    stage = outcome.operators["stage"]
    assert (stage.retries, stage.skipped, stage.computes) == (3, 0, 9)
    assert outcome.ended_by == "finished"
    assert "3 retries" in str(outcome)
    assert app.progress().faults["stage"].retries == 3


def test_the_error_of_the_last_retry_ends_the_run(scheduler: MakeScheduler) -> None:
    with pytest.raises(ValueError, match="2 is bad") as caught:
        run(chain(range(6), [], {2: 3}, on_error={"retry": 2}), scheduler)
    assert "raised after 2 retries in a row" in caught.value.__notes__


@pytest.mark.parametrize("action", ["skip", {"skip": 1}, {"restart": 1}])
def test_what_is_joined_to_a_retry_follows_it(scheduler: MakeScheduler, action: Any) -> None:
    taken: list[Any] = []
    app = App(chain(range(6), taken, {2: 9, 4: 1}, on_error=retry(times=2) | action), scheduler)
    outcome = app.run()
    assert [value for value, _ in taken] == [0, 1, 3, 4, 5]
    assert (outcome.retries, outcome.skipped + outcome.restarts) == (3, 1)
    assert outcome.discarded == {}


def test_a_backoff_doubles_on_the_clock_of_the_run_while_others_compute(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []
    ticks: list[int] = []

    def compose(app: App) -> None:
        chain([0, 1], [], {0: 3}, seen, on_error=retry(times=3, backoff="10ms"))(app)
        clock = PeriodicCondition(app, "10ms")
        app.add_operator(
            Step(
                app,
                clock,
                CountCondition(app, 9),
                body=lambda s, i, o, c: ticks.append(c.timestamp),
                name="clock",
            )
        )

    run(compose, scheduler)
    assert [(value, time // MILLISECOND) for value, time in seen] == [
        (0, 0),
        (0, 10),
        (0, 30),
        (0, 70),
        (1, 70),
    ]
    assert len(ticks) == 9


def test_a_backoff_is_no_longer_than_a_minute() -> None:
    seen: list[Any] = []
    run(chain([0], [], {0: 9}, seen, on_error=retry(times=9, backoff="20s")))
    seconds = [time / 1e9 for _, time in seen]
    assert [b - a for a, b in pairwise(seconds)] == [20, 40, *[60] * 7]


def test_a_retry_of_another_message_skips_the_failed_one_and_waits(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []
    policy = retry(times=2, backoff="5ms", same_message=False) | skip()
    outcome = run(chain(range(5), [], {1: 1, 2: 1, 4: 1}, seen, on_error=policy), scheduler).outcome
    assert [value for value, _ in seen] == list(range(5))
    assert (outcome.retries, outcome.skipped) == (2, 3)  # no message follows the last error
    waits = [b[1] - a[1] for a, b in pairwise(seen)]
    assert waits == [0, 5 * MILLISECOND, 10 * MILLISECOND, 0]


@pytest.mark.parametrize("is_early", [True, False])
def test_a_function_that_yields_starts_over_with_the_same_message(
    is_early: bool, scheduler: MakeScheduler
) -> None:
    taken: list[Any] = []
    failed: list[int] = []

    @op(on_error=retry(times=1))
    def twice(value: int) -> Any:
        if not is_early:
            yield value
        if value == 1 and not failed:
            failed.append(value)
            raise ValueError
        yield value + 10

    def compose(app: App) -> None:
        several = twice(app)
        app.add_flow(source(app, range(3)), several, sink(app, taken))

    outcome = run(compose, scheduler).outcome
    assert taken == ([10, 11, 12] if is_early else [0, 10, 1, 1, 11, 2, 12])
    assert (outcome.retries, outcome.ended_by) == (1, "finished")


def test_a_function_that_fails_after_its_first_value_is_not_retried_for_ever(
    scheduler: MakeScheduler,
) -> None:
    taken: list[Any] = []
    dead: list[Any] = []

    @op(on_error=retry(times=2) | dead_letter("failed"))
    def twice(value: int) -> Any:
        yield value
        if value % 5 == 0:
            raise ValueError
        yield -value

    def compose(app: App) -> None:
        several = twice(app)
        app.add_flow(source(app, range(1, 16)), several, sink(app, taken))
        app.add_flow(several, sink(app, dead, name="dead"), {("failed", "in")})

    outcome = run(compose, scheduler).outcome
    assert dead == [5, 10, 15]
    assert taken == [each for n in range(1, 16) for each in ([n, -n] if n % 5 else [n] * 3)]
    assert (outcome.retries, outcome.dead_letters) == (6, 3)


def test_what_a_retry_no_longer_receives_is_counted() -> None:
    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            i.receive("left")
            if op.ticks == 1:
                i.receive("right")
                raise ValueError

        join = Step(app, inputs=["left", "right"], body=body, on_error=retry(times=1), name="join")
        app.add_flow(source(app, [1], name="a"), join, {("out", "left")})
        app.add_flow(source(app, [2], name="b"), join, {("out", "right")})

    outcome = run(compose).outcome
    assert outcome.discarded == {"join.right": 1}


def test_half_a_frame_that_is_given_up_takes_the_other_half_with_it() -> None:
    """The last attempt received nothing, an earlier one the left half: the right half is still of this frame."""
    taken: list[Any] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 1:
                i.receive("left")
            if op.ticks < 3:
                raise ValueError
            taken.append((i.receive("left"), i.receive("right")))

        join = Step(app, inputs=["left", "right"], body=body, on_error=retry(times=1) | "skip", name="join")
        app.add_flow(source(app, range(4), name="a"), join, {("out", "left")})
        app.add_flow(source(app, range(4), name="b"), join, {("out", "right")})

    outcome = run(compose).outcome
    assert taken == [(n, n) for n in (1, 2, 3)]
    assert outcome.discarded == {"join.right": 1}


def test_metadata_and_timestamps_come_with_the_message_again() -> None:
    seen: list[Any] = []
    got: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            op.metadata["frame"] = op.ticks
            o.emit(op.ticks, "out", acq_timestamp=100 * op.ticks)

        def take(op: Step, i: Any, o: Any, context: Any) -> None:
            i.receive("in")
            seen.append((dict(op.metadata), context.acq_timestamp, i.get_acquisition_timestamp("in")))
            op.metadata["mine"] = True
            o.emit(1, "out")
            if op.ticks in (1, 4):
                raise ValueError

        def end(op: Step, i: Any, o: Any, context: Any) -> None:
            i.receive("in")
            got.append((dict(op.metadata), context.acq_timestamp))

        a = Step(app, CountCondition(app, 3), outputs=["out"], body=send, name="a")
        b = Step(app, inputs=["in"], outputs=["out"], body=take, on_error=retry(times=1), name="b")
        app.add_flow(a, b, Step(app, inputs=["in"], body=end, name="c"))

    run(compose)
    assert seen == [({"frame": n}, 100 * n, 100 * n) for n in (1, 1, 2, 3, 3)]
    assert got == [({"frame": n, "mine": True}, 100 * n) for n in (1, 2, 3)]


# Stops and pauses.


def test_a_run_that_is_stopped_in_a_backoff_counts_the_message(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        chain([7], [], {7: 9}, on_error=retry(times=9, backoff="1h"))(app)
        clock = Step(
            app,
            PeriodicCondition(app, "1s"),
            body=lambda s, i, o: s.ticks > 2 and app.stop_execution(),
            name="c",
        )
        app.add_operator(clock)

    outcome = run(compose, scheduler).outcome
    stage = outcome.operators["stage"]
    assert (outcome.ended_by, stage.retries, stage.skipped, stage.cut_off) == ("stopped", 0, 0, 1)
    assert "1 cut-off retry" in str(outcome)


def test_an_error_while_the_run_stops_is_not_retried(scheduler: MakeScheduler) -> None:
    def body(op: Step, i: Any, o: Any) -> None:
        op.fragment.stop_execution()
        raise ValueError

    app = App(
        lambda app: app.add_operator(Step(app, body=body, on_error=retry(times=9), name="a")), scheduler
    )
    outcome = app.run()
    a = outcome.operators["a"]
    assert (outcome.ended_by, a.computes, a.retries, a.skipped, a.cut_off) == ("stopped", 1, 0, 0, 1)


# Restarts in a period.


def test_restarts_are_limited_in_every_period(scheduler: MakeScheduler) -> None:
    def compose(period: str) -> Any:
        def body(op: Step, i: Any, o: Any) -> None:
            raise OSError("lost")

        return lambda app: app.add_operator(
            Step(
                app,
                PeriodicCondition(app, period),
                CountCondition(app, 6),
                body=body,
                on_error=restart(times=2, per="1h"),
                name="camera",
            )
        )

    assert run(compose("31min"), scheduler).outcome.restarts == 6  # type: ignore[union-attr]
    with pytest.raises(OSError, match="lost") as caught:
        run(compose("29min"), scheduler)
    assert caught.value.__notes__[0] == "raised after 2 restarts of the operator within 3600 s"


# Dead letters.


def letters(taken: list[Any], name: str = "letters") -> Any:
    return lambda app: Step(
        app,
        inputs=["in"],
        body=lambda op, i, o: taken.append((i.receive("in"), dict(op.metadata))),
        name=name,
    )


def test_a_message_that_is_given_up_goes_out_with_a_description_of_the_error(
    scheduler: MakeScheduler,
) -> None:
    dead: list[Any] = []
    taken: list[Any] = []

    def compose(app: App) -> None:
        stage = failing(app, {1: 9, 3: 9}, on_error=dead_letter("failed"))
        app.add_flow(source(app, range(5)), stage)
        app.add_flow(stage, sink(app, taken))  # the other output need not be named
        app.add_flow(stage, letters(dead)(app), {("failed", "in")})

    outcome = run(compose, scheduler).outcome
    assert [value for value, _ in dead] == [1, 3]
    error = dead[0][1]["error"]
    assert error.pop("traceback").endswith("ValueError: 1 is bad")
    assert error == {"operator": "stage", "type": "ValueError", "message": "1 is bad", "inputs": ["in"]}
    assert [value for value, _ in taken] == [
        0,
        1,
        2,
        3,
        4,
    ]  # what a compute emitted before its error was sent
    assert (outcome.dead_letters, outcome.skipped) == (2, 2)
    assert "2 dead letters" in str(outcome)


def test_all_messages_of_the_compute_go_out_received_or_not(scheduler: MakeScheduler) -> None:
    dead: list[Any] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            if op.ticks % 2:
                i.receive("left")
            raise ValueError

        join = Step(app, inputs=["left", "right"], body=body, on_error=dead_letter("failed"), name="join")
        app.add_flow(source(app, range(4), name="a"), join, {("out", "left")})
        app.add_flow(source(app, range(10, 14), name="b"), join, {("out", "right")})
        app.add_flow(join, letters(dead)(app))  # the only output

    outcome = run(compose, scheduler).outcome
    assert [value for value, _ in dead] == [{"left": n, "right": 10 + n} for n in range(4)]
    assert outcome.discarded == {}


def test_a_dead_letter_carries_the_work_behind_it(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def fail(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            launch(op_input.receive_cuda_stream("in"), 2 * MS, lambda: None)
            raise ValueError

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            read_frame(op_input.receive_cuda_stream("in"), MS, data, app.seen)

        producer = Producer(app, CountCondition(app, 10), name="producer")
        stage = Step(app, inputs=("in",), body=fail, name="fail", on_error=dead_letter("failed"))
        app.add_flow(producer, stage, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == list(range(10))


def test_a_restart_can_send_its_message_on_and_a_batch_goes_out_as_it_came() -> None:
    dead: list[Any] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            i.receive("in")
            raise ValueError

        batch = Step(
            app,
            inputs=[("in", {"size": 2})],
            body=body,
            on_error=restart(times=5) | dead_letter("failed"),
            name="batch",
        )
        app.add_flow(source(app, range(4)), batch, letters(dead)(app))

    outcome = run(compose).outcome
    assert [value for value, _ in dead] == [(0, 1), (2, 3)]
    assert (outcome.restarts, outcome.dead_letters, outcome.skipped) == (2, 2, 0)


def test_a_function_gets_the_output_too_and_arrays_stay_arrays() -> None:
    dead: list[Any] = []

    @op(on_error={"retry": 1, "dead_letter": "failed"})
    def picky(value: Any) -> Any:
        raise ValueError

    @op
    def keep(value: Any) -> None:
        dead.append(value)

    def compose(app: App) -> None:
        stage = picky(app)
        app.add_flow(source(app, [np.arange(3), {"a": np.ones(2)}]), stage)
        app.add_flow(stage, keep(app), {("failed", "value")})

    run(compose)
    assert isinstance(dead[0], np.ndarray)
    assert list(dead[1]) == ["a"]


# The ways to write it.


def test_a_file_writes_what_the_functions_write(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "stage:\n  on_error:\n    retry: {times: 3, backoff: 100ms}\n    restart: {times: 5, per: 1h}\n"
        "    dead_letter: failed\n"
        "other:\n  on_error: {retry: 2, skip: }\n"
    )
    app = App(lambda app: None)
    app.config(settings)
    stage = Step(app, app.from_config("stage"), inputs=["in"], name="stage")
    written = retry(times=3, backoff="100ms") | restart(times=5, per="1h") | dead_letter("failed")
    assert ErrorPolicy.of(stage.on_error, "stage") == written
    assert list(stage.spec.outputs) == ["failed"]
    other = Step(app, inputs=["in"], name="other", **app.kwargs("other"))
    assert ErrorPolicy.of(other.on_error, "other") == retry(times=2) | "skip"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"retry": 0}, "the times of retry must be a positive int, not 0"),
        ({"retry": {"time": 3}}, "retry does not take 'time'; it takes .*did you mean 'times'"),
        ({"retry": {"times": 3, "backoff": "soon"}}, "backoff in on_error must be .* not 'soon'"),
        ({"retry": {"times": 3, "backoff": -1}}, "backoff in on_error must be 0 or more, not -1"),
        ({"retry": {"times": 3, "same_message": "no"}}, "same_message must be true or false"),
        ({"restart": {"per": "1h"}}, "restart has 'per' without 'times'"),
        ({"restart": None}, "the times of restart must be a positive int, not None"),
        ({"restart": 3, "skip": 3}, "on_error has both 'restart' and 'skip'"),
        ({"dead_letter": 3}, "dead_letter must be the name of an output, not 3"),
        ({"retries": 3}, "there is no 'retries'; there are .*did you mean 'retry'"),
    ],
)
def test_a_wrong_policy_is_refused_with_what_would_be_right(wrong: Any, why: str) -> None:
    with pytest.raises(ParameterError, match=rf"operator 'a': .*{why}"):
        App(lambda app: app.add_operator(Step(app, name="a", on_error=wrong))).compose_graph()


def test_a_dead_letter_needs_an_input_and_metadata() -> None:
    app = App(lambda app: app.add_operator(Step(app, name="a", on_error=dead_letter("x"))))
    with pytest.raises(
        GraphError, match="'a': dead_letter='x' sends messages .* and the operator has no input"
    ):
        app.compose_graph()

    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), Step(app, inputs=["in"], name="a", on_error=dead_letter("x")))

    other = App(compose)
    other.enable_metadata(False)
    with pytest.raises(GraphError, match=r"metadata is turned off; turn it on with enable_metadata\(True\)"):
        other.compose_graph()
