"""Models, and the runtimes that run them: ONNX Runtime and PyTorch.

:class:`headrace.operators.InferenceOp` runs models in a pipeline. What it stands on is useful in a plain script,
too::

    model = load_model("segment.onnx")
    (mask,) = model.run_on_host([image])

A runtime is imported when the first model for it is loaded.
"""

from __future__ import annotations

from headrace.inference.errors import InferenceError
from headrace.inference.loading import load_model
from headrace.inference.model import Model, ModelOptions
from headrace.inference.tensor_spec import TensorSpec

__all__ = ["InferenceError", "Model", "ModelOptions", "TensorSpec", "load_model"]
