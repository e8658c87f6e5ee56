"""Arrays in the memory of a simulated device, written by a kernel that takes a while."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import gpu
from headrace.core import Operator
from headrace.gpu import sim
from headrace.tensor.copies import simulated_memory
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

    def __simulated_memory__(self) -> np.ndarray:
        return sim.host_view(self.buffer)


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


class DeviceReader(Operator):
    """Reads what it receives on its own stream, a millisecond later."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[np.ndarray] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        (tensor,) = op_input.receive("in").values()
        stream = op_input.receive_cuda_stream("in")
        memory = simulated_memory(tensor)
        launch(stream, MS, lambda: self.seen.append(memory.copy()))


__all__ = ["DeviceArray", "DeviceReader", "DeviceSource", "device_array"]
