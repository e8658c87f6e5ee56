from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, Fragment
from headrace.core import GraphError
from tests.harness import PATIENCE, App, Step, run


def test_a_fragment_runs_like_an_application() -> None:
    ticks: list[int] = []

    class Small(Fragment):
        def compose(self) -> None:
            self.add_operator(
                Step(self, CountCondition(self, 2), body=lambda op, i, o: ticks.append(op.ticks))
            )

    Small().run()
    assert ticks == [1, 2]


def test_run_async_gives_the_exception_of_an_operator() -> None:
    def fail(op: Step, i: Any, o: Any) -> None:
        raise ZeroDivisionError("on purpose")

    future = App(lambda app: app.add_operator(Step(app, body=fail))).run_async()
    with pytest.raises(ZeroDivisionError):
        future.result(timeout=PATIENCE)


def test_stop_execution_of_one_operator_by_name_leaves_the_others() -> None:
    ticks: dict[str, int] = {}

    def body(op: Step, i: Any, o: Any) -> None:
        ticks[op.name] = op.ticks
        if op.name == "a" and op.ticks == 2:
            op.fragment.stop_execution("a")

    def compose(app: App) -> None:
        app.add_operator(Step(app, body=body, name="a"))
        app.add_operator(Step(app, CountCondition(app, 5), body=body, name="b"))

    run(compose)
    assert ticks == {"a": 2, "b": 5}


def test_an_application_without_operators_says_what_compose_must_do() -> None:
    with pytest.raises(GraphError, match="there are no operators"):
        run(lambda app: None)


def test_an_exception_in_compose_comes_out_as_itself() -> None:
    def compose(app: App) -> None:
        raise LookupError("on purpose")

    with pytest.raises(LookupError):
        run(compose)


def test_operators_start_in_the_order_they_were_added_and_stop_in_reverse() -> None:
    log: list[str] = []

    class Loud(Step):
        def initialize(self) -> None:
            log.append(f"initialize {self.name}")

        def start(self) -> None:
            log.append(f"start {self.name}")

        def stop(self) -> None:
            log.append(f"stop {self.name}")

    def compose(app: App) -> None:
        a = Loud(app, CountCondition(app, 1), outputs=["out"], name="a")
        app.add_flow(a, Loud(app, inputs=["in"], name="b"))

    run(compose)
    assert log == ["initialize a", "initialize b", "start a", "start b", "stop b", "stop a"]
