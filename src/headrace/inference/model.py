"""Model: a loaded model, whatever runtime runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.gpu import StreamHandle
from headrace.inference.tensor_spec import TensorSpec, resolve
from headrace.tensor import Tensor


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
    """

    on_gpu: bool = False
    device_id: int = 0
    stream: StreamHandle | None = None
    fp16: bool = False
    dla_core: int = -1
    profile: tuple[tuple[tuple[int, int, int], ...], ...] = ()


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
