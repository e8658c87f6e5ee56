from __future__ import annotations

from typing import Any, Protocol, TypedDict

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, OperatorSpec, PeriodicCondition
from headrace.core import Arg, GraphError, ParameterError
from headrace.resources import ManualClock
from tests.harness import App, Step, run


class Scale(Operator):
    factor: float

    def setup(self, spec: OperatorSpec) -> None:
        spec.param("factor", 2.0)
        spec.param("label", "none")
        spec.param("limit", None)


class Needy(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.param("path")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        pass


@pytest.fixture
def app() -> Application:
    return Application([])


def test_an_int_is_taken_for_a_float_and_a_numpy_scalar_for_a_number(app: Application) -> None:
    assert Scale(app, factor=3).factor == 3.0
    assert isinstance(Scale(app, factor=3).factor, float)
    assert Scale(app, factor=np.float32(0.5)).factor == 0.5


class Drawable(Protocol):
    def draw(self) -> None: ...


class Place(TypedDict):
    row: int


@pytest.mark.parametrize(
    "kind", [Any, Drawable, Place, "Any", int | str, "int | str", "str | list[int]", "Optional[str]"]
)
def test_an_annotation_that_values_cannot_be_checked_against_allows_all(app: Application, kind: Any) -> None:
    class Open(Operator):
        # As in a module whose annotations are not text.
        __annotations__ = {"value": kind}

        def setup(self, spec: OperatorSpec) -> None:
            spec.param("value", 1)

    assert Open(app, value="other").value == "other"  # type: ignore[attr-defined]


def test_a_required_parameter_can_be_added_afterwards() -> None:
    def compose(app: App) -> None:
        needy = Needy(app, CountCondition(app, 1))
        needy.add_arg(path="here")
        app.add_operator(needy)

    assert run(compose).graph.find("needy").path == "here"  # type: ignore[attr-defined]


def test_named_values_can_be_given_as_positional_args(app: Application) -> None:
    scale: Any = Scale(app, Arg("factor", 4.0), name="gain")
    scale.add_arg(Arg("label", "x"))
    assert (scale.factor, scale.label) == (4.0, "x")


def test_conditions_and_resources_can_be_positional_keyword_or_added(app: Application) -> None:
    count, period, clock = CountCondition(app, 3), PeriodicCondition(app, 5), ManualClock(app)
    scale = Scale(app, count, pace=period)
    scale.add_arg(clock)
    assert set(scale.conditions.values()) == {count, period}
    assert scale.resource("manual_clock") is clock


def test_the_same_condition_twice_is_refused(app: Application) -> None:
    count = CountCondition(app, 3)
    with pytest.raises(GraphError, match="was given the condition 'count_condition' twice"):
        Scale(app, count, count)


def test_a_positional_argument_that_is_no_part_says_what_is_taken(app: Application) -> None:
    with pytest.raises(ParameterError, match="takes conditions, resources and Arg values"):
        Scale(app, 3.0)


def test_an_operator_without_a_fragment_says_what_comes_first() -> None:
    with pytest.raises(TypeError, match="the first argument of Scale is the application or fragment"):
        Scale(None)  # type: ignore[arg-type]


def test_an_exception_in_setup_names_the_operator(app: Application) -> None:
    class Broken(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        Broken(app, name="bad")
    assert caught.value.__notes__ == ["raised in setup of operator 'bad' (Broken)"]


def test_compute_can_find_other_operators_and_their_status() -> None:
    seen: list[Any] = []

    class Curious(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            seen.append(context.find_operator().name)
            seen.append(context.find_operator("other").name)
            seen.append(context.get_operator_status("other").name)

    def compose(app: App) -> None:
        app.add_operator(Step(app, CountCondition(app, 0), name="other"))
        app.add_operator(Curious(app, CountCondition(app, 1), name="me"))

    run(compose)
    assert seen == ["me", "other", "STARTED"]
