"""The parameters of the built-in operators, as type checkers see them and as they are."""

from __future__ import annotations

import inspect
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


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)
def test_every_parameter_is_declared_once_as_a_field(kind: type[Operator]) -> None:
    annotated = {name for base in kind.__mro__ for name in inspect.get_annotations(base)}
    assert set(kind(Application()).spec.params) <= annotated
    own = inspect.getsource(kind)
    assert "spec.param(" not in own
    assert "@declared" in own or any("@declared" in inspect.getsource(base) for base in kind.__mro__[1:-1])


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)
def test_a_misspelled_parameter_is_told_the_nearest_name(kind: type[Operator]) -> None:
    params = kind(Application()).spec.params
    name = next(iter(params), "gain")
    wrong: dict[str, Any] = {name + name[-1]: 1}
    with pytest.raises(ParameterError) as error:
        kind(Application(), **wrong)
    assert f"has no parameter '{name}{name[-1]}'; it has " in str(error.value)
    assert len(params) < 2 or f"did you mean '{name}'?" in str(error.value)
