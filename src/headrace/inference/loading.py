"""load_model: a file, and the runtime for it.

A runtime is imported here, when the first model for it is loaded. Importing headrace imports none.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.inference.errors import InferenceError
from headrace.inference.model import Model, ModelOptions

BACKENDS = ("trt", "onnxrt", "torch")
"""The names of the runtimes: TensorRT through ONNX Runtime, ONNX Runtime, PyTorch."""

_ENGINES = (".engine", ".plan", ".trt")
_OF_TORCH = (".pt", ".pt2", ".pth", ".ts")


def load_model(
    path: str | os.PathLike[str],
    *,
    backend: str = "onnxrt",
    name: str = "",
    options: ModelOptions | None = None,
) -> Model:
    """Load a model.

    Parameters
    ----------
    path
        An ONNX file; for ``torch``, a program of ``torch.export.save`` (.pt2) or a TorchScript file.
    backend
        ``"onnxrt"``, ``"trt"`` or ``"torch"``. ``"trt"`` is ONNX Runtime with TensorRT, or with what comes nearest
        on this machine; the log says what that is.
    name
        The name for errors; the name of the file unless given.
    options
        Where and how it runs; on the host unless given.

    Raises
    ------
    InferenceError
        If there is no such file, it is of another kind, or the runtime refuses it.
    ImportError
        If the runtime is not installed; the error names what to install.
    """
    file = Path(path)
    name = name or file.stem
    if backend not in BACKENDS:
        raise InferenceError(
            f"model {name!r}: there is no backend {backend!r}; the backends are {', '.join(map(repr, BACKENDS))}"
        )
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        at = "" if file.is_absolute() else f" (looked for in {Path.cwd()})"
        raise InferenceError(f"model {name!r}: {file} {what}{at}")
    _check_kind(name, file, backend)
    options = options or ModelOptions()
    if backend == "torch":
        from headrace.inference.torch_model import load_torch

        return load_torch(file, name, options)
    from headrace.inference.onnx_model import OnnxModel

    return OnnxModel(file, name, options, wants_tensorrt=backend == "trt")


def _check_kind(name: str, file: Path, backend: str) -> None:
    """Raise for a file whose name says that it is of another kind."""
    kind = file.suffix.lower()
    if kind in _ENGINES:
        raise InferenceError(
            f"model {name!r}: {file} is a TensorRT engine, which none of the runtimes loads: give the ONNX file "
            "that it was built from with backend 'trt'"
        )
    if backend == "torch" and kind == ".onnx":
        raise InferenceError(
            f"model {name!r}: {file} is an ONNX file, and its backend is 'torch': use backend 'onnxrt' or 'trt'"
        )
    if backend != "torch" and kind in _OF_TORCH:
        raise InferenceError(
            f"model {name!r}: {file} is a PyTorch file, and its backend is {backend!r}: use backend 'torch', or "
            "export the model with torch.onnx.export"
        )
