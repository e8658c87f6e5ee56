"""Models: what a model takes and returns, a loaded model whatever runtime runs it, and how a file is loaded.

A runtime is imported when the first model for it is loaded. Importing headrace imports none.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from headrace.gpu import StreamHandle
from headrace.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np


class InferenceError(RuntimeError):
    """A model that cannot be loaded or run, or data that does not fit it."""


Extent: TypeAlias = int | str | None
"""One entry of a shape: a number, the name of a dynamic extent, or None for one without a name."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model.

    Attributes
    ----------
    name
        Its name in the model.
    dtype
        NumPy's dtype of the elements; None where the model does not say.
    shape
        The extents: numbers, and names (or None) of those that may differ from run to run. None where the model
        does not say.
    """

    name: str
    dtype: np.dtype[Any] | None = None
    shape: tuple[Extent, ...] | None = None

    def __str__(self) -> str:
        kind = "any type" if self.dtype is None else self.dtype.name
        return f"{kind} {shape_text(self.shape)}"

    @property
    def is_dynamic(self) -> bool:
        """Whether an extent may differ from run to run."""
        return self.shape is None or any(not isinstance(extent, int) for extent in self.shape)

    def arrange(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape in which a tensor fits, or None if it does not fit.

        Axes of extent 1 may be missing or too many: they do not change where the elements are. If an extent is
        dynamic, only axes at the front may.
        """
        wanted = self.shape
        if wanted is None or _matches(wanted, shape):
            return shape
        missing = len(wanted) - len(shape)
        if missing > 0 and _matches(wanted, (1,) * missing + shape):
            return (1,) * missing + shape
        if missing < 0 and all(extent == 1 for extent in shape[:-missing]):
            rest = shape[-missing:]
            if _matches(wanted, rest):
                return rest
        fixed = tuple(extent for extent in wanted if isinstance(extent, int))
        if len(fixed) == len(wanted) and _without_ones(fixed) == _without_ones(shape):
            return fixed
        return None


def resolve(
    inputs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]], outputs: Sequence[TensorSpec]
) -> list[tuple[int, ...] | None]:
    """Return the shape of each output for given shapes of the inputs, None where the specs do not tell it.

    A dynamic extent of an output is known if an input has one of the same name.
    """
    named: dict[str, int | None] = {}
    for spec, shape in zip(inputs, shapes, strict=True):
        for extent, found in zip(spec.shape or (), shape, strict=False):
            if isinstance(extent, str):
                # A name with two values tells nothing.
                named[extent] = found if named.get(extent, found) == found else None
    return [_resolved(spec.shape, named) for spec in outputs]


def shape_text(shape: tuple[Extent, ...] | None) -> str:
    """Return a shape as an error shows it, with a question mark for an extent without a name."""
    if shape is None:
        return "of any shape"
    inside = ", ".join("?" if extent is None else str(extent) for extent in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


def _resolved(shape: tuple[Extent, ...] | None, named: dict[str, int | None]) -> tuple[int, ...] | None:
    if shape is None:
        return None
    found = [
        extent if isinstance(extent, int) else named.get(extent) if isinstance(extent, str) else None
        for extent in shape
    ]
    known = tuple(extent for extent in found if extent is not None)
    return known if len(known) == len(found) else None


def _matches(wanted: tuple[Extent, ...], shape: tuple[int, ...]) -> bool:
    return len(wanted) == len(shape) and all(
        not isinstance(extent, int) or extent == found for extent, found in zip(wanted, shape, strict=True)
    )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


class TorchFormat(NamedTuple):
    """Where tensors are in the arguments and the result of a TorchScript model.

    Attributes
    ----------
    inputs, outputs
        What the model takes and returns, in order.
    arguments
        Returns the positional arguments for a tensor of each input.
    results
        Returns a tensor of each output of what the model returned.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arguments: Callable[[Sequence[Any]], Sequence[Any]]
    results: Callable[[Any], list[Any]]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is loaded.

    Attributes
    ----------
    on_gpu
        Whether it runs on the GPU, if the runtime can.
    device_id
        The number of the GPU.
    stream
        The stream that the model runs on. ONNX Runtime needs it when the model is loaded.
    fp16
        Whether TensorRT may compute in 16 bits.
    dla_core
        The core of the deep learning accelerator that TensorRT uses, with the GPU for layers that it cannot run;
        -1 for none.
    profile
        For each input, a (least, usual, greatest) triple for each of its dynamic extents, in order; empty for none.
    torch_format
        Called with the path of a TorchScript file; returns where its tensors are, or None where the signature of
        the model tells it.
    """

    on_gpu: bool = False
    device_id: int = 0
    stream: StreamHandle | None = None
    fp16: bool = False
    dla_core: int = -1
    profile: tuple[tuple[tuple[int, int, int], ...], ...] = ()
    torch_format: Callable[[Path], TorchFormat | None] | None = None


class Model(ABC):
    """A model that was loaded by :func:`load_model`.

    Attributes
    ----------
    name
        The name that errors use.
    path
        The file.
    runtime
        What runs it, in words: ``"ONNX Runtime (CPUExecutionProvider)"``.
    device_id
        The number of the GPU that it runs on; None if it runs on the host.
    inputs, outputs
        What it takes and returns, in order.
    returns_own_memory
        Whether it always returns memory of its own, so that there is no use in allocating any for it.
    """

    name: str
    path: Path
    runtime: str
    device_id: int | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    returns_own_memory: bool

    @abstractmethod
    def run_on_host(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """Run on C-contiguous NumPy arrays, and return arrays in fresh memory.

        Parameters
        ----------
        inputs
            One array for each input. They are read in place.
        outputs
            Arrays of the right shapes to write the results to, in place of fresh memory.
        """

    @abstractmethod
    def run_on_device(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor | None], stream: StreamHandle
    ) -> list[Any]:
        """Submit a run on C-contiguous tensors of the GPU to a stream, and return its results without waiting.

        Parameters
        ----------
        inputs
            One tensor for each input, in the shape that the input has.
        outputs
            A tensor to write each result to, or None for memory of the runtime.
        stream
            The stream. For ONNX Runtime it is the one that the model was loaded with.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the runtime holds; the model cannot run any more."""

    def output_shapes(self, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...] | None]:
        """Return the shape of each output for given shapes of the inputs; None where the model does not tell it."""
        return resolve(self.inputs, shapes, self.outputs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.path}, {self.runtime}>"


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
