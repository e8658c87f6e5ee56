"""The parameters of the built-in operators, as type checkers see them and as they are."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import headrace.operators
from headrace import Application, Operator
from headrace.core import ParameterError

OPERATORS = [
    kind
    for kind in (getattr(headrace.operators, name) for name in headrace.operators.__all__)
    if inspect.isclass(kind) and issubclass(kind, Operator)
]
# Keywords that every operator takes, and the one of the viewer that is no parameter.
OTHERS = {"name", "on_error", "window_close_condition"}


def branches(kind: type) -> list[ast.If]:
    """Return the branches in the body of a class of the operators."""
    if not kind.__module__.startswith("headrace.operators."):
        return []
    file = inspect.getsourcefile(kind)
    assert file is not None
    classes = {
        node.name: node for node in ast.parse(Path(file).read_text()).body if isinstance(node, ast.ClassDef)
    }
    return [node for node in classes[kind.__name__].body if isinstance(node, ast.If)]


@cache
def typed_parameters(kind: type[Operator]) -> dict[str, ast.expr | None]:
    """Return the keywords of the ``__init__`` that a class has under ``if TYPE_CHECKING``, with their defaults."""
    checked = [one for base in kind.__mro__ for one in branches(base)]
    assert checked, (
        f"{kind.__name__} needs an __init__ with its parameters under `if TYPE_CHECKING`, as the others have"
    )
    init = checked[0].body[0]
    assert isinstance(init, ast.FunctionDef)
    assert init.args.kwarg is not None
    assert ast.unparse(init.args.kwarg) == "parts: NamedPart"
    names = [argument.arg for argument in init.args.kwonlyargs]
    return dict(zip(names, init.args.kw_defaults, strict=True))


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)
def test_a_type_checker_knows_the_parameters_of_every_operator(kind: type[Operator]) -> None:
    typed = typed_parameters(kind)
    params = kind(Application()).spec.params
    assert set(typed) - OTHERS == set(params)
    for name, parameter in params.items():
        written = typed[name]
        if isinstance(written, ast.Constant) and written.value is not ...:
            assert written.value == parameter.default, name
        elif parameter.is_required:
            assert isinstance(written, ast.Constant), name


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)
def test_a_misspelled_parameter_is_told_the_nearest_name(kind: type[Operator]) -> None:
    params = kind(Application()).spec.params
    name = next(iter(params), "gain")
    wrong: dict[str, Any] = {name + name[-1]: 1}
    with pytest.raises(ParameterError) as error:
        kind(Application(), **wrong)
    assert f"has no parameter '{name}{name[-1]}'; it has " in str(error.value)
    assert len(params) < 2 or f"did you mean '{name}'?" in str(error.value)
