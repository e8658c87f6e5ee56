"""An operator that never receives is warned of, by its name and its input; one that skips a receive is not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from headrace import ConditionType, CountCondition
from headrace.core import UnreceivedMessageWarning
from tests.harness import App, MakeScheduler, Step, run, source


def test_an_operator_that_never_receives_is_warned_of_once(scheduler: MakeScheduler) -> None:
    def spin(op: Step, i: Any, o: Any) -> None:
        if op.ticks == 10_000:
            op.fragment.stop_execution()

    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), Step(app, inputs=["in"], body=spin, name="lazy"))

    with pytest.warns(UnreceivedMessageWarning) as caught:
        run(compose, scheduler)
    (warning,) = caught
    assert "operator 'lazy' has computed" in str(warning.message)
    assert "its input 'in', where messages wait" in str(warning.message)
    assert "op_input.receive('in')" in str(warning.message)


def test_as_an_error_the_warning_ends_the_run(scheduler: MakeScheduler) -> None:
    app = App(lambda app: app.add_flow(source(app, [1]), Step(app, inputs=["in"], name="lazy")), scheduler)
    with pytest.raises(UnreceivedMessageWarning, match="operator 'lazy'"):
        app.run()
    assert app.outcome.ended_by == "failed"


def test_one_of_two_inputs_that_is_never_received_from_is_named() -> None:
    def body(op: Step, i: Any, o: Any) -> None:
        i.receive("used")

    def compose(app: App) -> None:
        both = Step(app, inputs=["used", "unused"], body=body, name="both")
        app.add_flow(source(app, range(5_000), name="a"), both, {("out", "used")})
        app.add_flow(source(app, range(1), name="b"), both, {("out", "unused")})

    with pytest.warns(UnreceivedMessageWarning, match="its input 'unused'"):
        run(compose)


def test_an_operator_that_skips_most_receives_is_left_alone(scheduler: MakeScheduler) -> None:
    def body(op: Step, i: Any, o: Any) -> None:
        if op.ticks % 900 == 0:
            i.receive()

    def compose(app: App) -> None:
        app.add_flow(source(app, range(8)), Step(app, inputs=["in"], body=body, name="slow"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = App(compose, scheduler).run()
    assert outcome.operators["slow"].computes == 8 * 900


def test_an_input_that_may_be_left_is_left() -> None:
    def setup(spec: Any) -> None:
        spec.input("in").condition(ConditionType.NONE)

    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), Step(app, CountCondition(app, 9_000), setup=setup, name="a"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert App(compose).run().ended_by == "finished"


def test_an_operator_that_runs_for_any_of_its_inputs_may_leave_one() -> None:
    def setup(spec: Any) -> None:
        spec.input("often")
        spec.input("seldom")
        spec.or_combine_port_conditions(["often", "seldom"])

    def body(op: Step, i: Any, o: Any) -> None:
        if i.receive("often") is None:
            i.receive("seldom")

    def compose(app: App) -> None:
        either = Step(app, setup=setup, body=body, name="either")
        app.add_flow(source(app, range(6_000), name="a"), either, {("out", "often")})
        app.add_flow(source(app, range(2), name="b"), either, {("out", "seldom")})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert App(compose).run().ended_by == "finished"


def test_an_input_where_nothing_waits_is_not_named() -> None:
    def setup(spec: Any) -> None:
        spec.input("fed")
        spec.input("empty")
        spec.or_combine_port_conditions(["fed", "empty"])

    def spin(op: Step, i: Any, o: Any) -> None:
        if op.ticks == 9_000:
            op.fragment.stop_execution()

    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), Step(app, setup=setup, body=spin, name="either"), {("out", "fed")})

    with pytest.warns(UnreceivedMessageWarning) as caught:
        run(compose)
    assert ["its input 'fed'" in str(warning.message) for warning in caught] == [True]
