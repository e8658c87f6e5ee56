"""Pipelines whose frames are in device memory, real or simulated."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import Application, CountCondition, Operator
from headrace.operators import InferenceOp
from headrace.resources import CudaStreamPool
from headrace.tensor.copies import read_on_host, upload
from tests.harness import App, run
from tests.operators.cases import Array, Case


class DeviceSource(Operator):
    """Sends arrays from device memory, each copied there on a stream of its own."""

    def __init__(self, fragment: Application, frames: list[Array], *args: Any, entry: str = "") -> None:
        self.frames, self.entry = frames, entry
        super().__init__(fragment, CountCondition(fragment, len(frames)), *args, name="device_source")

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("source")
        op_output.set_cuda_stream(stream, "out")
        frame = upload(self.frames[self.number], stream)
        self.number += 1
        op_output.emit({self.entry: frame}, "out")


class Sink(Operator):
    """Reads what it receives, with the device that it is on."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.arrays: list[Array] = []
        self.devices: list[str] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        (tensor,) = op_input.receive("in").values()
        stream = op_input.receive_cuda_stream("in") if tensor.device.is_cuda else None
        self.devices.append(str(tensor.device))
        self.arrays.append(np.array(*read_on_host([tensor], stream)))


def run_on_device(case: Case, frames: list[Array] | None = None, **settings: Any) -> Sink:
    """Run the operator of a case on frames in device memory; return the sink behind it."""

    def compose(app: App) -> None:
        # Streams that are not ordered with the default stream: nothing may rely on that.
        pool = CudaStreamPool(app, stream_flags=1)
        entry = "maps" if case.port == "receivers" else ""
        source = DeviceSource(app, [case.frame] if frames is None else frames, pool, entry=entry)
        operator = case.kind(app, name="operator", cuda_stream_pool=pool, **case.params)
        app.sink = Sink(app, pool, name="sink")  # type: ignore[attr-defined]
        app.add_flow(source, operator, {("out", case.port)})
        app.add_flow(operator, app.sink)  # type: ignore[attr-defined]

    app: Any = run(compose, **settings)
    return app.sink


def run_model_on_device(path: str, batch: Array) -> Sink:
    """Run an InferenceOp with one model, x to y, on a batch in device memory; return the sink behind it."""

    def compose(app: App) -> None:
        pool = CudaStreamPool(app, stream_flags=1)
        operator = InferenceOp(
            app,
            name="operator",
            cuda_stream_pool=pool,
            backend="onnxrt",
            model_path_map={"m": path},
            pre_processor_map={"m": ["x"]},
            inference_map={"m": ["y"]},
        )
        app.sink = Sink(app, pool, name="sink")  # type: ignore[attr-defined]
        app.add_flow(DeviceSource(app, [batch], pool, entry="x"), operator, {("out", "receivers")})
        app.add_flow(operator, app.sink)  # type: ignore[attr-defined]

    app: Any = run(compose)
    return app.sink
