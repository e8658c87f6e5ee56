"""A condition belongs to one operator of one running application."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition
from headrace.conditions import (
    BooleanCondition,
    OrConditionCombiner,
)
from headrace.core import GraphError
from tests.harness import PATIENCE, App, Step, run


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
            GraphError,
            match=r"condition 'shared' was passed to the operators 'a' and 'b'; create one for each",
        ):
            app.run()


@pytest.mark.parametrize("combined", [False, True])
def test_a_condition_belongs_to_one_running_application(combined: bool) -> None:
    shared = BooleanCondition(name="shared")
    running, done = threading.Event(), threading.Event()

    def compose(app: App) -> None:
        condition = OrConditionCombiner(app, terms=[shared]) if combined else shared

        def body(op: Step, i: Any, o: Any) -> None:
            running.set()
            assert done.wait(PATIENCE)

        app.add_operator(Step(app, condition, CountCondition(app, 1), body=body, name="a"))

    first = App(compose)
    first.name = "first"
    future = first.run_async()
    try:
        assert running.wait(PATIENCE)
        with pytest.raises(
            GraphError,
            match=r"condition 'shared' of operator 'a' is in use by operator 'a' of 'first', which is running",
        ):
            run(compose)
    finally:
        done.set()
    future.result(timeout=PATIENCE)
    run(compose)  # one after the other is no mistake
