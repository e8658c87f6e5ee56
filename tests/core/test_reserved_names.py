"""Parameters beside the attributes that an operator or a condition has anyway."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Condition, Operator, OperatorSpec, op
from headrace.core import ParameterError
from headrace.core.parameters import reserved_names
from tests.harness import App, run, sink, source

WORDS = (
    "start",
    "stop",
    "compute",
    "setup",
    "conditions",
    "resources",
    "spec",
    "fragment",
    "args",
    "add_arg",
)
PRIVATE = ("declared", "parameters", "logger", "self", "cls", "parts", "_node", "_values")


@op
def numbers(*, start: int = 0, stop: int = 3) -> Any:
    yield from range(start, stop)


@pytest.mark.parametrize("word", [*WORDS, *PRIVATE])
def test_a_parameter_of_a_function_may_have_any_name(word: str) -> None:
    taken: list[Any] = []
    namespace: dict[str, Any] = {}
    exec(f"def show(value, *, {word}='default'):\n    return (value, {word})", namespace)
    show = op(namespace["show"])

    def compose(app: App) -> None:
        given = show(app, name="given", **{word: "given"})
        default = show(app, name="default")
        added = show(app, name="added")
        added.add_arg(**{word: "added"})
        for stage in (given, default, added):
            app.add_flow(
                source(app, [1], name=f"source of {stage.name}"),
                stage,
                sink(app, taken, name=f"sink of {stage.name}"),
            )

    run(compose)
    assert sorted(taken) == [(1, "added"), (1, "default"), (1, "given")]


def test_a_parameter_of_a_function_has_its_own_type_and_not_that_of_an_attribute_with_its_name() -> None:
    taken: list[int] = []

    @op
    def show(value: int, *, keeps_state: int = 7) -> int:
        return keeps_state

    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), stage := show(app, keeps_state=8))
        app.add_flow(stage, sink(app, taken))

    run(compose)
    assert taken == [8]


@pytest.mark.parametrize("word", ["name", "on_error"])
def test_a_word_that_sets_something_of_the_operator_is_refused_when_the_function_is_declared(
    word: str,
) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def show(value, *, {word}='x'): ...", namespace)
    expected = (
        rf"'{word}' of show cannot be a parameter: show\(self, {word}=...\) sets the {word} of the operator"
    )
    with pytest.raises(TypeError, match=expected):
        op(namespace["show"])


def declaring(name: str, **attributes: Any) -> type[Operator]:
    def setup(self: Operator, spec: OperatorSpec) -> None:
        spec.param(name, 1)

    def compute(self: Operator, op_input: Any, op_output: Any, context: Any) -> None: ...

    return type("Some", (Operator,), {"setup": setup, "compute": compute, **attributes})


@pytest.mark.parametrize(
    "word", [*WORDS, "name", "on_error", "metadata", "max_in_flight", "_headrace", "__init__"]
)
def test_a_parameter_with_the_name_of_an_attribute_of_operators_is_refused(word: str) -> None:
    with pytest.raises(
        ParameterError, match=f"Some cannot have a parameter '{word}'.*taken: .*'add_arg', .*'args'"
    ):
        declaring(word)(App(lambda app: None))


def test_every_attribute_that_an_operator_or_a_condition_has_is_a_reserved_name() -> None:
    app = App(lambda app: None)
    for base, made in ((Operator, declaring("gain")(app)), (Condition, Condition(app))):
        assert vars(made).keys() - {"gain"} <= reserved_names(base)
    assert vars(numbers(app)).keys() <= reserved_names(type(numbers(app)))


def test_a_parameter_with_the_name_of_a_method_of_its_class_is_refused() -> None:
    some = declaring("scale", scale=lambda self: 3)
    with pytest.raises(ParameterError, match="'scale': it has a method of that name"):
        some(App(lambda app: None))


def test_a_property_of_the_name_of_a_parameter_needs_a_setter() -> None:
    with pytest.raises(ParameterError, match="'gain': it has a property of that name without a setter"):
        declaring("gain", gain=property(lambda self: 3))(App(lambda app: None))
    kept: list[int] = []
    some = declaring("gain", gain=property(lambda self: 3, lambda self, value: kept.append(value)))
    some(App(lambda app: None), gain=4)
    assert kept == [1, 4]
