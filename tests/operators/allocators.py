"""An allocator for tests of operators: it counts what it is asked for."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from penstock import Tensor, as_tensor, gpu
from penstock.core import Resource


class _Frame:
    """Memory with a shape, as the array interfaces describe it."""

    def __init__(self, buffer: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "data": (int(buffer.handle), False),
            "version": 3,
        }


class CountingAllocator(Resource):
    """Serves host and device memory, and keeps what was asked for in `requests`."""

    def __init__(self, fragment: Any = None, *, name: str = "counting_allocator") -> None:
        super().__init__(fragment, name=name)
        self.requests: list[tuple[tuple[int, ...], str, int, str]] = []

    def allocate_tensor(
        self, shape: Any, dtype: Any, storage_type: Any = 1, *, stream: Any = None, operator: str = ""
    ) -> Tensor:
        self.requests.append((tuple(shape), np.dtype(dtype).name, int(storage_type), operator))
        if storage_type != 1:
            return as_tensor(np.empty(shape, dtype))
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return as_tensor(_Frame(gpu.Device(0).allocate(size, stream=stream.stream), tuple(shape), dtype))


def peek(tensor: Tensor) -> np.ndarray:
    """Return what a tensor on a simulated device holds at this moment, as a debugger would show it."""
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data))
    return raw.view(tensor.dtype).reshape(tensor.shape).copy()
