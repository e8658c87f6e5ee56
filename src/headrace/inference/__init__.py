"""Models, and the runtimes that run them: ONNX Runtime and PyTorch.

:class:`headrace.operators.InferenceOp` runs models in a pipeline. What it stands on is useful in a plain script,
too::

    model = load_model("segment.onnx")
    (mask,) = model.run_on_host([image])

A runtime is imported when the first model for it is loaded.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
