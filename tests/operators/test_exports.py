"""The package exports every operator, and importing it imports no library of theirs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock.operators

HEAVY = ("cupy", "torch", "cv2", "av", "onnxruntime", "aiohttp", "PIL", "cuda", "rerun")


def test_every_exported_name_is_an_operator() -> None:
    from penstock import Operator

    assert penstock.operators.__all__ == sorted(penstock.operators.__all__)
    assert set(penstock.operators.__all__) == set(penstock.operators._MODULES)
    for name in penstock.operators.__all__:
        assert issubclass(getattr(penstock.operators, name), Operator)
        assert name in dir(penstock.operators)


@pytest.mark.parametrize("name", penstock.operators.__all__)
def test_an_operator_without_an_application_says_how_it_is_made(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"the first argument of {name} .*inside compose: {name}\(self, name='x'\)"
    ):
        getattr(penstock.operators, name)(name="x")


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'BlurOp'"):
        _ = penstock.operators.BlurOp


def test_importing_the_package_and_an_operator_imports_nothing_heavy() -> None:
    code = (
        "import sys, penstock.operators; assert 'numpy' not in sys.modules; "
        "from penstock.operators import BayerDemosaicOp, FormatConverterOp, InferenceProcessorOp; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
