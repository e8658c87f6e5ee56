"""What an operator's errors do: stop the run, skip what it was given, or restart the operator; always counted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from headrace import ConditionType, Operator, op
from headrace.conditions import ExpiringMessageAvailableCondition, MultiMessageAvailableCondition
from headrace.core import Arg, ParameterError
from tests.harness import App, MakeScheduler, Step, run, sink, source


class Picky(Operator):
    """Passes numbers on, except those it cannot stand."""

    def __init__(self, fragment: Any, *args: Any, bad: Any = (), **kwargs: Any) -> None:
        self.bad = set(bad)
        self.log: list[str] = []
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        if value in self.bad:
            raise ValueError(f"{value} is bad")
        op_output.emit(value, "out")


def chain(app: Any, taken: list[Any], values: Any, **settings: Any) -> Picky:
    picky = Picky(app, name="picky", **settings)
    app.add_flow(source(app, values), picky, sink(app, taken))
    return picky


def test_a_skipped_error_costs_what_the_compute_was_given(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    app = App(lambda app: chain(app, taken, range(9), bad=[3, 5], on_error="skip") and None, scheduler)
    outcome = app.run()
    assert taken == [0, 1, 2, 4, 6, 7, 8]
    assert outcome.ended_by == "finished"
    picky = outcome.operators["picky"]
    assert (picky.computes, picky.skipped, picky.restarts, picky.last_error) == (
        9,
        2,
        0,
        "ValueError: 5 is bad",
    )
    assert "2 errors skipped" in str(outcome)
    assert app.graph.find("picky").log == ["start", "stop"]  # type: ignore[attr-defined]


def test_errors_are_skipped_so_often_and_no_more(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    app = App(
        lambda app: chain(app, taken, range(9), bad=[1, 3, 5], on_error={"skip": 2}) and None, scheduler
    )
    with pytest.raises(ValueError, match="5 is bad") as caught:
        app.run()
    assert caught.value.__notes__ == [
        "raised after 2 errors of the operator had been skipped",
        "raised in compute of operator 'picky' (Picky)",
    ]
    assert app.outcome.operators["picky"].skipped == 2
    assert app.outcome.errors[0].where == "raised in compute of operator 'picky' (Picky)"


def test_a_restart_stops_and_starts_the_operator_and_goes_on(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    app = App(
        lambda app: chain(app, taken, range(9), bad=[3, 5], on_error={"restart": 2}) and None, scheduler
    )
    outcome = app.run()
    assert taken == [0, 1, 2, 4, 6, 7, 8]
    assert app.graph.find("picky").log == ["start", "stop"] * 3  # type: ignore[attr-defined]
    assert outcome.operators["picky"].restarts == 2
    assert "2 restarts" in str(outcome)


class Shaky(Picky):
    """Cannot be started every time."""

    fails = 0

    def start(self) -> None:
        super().start()
        if len(self.log) > 1 and self.fails:
            self.fails -= 1
            raise OSError("not there yet")


@pytest.mark.parametrize(("fails", "restarts"), [(2, 3), (3, None)])
def test_a_start_that_fails_in_a_restart_is_tried_again(fails: int, restarts: int | None) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        shaky = Shaky(app, bad=[1], on_error={"restart": 3}, name="shaky")
        shaky.fails = fails
        app.add_flow(source(app, range(3)), shaky, sink(app, taken))

    app = App(compose)
    if restarts is None:
        with pytest.raises(OSError, match="not there yet") as caught:
            app.run()
        assert "raised in start of operator 'shaky' (Shaky)" in caught.value.__notes__
        assert isinstance(caught.value.__context__, (OSError, ValueError))
    else:
        assert app.run().operators["shaky"].restarts == restarts
        assert taken == [0, 2]
    log = app.graph.find("shaky").log  # type: ignore[attr-defined]
    assert log == ["start", "stop"] * (len(log) // 2)


def test_a_stop_that_fails_in_a_restart_does_not_prevent_it(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Picky):
        def stop(self) -> None:
            super().stop()
            if len(self.log) == 2:
                raise OSError("gone")

    taken: list[int] = []

    def compose(app: App) -> None:
        stuck = Stuck(app, bad=[1], on_error={"restart": 1}, name="stuck")
        app.add_flow(source(app, range(3)), stuck, sink(app, taken))

    assert App(compose).run().ended_by == "finished"
    assert taken == [0, 2]
    assert "stop() of operator 'stuck' raised before a restart" in caplog.text
    assert "OSError: gone" in caplog.text


def test_what_a_failed_compute_had_not_received_is_discarded_and_counted(scheduler: MakeScheduler) -> None:
    """Otherwise the next compute would join the left of one frame with the right of another."""
    taken: list[Any] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            left = i.receive("left")
            if left == 2:
                raise ValueError
            taken.append((left, i.receive("right")))

        join = Step(app, inputs=["left", "right"], body=body, on_error="skip", name="join")
        app.add_flow(source(app, range(5), name="a"), join, {("out", "left")})
        app.add_flow(source(app, range(5), name="b"), join, {("out", "right")})

    app = App(compose, scheduler)
    app.count_messages = True
    outcome = app.run()
    assert taken == [(n, n) for n in (0, 1, 3, 4)]
    assert outcome.discarded == {"join.right": 1}
    assert outcome.operators["join"].received == {"left": 5, "right": 4}


def test_an_operator_of_any_input_that_fails_before_it_receives_does_not_fail_at_it_for_ever(
    scheduler: MakeScheduler,
) -> None:
    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            if op.ticks > 9:
                op.stop_execution()
            raise ZeroDivisionError

        either = MultiMessageAvailableCondition(app, min_sum=1, receivers=["a", "b"])
        join = Step(app, either, inputs=["a", "b"], body=body, on_error="skip", name="join")
        app.add_flow(source(app, range(3)), join, {("out", "a")})
        app.add_flow(source(app, [], name="silent"), join, {("out", "b")})

    outcome = run(compose, scheduler).outcome
    assert (outcome.operators["join"].skipped, outcome.discarded) == (3, {"join.a": 3})


def test_inputs_that_may_be_left_or_that_any_of_will_do_keep_their_messages() -> None:
    taken: list[Any] = []

    def setup(spec: Any) -> None:
        spec.input("a")
        spec.input("b")
        spec.or_combine_port_conditions(["a", "b"])
        spec.input("c").condition(ConditionType.NONE)

    def body(op: Step, i: Any, o: Any) -> None:
        if i.receive("a") == 0:
            raise ValueError
        taken.append((i.receive("b"), i.receive("c")))

    def compose(app: App) -> None:
        either = Step(app, setup=setup, body=body, on_error="skip", name="either")
        app.add_flow(source(app, [0]), either, {"out": {"a", "b", "c"}})

    outcome = App(compose).run()
    assert outcome.discarded == {}
    assert taken == [(0, 0)]


@pytest.mark.parametrize("policy", ["skip", {"restart": 5}])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_meant_to_end_the_program_ends_it(policy: Any, error: type[BaseException]) -> None:
    def body(op: Step, i: Any, o: Any) -> None:
        raise error

    with pytest.raises(error):
        run(lambda app: app.add_operator(Step(app, body=body, on_error=policy)))


def test_an_error_while_the_run_is_stopped_does_not_restart_the_operator(scheduler: MakeScheduler) -> None:
    starts: list[int] = []

    class Once(Step):
        def start(self) -> None:
            starts.append(1)

    def body(op: Step, i: Any, o: Any) -> None:
        op.fragment.stop_execution()
        raise ValueError

    app = App(
        lambda app: app.add_operator(Once(app, body=body, on_error={"restart": 9}, name="a")), scheduler
    )
    outcome = app.run()
    assert outcome.ended_by == "stopped"
    assert (starts, outcome.operators["a"].skipped) == ([1], 1)


# Functions, and the ways to say it.


def test_a_function_says_it_in_its_decorator_or_where_it_is_used() -> None:
    taken: list[int] = []

    @op(on_error="skip")
    def inverse(value: int) -> float:
        return 12 / value

    @op
    def plain(value: int) -> float:
        return 12 / value

    def compose(app: App) -> None:
        a, b = inverse(app), plain(app, on_error="skip")
        app.add_flow(source(app, [0, 1, 2], name="s1"), a)
        app.add_flow(source(app, [0, 3, 4], name="s2"), b)
        app.add_flow(a, sink(app, taken, name="k1"))
        app.add_flow(b, sink(app, taken, name="k2"))

    outcome = App(compose).run()
    assert sorted(taken) == [3, 4, 6, 12]
    assert outcome.skipped == 2

    with pytest.raises(ZeroDivisionError):
        run(lambda app: app.add_flow(source(app, [0]), inverse(app, on_error="stop")))


def test_a_source_that_yields_begins_anew_when_it_is_restarted() -> None:
    taken: list[int] = []
    tries: list[int] = []

    @op(on_error={"restart": 2})
    def numbers() -> Any:
        tries.append(1)
        yield len(tries)
        if len(tries) < 3:
            raise OSError("lost")

    run(lambda app: app.add_flow(numbers(app), sink(app, taken)))
    assert taken == [1, 2, 3]


@pytest.mark.parametrize("is_asked", [False, True], ids=["counted", "asked"])
@pytest.mark.parametrize("policy", ["skip", {"restart": 3}], ids=["skip", "restart"])
def test_an_error_between_two_values_costs_the_rest_of_that_message_only(
    policy: Any, is_asked: bool, scheduler: MakeScheduler
) -> None:
    began: list[Any] = []
    taken: list[int] = []

    @op(on_error=policy)
    def twice(value: int) -> Any:
        began.append(value)
        yield value
        if value % 2:
            raise ValueError(f"{value} is bad")
        yield value

    def compose(app: App) -> None:
        conditions = [ExpiringMessageAvailableCondition(app, 1, 0, receiver="value")] if is_asked else []
        several = twice(app, *conditions)
        app.add_flow(source(app, range(5)), several, sink(app, taken))

    outcome = run(compose, scheduler).outcome
    assert (began, taken) == ([0, 1, 2, 3, 4], [0, 0, 1, 2, 2, 3, 4, 4])
    assert outcome.discarded == {}
    assert outcome.ended_by == "finished"


def test_a_class_a_keyword_an_arg_and_a_file_say_it(tmp_path: Path) -> None:
    class Tolerant(Picky):
        on_error = "skip"

    settings = tmp_path / "settings.yaml"
    settings.write_text("picky:\n  on_error: {restart: 3}\nother:\n  on_error: skip\n")
    app = App(lambda app: None)
    app.config(settings)
    assert Tolerant(app, name="a").on_error == "skip"
    assert Tolerant(app, name="b", on_error="stop").on_error == "stop"
    assert Picky(app, Arg("on_error", "skip"), name="c").on_error == "skip"
    assert Picky(app, app.from_config("picky"), name="d").on_error == {"restart": 3}
    assert Picky(app, name="e", **app.kwargs("other")).on_error == "skip"


@pytest.mark.parametrize(
    "wrong", ["restart", "ignore", {"restart": 0}, {"restart": True}, {"skip": "x"}, 3, None, {}]
)
def test_a_policy_that_is_none_is_refused_when_it_is_composed(wrong: Any) -> None:
    app = App(lambda app: app.add_operator(Step(app, name="a", on_error=wrong)))
    with pytest.raises(
        ParameterError, match=r"operator 'a': on_error must be 'stop', 'skip'.*'restart'.*not"
    ):
        app.compose_graph()


def test_skipped_errors_are_logged_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace.errors"):
        run(lambda app: chain(app, [], range(100), bad=range(100), on_error="skip") and None)
    lines = [record for record in caplog.records if record.name == "headrace.errors"]
    assert len(lines) == 7
    assert lines[0].getMessage() == "skipped an error in compute of operator 'picky'"
    assert "(64 errors skipped so far)" in lines[-1].getMessage()
    assert (vars(lines[0])["operator"], vars(lines[0])["fragment"]) == ("picky", "App")
    raised = lines[0].exc_info
    assert raised
    assert str(raised[1]) == "0 is bad"
    # Whoever keeps the record keeps none of the data that the compute had.
    assert raised[2] is None
    assert "in compute" in str(lines[0].exc_text)
