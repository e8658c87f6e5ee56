"""Operators that work on one of two devices."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition, gpu
from headrace.resources import CudaStreamPool
from tests.harness import MS, Step, once, read_frame, write_frame


def current() -> int:
    """Return the number of the current device."""
    return gpu.Device().device_id


def frame_on(device_id: int, handle: Any) -> Any:
    """Allocate a frame on a device, in the order of a stream."""
    return gpu.DeviceMemoryResource(device_id).allocate(8, stream=handle.stream)


def source(
    app: Any, device_id: int, frames: int, seconds: float = MS, *args: Any, name: str = "source"
) -> Step:
    """Return an operator that fills frames on a device with 0, 1, 2 and so on, slowly."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        assert context.device_from_stream(stream) == current() == device_id
        op_output.set_cuda_stream(stream, "out")
        data = frame_on(device_id, stream)
        write_frame(stream, seconds, data, self.ticks - 1)
        op_output.emit(data, "out")

    pool = CudaStreamPool(app, device_id, 1, name=f"{name}_pool")
    return Step(app, CountCondition(app, frames), pool, *args, outputs=("out",), body=body, name=name)


def sink(app: Any, device_id: int, seen: list[int], *args: Any, name: str = "sink") -> Step:
    """Return an operator that reads frames on a device, a while after they were received."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        assert context.device_from_stream(stream) == current() == device_id
        read_frame(stream, MS, data, seen)

    pool = CudaStreamPool(app, device_id, 1, name=f"{name}_pool")
    return Step(app, pool, *args, inputs=("in",), body=body, name=name)


def default_user(app: Any, device_id: int, body: Any, name: str) -> Step:
    """Return a step on the default stream of its device; its pool has one stream beside."""
    pool = CudaStreamPool(app, device_id, 1, max_size=1, name=f"{name}_pool")

    def with_default(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        body(self, op_input.receive_cuda_stream("in"), context)

    step = Step(
        app, pool, inputs=("in",), body=with_default, setup=lambda spec: spec.default_stream(), name=name
    )
    app.add_flow(once(app, f"{name}_once"), step)
    return step
