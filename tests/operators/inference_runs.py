"""Runs of an InferenceOp by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.operators import InferenceOp
from headrace.testing import run_operator


def inference(*streams: list[Any], specs: list[Any] | None = None, **parameters: Any) -> list[Any]:
    """Run an InferenceOp on the messages of each connection, and return what it sent."""
    inputs: dict[str, Any] = {"receivers": list(streams)}
    if specs is not None:
        inputs["model_activation_specs"] = specs
    parameters.setdefault("backend", "onnxrt")
    return run_operator(InferenceOp, inputs=inputs, **parameters)["transmitter"]


def one_model(path: str, inputs: Any = ("x",), outputs: Any = ("y",)) -> dict[str, Any]:
    """Return the maps of one model, named m."""
    return {
        "model_path_map": {"m": path},
        "pre_processor_map": {"m": list(inputs)},
        "inference_map": {"m": list(outputs)},
    }


def values(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)
