"""Which attributes the code of a compute names: those of a knob alone do not count as part of a recording."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from headrace import op
from headrace._runtime.capture.attribute_use import names_in_compute
from headrace.core import Operator
from tests.harness import App, Step


def helper(operator: Any) -> Any:
    return operator.by_a_function


class Base(Operator):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        context.knob("only_a_knob", np.float32)
        self.written = self.read + 1
        self.call()
        helper(self)
        [self.in_a_comprehension for _ in range(3)]
        _ = lambda: self.in_a_lambda  # noqa: E731
        assert self.prop

    def call(self) -> None:
        self.called()

    def called(self) -> Any:
        return self.by_a_method

    def never_called(self) -> Any:
        return self.nowhere

    @property
    def prop(self) -> Any:
        return self.by_a_property


class Derived(Base):
    def called(self) -> Any:
        return self.by_an_override


def names(kind: type[Operator]) -> set[str]:
    return names_in_compute(kind(App(lambda app: None), name="it"))


@pytest.mark.parametrize(
    "name",
    [
        "read",
        "written",
        "by_a_method",
        "by_a_function",
        "by_a_property",
        "in_a_comprehension",
        "in_a_lambda",
    ],
)
def test_what_compute_uses_is_found(name: str) -> None:
    assert name in names(Base)


@pytest.mark.parametrize("name", ["only_a_knob", "nowhere"])
def test_what_it_does_not_use_is_not(name: str) -> None:
    assert name not in names(Base)


def test_the_method_of_the_subclass_is_the_one_that_is_called() -> None:
    assert "by_an_override" in names(Derived)
    assert "by_a_method" not in names(Derived)


def test_the_method_that_a_subclass_calls_behind_its_own_is_followed() -> None:
    class Calling(Base):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)

    assert "read" in names(Calling)


def test_the_attributes_of_another_object_are_not_those_of_the_operator() -> None:
    class Tool:
        def use(self, operator: Any) -> Any:
            return self.of_the_tool + operator.of_the_operator  # type: ignore[attr-defined]

    class Using(Operator):
        tool = Tool()

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.tool.use(self)

    assert "of_the_operator" in names(Using)
    assert "of_the_tool" not in names(Using)


def test_functions_that_an_operator_was_given_are_followed() -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        self.in_the_body = 1

    step = Step(App(lambda app: None), body=functools.partial(body), name="it")
    assert "in_the_body" in names_in_compute(step)


def test_the_functions_of_libraries_are_not() -> None:
    class Sums(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            np.sum(op_input.receive("in"))

    assert names(Sums) == {"np", "sum", "receive"}


def test_a_function_is_followed_and_its_arguments_are_not_attributes() -> None:
    @op
    def amplify(frame: Any, *, gain: float = 2.0) -> Any:
        return frame.scaled(gain)

    operator = amplify(App(lambda app: None), name="it")
    operator.start()  # chooses its compute
    assert "scaled" in names_in_compute(operator)
    assert "gain" not in names_in_compute(operator)
