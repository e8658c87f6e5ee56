"""Arrays in the memory of a simulated device, written by a kernel that takes a while."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import as_tensor, gpu
from penstock.core import Operator
from tests.harness import MS, launch


class DeviceArray:
    """An array in device memory, as any library would export it."""

    def __init__(
        self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any], strides: Any = None, offset: int = 0
    ):
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype.str,
            "data": (buffer.handle + offset, False),
            "strides": strides,
            "version": 3,
        }


def device_array(stream: Any, values: np.ndarray) -> DeviceArray:
    """Allocate an array and write it on a stream, which takes a millisecond."""
    buffer = gpu.Device(0).allocate(values.nbytes, stream=stream.stream)
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    launch(stream, MS, lambda out: np.copyto(out, data), buffer)
    return DeviceArray(buffer, values.shape, values.dtype)


class DeviceSource(Operator):
    """Emits a fresh array on the device for each of some values, and lets go of it."""

    def __init__(self, fragment: Any, *args: Any, values: list[dict[str, np.ndarray]], **kwargs: Any) -> None:
        self.values = values
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        named = self.values[self.number]
        op_output.emit({name: device_array(stream, array) for name, array in named.items()}, "out")
        self.number += 1


class DeviceAllocator:
    """Allocates tensors on the device and on the host, as the catalogue's allocators do."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def allocate_tensor(
        self, shape: Any, dtype: Any, storage_type: int, *, stream: Any = None, operator: str = ""
    ) -> Any:
        self.asked.append((tuple(shape), np.dtype(dtype), storage_type, operator))
        if storage_type != 1:
            return as_tensor(np.empty(shape, dtype))
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        buffer = gpu.Device(0).allocate(size, stream=stream.stream)
        return as_tensor(DeviceArray(buffer, tuple(shape), np.dtype(dtype)), stream=stream)


class DeviceReader(Operator):
    """Reads what it receives on its own stream, a millisecond later."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[np.ndarray] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        ((_, tensor),) = op_input.receive("in").items()
        stream = op_input.receive_cuda_stream("in")
        buffer = tensor.owner.buffer

        def read(data: np.ndarray) -> None:
            self.seen.append(data.view(tensor.dtype).reshape(tensor.shape).copy())

        launch(stream, MS, read, buffer)


__all__ = ["DeviceAllocator", "DeviceArray", "DeviceReader", "DeviceSource", "device_array"]
