"""A program that names no device: frames on a device, each multiplied by a kernel, then read on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import tests.outside.a_device  # noqa: F401 - registers the device
from headrace import Application, Operator, gpu
from headrace.conditions import CountCondition
from headrace.resources import CudaStreamPool, UnboundedAllocator
from headrace.tensor import copies

times = gpu.kernel(
    "times", source="", seconds=1e-6, effect=lambda frame, factor: np.multiply(frame, factor, frame)
)
streams: list[int] = []


class Camera(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        stream = context.allocate_cuda_stream("camera")
        frame = self.pool.allocate_tensor((4,), "uint8", "device", stream=stream)
        copies.copy(frame, np.full(4, self.number, np.uint8), stream)
        op_output.set_cuda_stream(stream, "out")
        op_output.emit(frame, "out")


class Times(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        streams.append(int(stream))
        gpu.launch(stream.stream, gpu.LaunchConfig(grid=1, block=32), times.on(stream.device), frame, 10)
        (seen,) = copies.read_on_host([frame], stream)
        print(seen.tolist())


class Program(Application):
    def compose(self) -> None:
        camera = Camera(self, CountCondition(self, 3), CudaStreamPool(self, name="pool"), name="camera")
        camera.pool = UnboundedAllocator(self, name="memory")
        reader = Times(self, CudaStreamPool(self, name="pool"), name="times")
        self.add_flow(camera, reader)


if __name__ == "__main__":
    Program().run()
    gpu.when_done(gpu.LEGACY_DEFAULT_STREAM, lambda error: print("done", error))
    print(gpu.backend(), gpu.Device().name, f"{len(set(streams))} stream")
