"""Private names of the base classes, which a program might use for itself by accident."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, Condition, Operator, Subgraph
from headrace.compat.holoscan.core import Operator as TheirOperator
from headrace.core import Resource


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (Operator, "_node"),
        (Operator, "_place"),
        (Condition, "_node"),
        (Resource, "_parameters"),
        (Application, "_config"),
        (Application, "_loop"),
        (Subgraph, "_names"),
    ],
)
def test_a_private_name_of_the_base_class_is_refused_where_the_class_is_defined(base: Any, name: str) -> None:
    why = f"assigns self.{name}, which .* uses for itself; choose another name, such as {name[1:]}"
    with pytest.raises(TypeError, match=f"Mine.start {why}"):
        define(base, f"def start(self):\n    self.{name} = 1")
    with pytest.raises(TypeError, match=f"Mine.start {why}"):
        define(base, f"def start(me):\n    def later():\n        me.x, me.{name} = 1, 2\n    return later")
    with pytest.raises(TypeError, match=f"Mine defines {name}, which"):
        define(base, f"def {name}(self): ...")


def test_private_names_of_a_program_are_its_own() -> None:
    define(Operator, "def start(self):\n    self._mine = 1\n    self.node, self.other._node = 1, 2")
    define(Operator, "def start(self):\n    return self._node")
    define(Application, "def _repr_html_(self):\n    return ''")


def test_other_objects_have_private_names_of_their_own() -> None:
    inner = "class Entry:\n        def __init__(self):\n            self._node = 1"
    define(Operator, f"def start(self):\n    {inner}\n    self.entry = Entry()")
    define(Operator, "def start(self):\n    def visit(self):\n        self._node = 1\n    visit(self.other)")
    define(Operator, "@staticmethod\ndef link(one, other):\n    one._node = other")


def test_a_mixin_is_looked_at_too() -> None:
    class Counting:
        def count(self) -> None:
            self._replicas = 0

    with pytest.raises(TypeError, match=r"Counting.count assigns self\._replicas"):
        type("Mine", (Counting, Operator), {})


def test_a_program_for_another_system_is_warned() -> None:
    with pytest.warns(RuntimeWarning, match=r"Mine.start assigns self\._node"):
        define(TheirOperator, "def start(self):\n    self._node = 1")


def define(base: Any, body: str) -> None:
    """Define a class with one method."""
    namespace: dict[str, Any] = {"base": base, "__name__": __name__}
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    exec(f"class Mine(base):\n{lines}", namespace)
