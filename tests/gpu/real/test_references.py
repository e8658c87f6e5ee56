"""On a GPU the operators give what other libraries give, as in tests/operators/test_references.py on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.operators.on_device import run_model_on_device, run_on_device
from tests.operators.references import REFERENCES, Reference

pytestmark = pytest.mark.usefixtures("real")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_the_result_is_that_of_another_library(reference: Reference, seed: int) -> None:
    case, expected = reference.made(seed)
    seen = run_on_device(case)
    # Maxima are a few numbers, which the operator sends on the host unless it is told otherwise.
    assert seen.devices == (["cpu"] if str(reference).startswith("maxima") else ["cuda:0"])
    reference.compare(seen.arrays[0], expected)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_model_computes_what_onnx_says(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    random_models = pytest.importorskip("tests.operators.random_models")
    path, batch = random_models.random_model(tmp_path, seed)
    seen = run_model_on_device(path, batch)
    assert seen.devices == ["cuda:0"]
    expected = random_models.evaluated(path, batch)
    np.testing.assert_allclose(seen.arrays[0], expected, **random_models.GPU_TOLERANCE)
