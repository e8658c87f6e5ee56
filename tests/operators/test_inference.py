"""InferenceOp on host memory: models run on what arrives, by name, and send what they return."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.operators import InferenceOp
from penstock.testing import run_operator
from tests.inference import models

pytest.importorskip("onnxruntime")


def inference(*streams: list[Any], specs: list[Any] | None = None, **parameters: Any) -> list[Any]:
    """Run an InferenceOp on the messages of each connection, and return what it sent."""
    inputs: dict[str, Any] = {"receivers": list(streams)}
    if specs is not None:
        inputs["model_activation_specs"] = specs
    parameters.setdefault("backend", "onnxrt")
    return run_operator(InferenceOp, inputs=inputs, **parameters)["transmitter"]


def one_model(path: str, inputs: Any = ("x",), outputs: Any = ("y",)) -> dict[str, Any]:
    return {
        "model_path_map": {"m": path},
        "pre_processor_map": {"m": list(inputs)},
        "inference_map": {"m": list(outputs)},
    }


def values(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_a_model_runs_on_each_message(tmp_path: Path) -> None:
    frames = [np.full((2, 3), number, np.float32) for number in range(3)]
    sent = inference([{"x": frame} for frame in frames], **one_model(models.scaling(tmp_path)))
    assert [np.asarray(message["y"]).tolist() for message in sent] == [(2 * frame).tolist() for frame in frames]
