"""Flows written as `a >> b`, as chains, and with ports by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Application, ConditionType, Input, Operator, OperatorSpec, op
from headrace.core import GraphError, Port, PortError


@op
def one() -> int:
    return 1


@op
def pass_on(value: int) -> int:
    return value


@op
def merge(*values: int) -> int:
    return sum(values)


@op(outputs=("low", "high"))
def split(value: int) -> tuple[int, int]:
    return value, value


@op(inputs={"mask": Input().condition(ConditionType.NONE)})
def masked(mask: int, frame: int) -> int:
    return frame


@op
def add(left: int, right: int) -> int:
    return left + right


def flows(compose: Callable[[Application], Any]) -> list[str]:
    """Return the flows that a compose declares."""

    class Composed(Application):
        def compose(self) -> None:
            compose(self)

    app = Composed()
    app._headrace.compose_graph()
    return [str(flow) for flow in app.graph.flows]


def test_a_chain_is_written_in_one_line() -> None:
    chain = ["a.out -> b.value", "b.out -> c.value"]
    assert flows(lambda app: one(app, name="a") >> pass_on(app, name="b") >> pass_on(app, name="c")) == chain
    assert (
        flows(lambda app: app.add_flow(one(app, name="a"), pass_on(app, name="b"), pass_on(app, name="c")))
        == chain
    )


def test_what_stands_on_the_right_is_returned() -> None:
    def compose(app: Application) -> None:
        a, b, c = one(app), pass_on(app), add(app)
        assert (a >> b) is b
        assert (b >> c["left"]) is c
        assert (a >> (c["right"], pass_on(app, name="last")))[0] is c

    assert flows(compose)[1:] == ["pass_on.out -> add.left", "one.out -> add.right", "one.out -> last.value"]


def test_a_tuple_is_several_operators() -> None:
    def compose(app: Application) -> None:
        one(app) >> (pass_on(app, name="b"), pass_on(app, name="c")) >> merge(app) >> pass_on(app, name="d")

    assert flows(compose) == [
        *("one.out -> b.value", "one.out -> c.value"),
        *("b.out -> merge.values", "c.out -> merge.values", "merge.out -> d.value"),
    ]


def test_ports_are_named_by_brackets() -> None:
    def compose(app: Application) -> None:
        a, b = split(app), add(app)
        one(app) >> a
        a["high"] >> b["left"]
        app.add_flow(a["low"], b["right"], size=3)
        (a["low"], a["high"]) >> merge(app)["values"] >> pass_on(app)
        assert str(a["low"]) == "split.low"
        assert a["low"] == Port(a, "low")

    assert flows(compose)[1:] == [
        *("split.high -> add.left", "split.low -> add.right"),
        *("split.low -> merge.values", "split.high -> merge.values", "merge.out -> pass_on.value"),
    ]


def test_an_optional_input_does_not_need_a_port_map() -> None:
    assert flows(lambda app: one(app) >> masked(app)) == ["one.out -> masked.frame"]
    assert flows(lambda app: one(app) >> masked(app)["mask"]) == ["one.out -> masked.mask"]


class Forgetful(Operator):
    """Does not call the constructor of its base."""

    def __init__(self, fragment: Any) -> None:
        pass

    def setup(self, spec: OperatorSpec) -> None:
        pass


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (
            lambda app: one(app) >> add(app),
            "add' has several inputs ('left', 'right'), so name one, by {('out', 'left')} or by add['left']",
        ),
        (lambda app: one(app) >> add, "is not an operator; create one first: add(self, name=...)"),
        (lambda app: one(app) >> 3, "3 is not an operator"),
        (lambda app: one(app) >> (), "not to an empty tuple"),
        (
            lambda app: one(app) >> Forgetful(app),
            "Forgetful.__init__ must call super().__init__(fragment, ...)",
        ),
        (
            lambda app: Forgetful(app) >> Forgetful(app),
            "Forgetful.__init__ must call super().__init__(fragment, ...)",
        ),
        (lambda app: one(app)["ot"], "operator 'one' has no port 'ot'; it has 'out'"),
        (lambda app: one(app)[0], "the port of operator 'one' is named by a str, not 0"),
        (lambda app: list(one(app)), "'FunctionOperator' object is not iterable"),
        (
            lambda app: pass_on(app)["value"] >> add(app)["left"],
            "add_flow('pass_on'['value'], 'add'['left']): operator 'pass_on' has no output 'value'; it has 'out'",
        ),
        (
            lambda app: app.add_flow(one(app)["out"], add(app), {("out", "left")}),
            "the ports are named already, so there is no port map besides",
        ),
        (
            lambda app: app.add_flow(one(app), pass_on(app), pass_on(app), {("out", "value")}),
            "{('out', 'value')} is not an operator",
        ),
        (
            lambda app: one(app) >> pass_on(Application(name="other")),
            "operator 'pass_on' belongs to 'other' and cannot be added to 'Composed'",
        ),
    ],
)
def test_a_mistake_in_a_flow_says_what_would_be_right(compose: Any, message: str) -> None:
    with pytest.raises((GraphError, PortError, TypeError)) as error:
        flows(compose)
    assert message in str(error.value)
