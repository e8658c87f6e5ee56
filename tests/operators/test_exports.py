"""The package exports every operator, and importing it imports no library of theirs."""

from __future__ import annotations

import pytest

import headrace.operators
from tests.harness.processes import output_of

MAKERS = {"split_batch"}  # functions that make an operator, by `op`
HEAVY = ("cupy", "torch", "cv2", "av", "onnxruntime", "aiohttp", "PIL", "cuda", "rerun")


def test_every_exported_name_is_an_operator() -> None:
    from headrace import Operator

    assert headrace.operators.__all__ == sorted(headrace.operators.__all__)
    for name in headrace.operators.__all__:
        assert name in MAKERS or issubclass(getattr(headrace.operators, name), Operator)
        assert name in dir(headrace.operators)


@pytest.mark.parametrize("name", sorted({*headrace.operators.__all__} - MAKERS))
def test_an_operator_without_an_application_says_how_it_is_made(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"the first argument of {name} .*inside compose: {name}\(self, name='x'\)"
    ):
        getattr(headrace.operators, name)(name="x")


def test_importing_the_package_and_its_operators_imports_nothing_heavy() -> None:
    code = (
        "import sys, headrace.operators; assert 'numpy' not in sys.modules; from headrace.operators import *; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert output_of("-c", code) == "[]\n"
