"""CUDA kernels that a program gives to InferenceProcessorOp by their source."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace import gpu
from headrace.operators.bases import Workplace, launch
from headrace.tensor import Tensor
from headrace.vocabulary import choices

_ELEMENTS = {
    "kFloat32": np.float32,
    "kFloat16": np.float16,
    "kInt8": np.int8,
    "kUInt8": np.uint8,
    "kInt32": np.int32,
    "kInt64": np.int64,
    "kBool": np.bool_,
}
_OPTIONS = ("cuda_kernel", "out_dtype", "output_dimensions", "thread_per_block")
_MOST_THREADS = 1024


@dataclass(eq=False, slots=True)
class CustomKernel:
    """A kernel of the program: its source, the type and shape of its result, and the shape of its blocks."""

    name: str
    source: str
    element: np.dtype[Any]
    shape: tuple[int, ...] | None
    block: tuple[int, ...]
    _compiled: dict[str, Any] = field(default_factory=dict)
    _compiling: threading.Lock = field(default_factory=threading.Lock)

    def run(self, place: Workplace, tensor: Tensor, where: str) -> Tensor:
        """Run the kernel on a tensor; return its result."""
        assert place.stream is not None
        result = place.empty(self.shape or tensor.shape, self.element)
        count = len(self.block)
        if count == 1:
            sizes: tuple[int, ...] = (tensor.size,)
        elif tensor.ndim < count:
            raise ValueError(
                f"{where}: {self.name} has blocks of {count} dimensions, and the tensor the shape {tensor.shape}"
            )
        else:
            sizes = tensor.shape[:count]
        grid = tuple(-(-size // threads) for size, threads in zip(sizes, self.block, strict=True))
        if 0 not in grid:
            kernel = self._on(place.stream.stream.device, where)
            arguments = (tensor, result, *map(np.uint64, sizes))
            launch(place.stream, kernel, grid, self.block, arguments)
        return result

    def _on(self, device: Any, where: str) -> Any:
        """Return the compiled kernel for a device."""
        with self._compiling:
            if device.arch not in self._compiled:
                try:
                    options = gpu.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
                    code = gpu.Program(self.source, "c++", options).compile("cubin")
                    self._compiled[device.arch] = code.get_kernel(self.name)
                except Exception as error:
                    raise ValueError(
                        f"{where}: the kernel {self.name} cannot be compiled: {error}"
                    ) from error
            return self._compiled[device.arch]


def read_kernels(given: Mapping[str, str], where: str) -> dict[str, CustomKernel]:
    """Return the kernels of `custom_kernels`, by their identifiers; raise if an entry is wrong."""
    options: dict[str, dict[str, str]] = {}
    for key, value in given.items():
        option, _, identifier = key.partition("-")
        if option not in _OPTIONS or not identifier or "-" in identifier:
            raise ValueError(
                f"{where}: custom_kernels has {key!r}; a key is {', '.join(f'{one}-<id>' for one in _OPTIONS)}"
            )
        options.setdefault(identifier, {})[option] = str(value)
    return {
        identifier: _read_kernel(identifier, values, f"{where}, custom_kernels")
        for identifier, values in options.items()
    }


def _read_kernel(identifier: str, values: dict[str, str], where: str) -> CustomKernel:
    source = values.get("cuda_kernel", "")
    if not source.strip():
        raise ValueError(f"{where}: cuda_kernel-{identifier} is missing or empty")
    if source.strip().endswith(".cu"):
        path = Path(source.strip())
        if not path.is_file():
            raise ValueError(f"{where}: cuda_kernel-{identifier}: there is no file {str(path)!r}")
        source = path.read_text()
    name = f"customKernel{identifier}"
    if name not in source:
        raise ValueError(
            f"{where}: cuda_kernel-{identifier} must define the function {name}, declared "
            f'extern "C" __global__ void {name}(...)'
        )
    element = values.get("out_dtype", "kFloat32")
    if element not in _ELEMENTS:
        raise ValueError(
            f"{where}: out_dtype-{identifier}={element!r} is not known; it is one of {choices(_ELEMENTS, element)}"
        )
    shape = values.get("output_dimensions")
    dimensions = None if shape is None else _numbers(shape, f"{where}: output_dimensions-{identifier}")
    block = _numbers(values.get("thread_per_block", "256"), f"{where}: thread_per_block-{identifier}")
    if len(block) > 3 or math.prod(block) > _MOST_THREADS:
        raise ValueError(
            f"{where}: thread_per_block-{identifier} must be up to three numbers whose product is at most "
            f"{_MOST_THREADS}, not {','.join(map(str, block))}"
        )
    return CustomKernel(name, source, np.dtype(_ELEMENTS[element]), dimensions, block)


def _numbers(text: str, where: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ValueError(f"{where} must be positive numbers separated by commas, not {text!r}")
    return numbers
