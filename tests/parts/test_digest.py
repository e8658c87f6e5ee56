"""Whether two processes composed the same program."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Fragment, IOSpec, op
from headrace.parts.digest import describe, difference


@op
def source(*, value: Any = None) -> Any:
    yield value


@op
def sink(value: Any) -> None: ...


@op
def other(value: Any) -> None: ...


class Part(Fragment):
    """One operator, made by a function."""

    def __init__(self, *args: Any, make: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.make = make

    def compose(self) -> None:
        self.add_operator(self.make(self))


class Two(Application):
    """Two parts and a flow between them."""

    def __init__(self, value: Any = None, end: Any = sink, count: int = 5, **flow: Any) -> None:
        super().__init__([])
        self.made = value, end, count, flow

    def compose(self) -> None:
        value, end, count, flow = self.made
        one = Part(
            self, "one", make=lambda f: source(f, CountCondition(f, count), value=value, name="source")
        )
        two = Part(self, "two", make=lambda f: end(f, name="sink"))
        self.add_flow(one, two, {("source.out", "sink.value")}, **flow)


def described(*args: Any, **kwargs: Any) -> dict[str, str]:
    app = Two(*args, **kwargs)
    app.compose_graph()
    return describe(app)


class Thing:
    """An object whose text has an address in it."""


VALUES = [
    None,
    True,
    2.5,
    "text",
    b"bytes",
    Path("a/b"),
    [1, (2, {3: "x"})],
    {"b", "a"},
    np.arange(6).reshape(2, 3),
    IOSpec.QueuePolicy.POP,
    Thing,
    described,
]


@pytest.mark.parametrize("value", [*VALUES, Thing()], ids=lambda value: type(value).__name__)
def test_the_same_program_has_the_same_description(value: Any) -> None:
    again = Thing() if type(value) is Thing else value
    assert difference(described(value), described(again), "two") == ""


@pytest.mark.parametrize("value", VALUES[1:], ids=lambda value: type(value).__name__)
def test_another_value_of_a_parameter_is_told(value: Any) -> None:
    text = difference(described(), described(value), "two")
    assert text.startswith("parameter 'value' of operator 'one.source' is None in the driver and ")
    assert text.endswith(" in the process of fragment 'two'")


def test_the_version_of_python_is_compared() -> None:
    assert described()["Python"] == platform.python_version()


def test_arrays_are_compared_by_their_elements() -> None:
    assert "checksum" in difference(described(np.zeros(3)), described(np.ones(3)), "two")


def test_what_differs_is_named() -> None:
    assert difference(described(size=2), described(size=3), "two") == (
        "flow one.source.out -> two.sink.value is size=2 policy=None in the driver and size=3 policy=None in the "
        "process of fragment 'two'"
    )
    assert difference(described(end=sink), described(end=other), "two").startswith(
        "operator 'two.sink' is tests.parts.test_digest.sink in the driver and tests.parts.test_digest.other in "
    )
    assert "condition 'count_condition' of operator 'one.source'" in difference(
        described(count=5), described(count=6), "two"
    )
    one = described()
    less = {name: value for name, value in one.items() if not name.startswith("flow")}
    assert difference(one, less, "two").endswith("value is missing in the process of fragment 'two'")
    assert difference(less, one, "two").endswith("value exists only in the process of fragment 'two'")
