"""OpenCV's GpuMat and the part of its module that makes one, for where OpenCV has no CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

DEPTHS = {
    "8U": "uint8",
    "8S": "int8",
    "16U": "uint16",
    "16S": "int16",
    "32S": "int32",
    "32F": "float32",
    "64F": "float64",
    "16F": "float16",
    "16BF": "bfloat16",
    "Bool": "bool",
    "64U": "uint64",
    "64S": "int64",
    "32U": "uint32",
}
SIZES = (1, 1, 2, 2, 4, 4, 8, 2, 2, 1, 8, 8, 4)


@dataclass(eq=False)
class GpuMat:
    """A GpuMat as Python programs see it."""

    address: int
    rows: int
    columns: int
    number: int
    count: int
    step: int
    memory: Any = None

    def size(self) -> tuple[int, int]:
        return (self.columns, self.rows)

    def depth(self) -> int:
        return self.number

    def channels(self) -> int:
        return self.count

    def elemSize1(self) -> int:
        return SIZES[self.number]

    def elemSize(self) -> int:
        return self.elemSize1() * self.count

    def cudaPtr(self) -> int:
        return self.address


def gpumat_over(array: Any, depth: str | None = None) -> GpuMat:
    """Return a GpuMat over an array of NumPy or CuPy, which it keeps alive."""
    rows, columns, channels = (*array.shape, 1)[:3]
    names = list(DEPTHS.values())
    number = names.index(array.dtype.name) if depth is None else list(DEPTHS).index(depth)
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return GpuMat(address, rows, columns, number, channels, array.strides[0], array)


def opencv(major: int, devices: int = 1) -> SimpleNamespace:
    """Return a module like cv2 that packs types as a version of OpenCV does."""
    shift, known = (3, 8) if major == 4 else (5, 13)
    module = SimpleNamespace(__version__=f"{major}.0.0")
    for number, depth in enumerate(list(DEPTHS)[:known]):
        setattr(module, f"CV_{depth}C", lambda channels, number=number: number + ((channels - 1) << shift))
        if depth != "16BF":
            for channels in (1, 2, 3, 4):
                setattr(module, f"CV_{depth}C{channels}", number + ((channels - 1) << shift))

    def create(rows: int, cols: int, kind: int, cudaMemoryAddress: int, step: int) -> GpuMat:
        number, channels = kind & ((1 << shift) - 1), (kind >> shift) + 1
        return GpuMat(cudaMemoryAddress, rows, cols, number, channels, step)

    module.cuda = SimpleNamespace(
        getCudaEnabledDeviceCount=lambda: devices, createGpuMatFromCudaMemory=create, GpuMat=GpuMat
    )
    return module
