"""What is kept for an operator that asks for a stream late: the variables of its compute, and of no more."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Application, CountCondition, GreedyScheduler, op
from penstock._runtime.streams.variables import variables_of_compute
from tests.harness.pipelines import SCHEDULERS, Body, Make, run


@pytest.mark.parametrize("make", SCHEDULERS)
def test_the_variables_of_a_compute_and_of_what_it_calls_are_found(make: Make) -> None:
    found: list[dict[str, Any]] = []

    def launch(frame: str) -> None:
        found.extend(variables_of_compute())

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        received = "a frame"
        launch(received)

    outside = "not theirs"

    run(lambda app: app.add_operator(Body(app, CountCondition(app, 1), body=body)), make)
    assert outside not in [value for variables in found for value in variables.values()]
    inner, outer, compute = found  # the last is that of Body, which calls the body
    assert inner["frame"] == outer["received"] == "a frame"
    assert isinstance(compute["self"], Body)


def test_a_run_inside_a_compute_ends_at_its_own_scheduler() -> None:
    found: list[dict[str, Any]] = []

    @op
    def inner() -> None:
        mine = "inner"  # noqa: F841
        found.extend(variables_of_compute())

    class Inner(Application):
        def compose(self) -> None:
            self.scheduler(GreedyScheduler(self))
            self.add_operator(inner(self, CountCondition(self, 1)))

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        mine = "outer"  # noqa: F841
        Inner([]).run()

    run(lambda app: app.add_operator(Body(app, CountCondition(app, 1), body=body)))
    assert [variables["mine"] for variables in found if "mine" in variables] == ["inner"]
