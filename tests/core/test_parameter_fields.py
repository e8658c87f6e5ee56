"""Parameters as fields of a class."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from headrace import Application, CountCondition, Operator, Subgraph, declared, parameter
from headrace.core import REQUIRED, Arg, Condition, OperatorSpec, ParameterError, Resource
from headrace.core.values import nanoseconds
from tests.harness import run


@declared
class Scale(Operator):
    kinds: ClassVar[int] = 2
    _hidden: int = 1
    factor: float = 1.0
    mode: str = parameter(default="fast", choices=("fast", "exact"), live=True, headline="How")
    places: list[int] = parameter(default_factory=list)
    limit: int | None = parameter(default=3, minimum=0)
    must: int = parameter(default=REQUIRED)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Do nothing."""


def test_the_annotated_fields_are_parameters_in_their_order() -> None:
    scale = Scale(Application(), must=3, factor=2)
    assert list(scale.spec.params) == ["factor", "mode", "places", "limit", "must"]
    assert (scale.factor, scale.mode, scale.places, scale.limit, scale.must) == (2.0, "fast", [], 3, 3)
    assert list(scale.live_parameters) == ["mode"]
    assert scale.spec.params["mode"].headline == "How"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"factor": "2"}, "'factor' of Scale 's' must be a float, not a str"),
        ({"mode": "slow"}, "'mode' of Scale 's' must be one of 'fast', 'exact', not 'slow'"),
        ({"limit": -1}, "'limit' of Scale 's' must be at least 0, not -1"),
        ({"limit": "3"}, "'limit' of Scale 's' must be an int, not a str"),
        ({"kinds": 3}, "has no parameter 'kinds'"),
        ({"_hidden": 3}, "has no parameter '_hidden'"),
    ],
)
def test_what_a_field_does_not_allow_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        Scale(Application(), must=3, name="s", **wrong)
    assert Scale(Application(), must=3, limit=None).limit is None


def test_a_field_without_a_value_must_be_given() -> None:
    def compose(app: Any) -> None:
        scale = Scale(app, name="scale")
        with pytest.raises(AttributeError, match="has no value for the parameter 'must' yet"):
            scale.must  # noqa: B018
        app.add_operator(scale)

    with pytest.raises(ParameterError, match="'scale'.*'must'"):
        run(compose)


def test_subclasses_inherit_fields_and_add_some_and_change_defaults() -> None:
    @declared
    class Wider(Scale):
        factor = 3.0
        must: int = 4
        width: int = 5

    class Free(Wider):
        note: str  # no parameter: the class is not decorated

        def setup(self, spec: OperatorSpec) -> None:
            spec.param("extra", 6)
            spec.param("width", 7)

    free: Any = Free(Application())
    assert (free.factor, free.must, free.width, free.extra) == (3.0, 4, 7, 6)
    assert "note" not in free.spec.params


def test_the_fields_of_base_classes_come_first_and_a_subclass_may_set_other_limits() -> None:
    @declared
    class Narrow(Scale):
        first: int = 1
        limit: int | None = parameter(default=3, maximum=5)

    narrow = Narrow(Application(), must=1)
    assert list(narrow.spec.params) == ["factor", "mode", "places", "limit", "must", "first"]
    with pytest.raises(ParameterError, match="'limit' of operator 'narrow' must be at most 5, not 6"):
        narrow.add_arg(limit=6)


def test_parameter_is_enough_without_the_decorator() -> None:
    class Least(Condition):
        least: int = parameter(default=2, minimum=1)
        state: int = 0

    class Table(Resource):
        rows: int = parameter(default=2)

    class Group(Subgraph):
        level: float = parameter(default=0.5)

        def compose(self) -> None:
            pass

    found: list[Any] = []

    def compose(app: Any) -> None:
        found.extend((Least(app, least=3), Table(app), Group(app, level=0.75)))
        with pytest.raises(ParameterError, match="'least' of Least 'least' must be at least 1, not 0"):
            Least(app, least=0)
        with pytest.raises((ParameterError, TypeError), match="state"):
            Least(app, state=3)
        app.add_operator(Scale(app, must=1))

    Composed(compose).compose_graph()
    assert (found[0].least, found[1].rows, found[2].level) == (3, 2, 0.75)


