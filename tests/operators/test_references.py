"""The operators give what OpenCV, Pillow, SciPy, FFmpeg and ONNX's own evaluator give, on random frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from tests.operators.inference_runs import inference, one_model
from tests.operators.on_device import run_model_on_device, run_on_device
from tests.operators.references import REFERENCES, Reference

SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_on_the_host_the_result_is_that_of_another_library(reference: Reference, seed: int) -> None:
    case, expected = reference.made(seed)
    reference.compare(case.on_host(), expected)


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_on_a_device_the_result_is_that_of_another_library(
    reference: Reference, machine: sim.Machine
) -> None:
    case, expected = reference.made(99)
    reference.compare(run_on_device(case).arrays[0], expected)


# Networks.


@pytest.fixture
def random_models() -> Any:
    """The module that makes random models, or none where its libraries are missing."""
    pytest.importorskip("onnxruntime")
    return pytest.importorskip("tests.operators.random_models")


@pytest.mark.parametrize("seed", range(12))
def test_a_random_model_computes_what_onnx_says(random_models: Any, seed: int, tmp_path: Path) -> None:
    path, batch = random_models.random_model(tmp_path, seed)
    (message,) = inference([{"x": batch}], **one_model(path))
    np.testing.assert_allclose(
        np.asarray(message["y"]), random_models.evaluated(path, batch), **random_models.HOST_TOLERANCE
    )


@pytest.mark.parametrize("seed", range(30, 34))
def test_a_random_model_computes_on_a_device_what_onnx_says(
    random_models: Any, seed: int, tmp_path: Path, machine: sim.Machine
) -> None:
    path, batch = random_models.random_model(tmp_path, seed)
    seen = run_model_on_device(path, batch)
    assert seen.devices == ["cuda:0"]
    np.testing.assert_allclose(
        seen.arrays[0], random_models.evaluated(path, batch), **random_models.HOST_TOLERANCE
    )


# Files.


# The viewer.
