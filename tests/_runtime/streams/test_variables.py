"""What is kept for an operator that asks for a stream late: the variables of its compute, and of no more."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition, op
from headrace._runtime.streams.variables import modules_of_compute, variables_of_compute
from headrace.resources import ManualClock
from tests.harness import MakeScheduler, Step, run


def test_the_variables_of_a_compute_and_of_what_it_calls_are_found(scheduler: MakeScheduler) -> None:
    found: list[dict[str, Any]] = []

    def launch(frame: str) -> None:
        found.extend(variables_of_compute())

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        received = "a frame"
        launch(received)

    outside = "not theirs"

    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=body)), scheduler)
    assert outside not in [value for variables in found for value in variables.values()]
    inner, outer, compute = found  # the last is that of Step, which calls the body
    assert inner["frame"] == outer["received"] == "a frame"
    assert isinstance(compute["self"], Step)


def test_the_variables_of_its_module_are_found_and_not_what_imported_it() -> None:
    """What imported this module leads to every test that was collected."""
    found: list[dict[str, Any]] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        found.extend(modules_of_compute())

    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=body)), clock=ManualClock())
    (mine,) = (module for module in found if module["__name__"] == __name__)
    assert mine.items() <= globals().items()
    assert globals().keys() - mine.keys() == {"__builtins__", "__loader__", "__spec__"}


def test_a_run_inside_a_compute_ends_at_its_own_scheduler() -> None:
    found: list[dict[str, Any]] = []

    @op
    def inner() -> None:
        mine = "inner"  # noqa: F841
        found.extend(variables_of_compute())

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        mine = "outer"  # noqa: F841
        run(lambda app: app.add_operator(inner(app, CountCondition(app, 1))), clock=ManualClock())

    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=body)), clock=ManualClock())
    assert [variables["mine"] for variables in found if "mine" in variables] == ["inner"]