def test_parameters_of_a_condition_may_be_given_by_position_and_be_kept_in_another_form() -> None:
    @declared(kw_only=False)
    class Slow(Condition):
        name = "slow_condition"
        least: int = 1
        _period: Any = parameter(default="1ms", alias="period", convert=nanoseconds)
        hard: bool = parameter(default=False, kw_only=True)

        def period(self) -> int:
            return int(self._period)

    assert str(inspect.signature(Slow)) == (
        "(fragment=None, least=1, period='1ms', *, hard=False, name='slow_condition')"
    )
    app = Application()
    slow = Slow(app, 2, "5ms", hard=True)
    assert (slow.name, slow.least, slow.period(), slow.hard) == ("slow_condition", 2, 5_000_000, True)
    assert (Slow().period(), Slow(app, Arg("period", 7), 3).period()) == (1_000_000, 7)
    with pytest.raises(TypeError, match="Slow was given 'least' by position and by keyword"):
        Slow(app, 2, least=3)  # type: ignore[misc]
    with pytest.raises(ValueError, match="Slow 'slow_condition': period must be an int"):
        Slow(app, period="soon")


def test_positions_and_signatures_are_those_that_type_checkers_know() -> None:
    @declared(kw_only=False)
    class Base(Condition):
        first: int = 1

    @declared(kw_only=False)
    class Derived(Base):
        name = "derived"
        second: int = 2

    class Own(Derived):
        def __init__(self, fragment: Any, both: int) -> None:
            super().__init__(fragment, both, both)

    app = Application()
    derived, own = Derived(app, 5, 6), Own(app, 7)
    assert (derived.first, derived.second, own.first, own.second) == (5, 6, 7, 7)
    assert str(inspect.signature(Derived)) == "(fragment=None, first=1, second=2, *, name='derived')"
    assert str(inspect.signature(type("Sub", (Derived,), {"second": 3}))).endswith(
        "second=3, *, name='derived')"
    )
    assert list(inspect.signature(Own).parameters) == ["fragment", "both"]


def test_a_dataclass_of_a_program_keeps_its_post_init() -> None:
    @dataclass(eq=False)
    class Twice(CountCondition):
        place: Any
        times: int = 1

        def __post_init__(self) -> None:
            super().__init__(self.place, 2 * self.times)

    class Thrice(Twice):
        pass

    app = Application()
    assert [kind(app, 4).count for kind in (Twice, Thrice)] == [8, 8]


def test_a_name_of_a_class_is_a_text() -> None:
    class Shown(Condition):
        @property
        def name(self) -> str:  # type: ignore[override]
            return self._shown

        @name.setter
        def name(self, name: str) -> None:
            self._shown = name

    app = Application()
    assert (Shown(app).name, Shown(app, name="mine").name) == ("shown", "mine")
    with pytest.raises(TypeError, match="the name of a CountCondition must be a str, not 5"):
        CountCondition(app, Arg("name", 5))  # type: ignore[arg-type]


class Composed(Application):
    def __init__(self, composing: Any) -> None:
        self.composing = composing
        super().__init__()

    def compose(self) -> None:
        self.composing(self)


def test_a_field_must_not_replace_what_every_operator_has() -> None:
    @declared
    class Stopping(Operator):
        conditions: int = 3  # type: ignore[assignment]

    with pytest.raises(ParameterError, match="Stopping cannot have a parameter 'conditions'"):
        Stopping(Application())


def test_a_default_and_a_factory_exclude_each_other() -> None:
    with pytest.raises(ParameterError, match="default or default_factory, not both"):
        parameter(default=3, default_factory=int)  # type: ignore[call-overload]
