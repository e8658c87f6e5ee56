"""InferenceOp on a real GPU: zero copy, on the operator's stream, right frames, none overwritten."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Operator, gpu
from headrace.operators import InferenceOp
from tests.gpu.kernels import spin
from tests.harness import MakeScheduler, run

pytestmark = pytest.mark.usefixtures("real")

SHAPE = (256, 256)
FRAMES = 50


class Camera(Operator):
    """Fills a frame with its number on its own stream, a while after it was sent."""

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import cupy

        stream = context.allocate_cuda_stream("camera")
        op_output.set_cuda_stream(stream, "out")
        gpu.launch(
            stream.stream, gpu.LaunchConfig(grid=1, block=32), spin.on(gpu.Device(0)), np.int64(200_000)
        )
        with stream.cupy():
            frame = cupy.full(SHAPE, self.number, dtype=cupy.float32)
        op_output.emit({"x": frame}, "out")
        self.number += 1


class Reader(Operator):
    """Sums what it receives on its own stream, slowly, and holds every fifth message."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.extremes: list[Any] = []
        self.held: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import cupy

        message = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        gpu.launch(
            stream.stream, gpu.LaunchConfig(grid=1, block=32), spin.on(gpu.Device(0)), np.int64(300_000)
        )
        with stream.cupy():
            arrays = {name: cupy.from_dlpack(tensor) for name, tensor in message.items()}
            self.extremes.append({name: (array.min(), array.max()) for name, array in arrays.items()})
        if len(self.extremes) % 5 == 1:
            self.held.append((len(self.extremes) - 1, message))


def check(app: Any, factors: dict[str, float]) -> None:
    """Compare what the reader saw, and what it held, with what was sent."""
    import cupy

    assert len(app.reader.extremes) == FRAMES
    for number, seen in enumerate(app.reader.extremes):
        for name, factor in factors.items():
            assert [float(value) for value in seen[name]] == [factor * number] * 2, (number, name)
    for number, message in app.reader.held:
        for name, factor in factors.items():
            assert float(cupy.asarray(message[name]).mean()) == factor * number


def pipeline(scheduler: MakeScheduler, factors: dict[str, float], **parameters: Any) -> Any:
    def compose(app: Any) -> None:
        app.net = InferenceOp(app, name="net", **parameters)
        app.reader = Reader(app, name="reader")
        app.add_flow(Camera(app, CountCondition(app, FRAMES), name="camera"), app.net, {("out", "receivers")})
        app.add_flow(app.net, app.reader, {("transmitter", "in")})

    pytest.importorskip("cupy")
    app = run(compose, scheduler)
    check(app, factors)
    return app


def maps(paths: dict[str, str]) -> dict[str, Any]:
    return {
        "model_path_map": paths,
        "pre_processor_map": {name: ["x"] for name in paths},
        "inference_map": {name: [name] for name in paths},
    }


def onnx_models(folder: Path) -> dict[str, str]:
    pytest.importorskip("onnxruntime")
    from tests.inference import models

    return {f"times_{factor}": models.scaling(folder, factor, ["h", "w"]) for factor in (2, 3)}


FACTORS = {"times_2": 2.0, "times_3": 3.0}


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("backend", ["onnxrt", "trt"])
def test_frames_are_right_with_onnx_runtime(
    tmp_path: Path, scheduler: MakeScheduler, backend: str, parallel: bool
) -> None:
    paths = onnx_models(tmp_path)
    pipeline(scheduler, FACTORS, backend=backend, parallel_inference=parallel, **maps(paths))


def test_onnx_runtime_runs_on_the_gpu_where_its_build_can(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no CUDA")
    from headrace.inference import ModelOptions, load_model

    model = load_model(onnx_models(tmp_path)["times_2"], options=ModelOptions(on_gpu=True))
    assert model.device_id == 0, model.runtime


def times(factor: float) -> Any:
    """Return a module of PyTorch that multiplies by a number."""
    import torch

    class Times(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x * factor

    return Times()


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("kind", ["pt2", "pt"])
def test_frames_are_right_with_pytorch(
    tmp_path: Path, scheduler: MakeScheduler, kind: str, parallel: bool
) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    paths = {}
    for name, factor in FACTORS.items():
        file = paths[name] = str(tmp_path / f"{name}.{kind}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "pt":
                torch.jit.trace(times(factor), torch.ones(SHAPE)).save(file)
            else:
                torch.export.save(torch.export.export(times(factor), (torch.ones(SHAPE),)), file)
    app = pipeline(scheduler, FACTORS, backend="torch", parallel_inference=parallel, **maps(paths))
    assert all(message["times_2"].device.is_cuda for _, message in app.reader.held)


@pytest.mark.parametrize("infer_on_cpu", [True, False])
@pytest.mark.parametrize("transmit_on_cuda", [True, False])
def test_host_frames_come_out_where_they_are_asked_for(
    tmp_path: Path, infer_on_cpu: bool, transmit_on_cuda: bool
) -> None:
    taken: list[Any] = []

    class Source(Operator):
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def start(self) -> None:
            self.number = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit({"x": np.full(SHAPE, self.number, np.float32)}, "out")
            self.number += 1

    class Sink(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            tensor = op_input.receive("in")["times_2"]
            assert tensor.device.is_cuda == transmit_on_cuda
            if transmit_on_cuda:
                import cupy

                with op_input.receive_cuda_stream("in").cupy():
                    taken.append(float(cupy.from_dlpack(tensor).mean()))
            else:
                taken.append(float(np.asarray(tensor).mean()))

    paths = {"times_2": onnx_models(tmp_path)["times_2"]}

    def compose(app: Any) -> None:
        net = InferenceOp(
            app,
            backend="onnxrt",
            infer_on_cpu=infer_on_cpu,
            transmit_on_cuda=transmit_on_cuda,
            **maps(paths),
        )
        app.add_flow(Source(app, CountCondition(app, 5), name="source"), net, {("out", "receivers")})
        app.add_flow(net, Sink(app, name="sink"), {("transmitter", "in")})

    pytest.importorskip("cupy")
    run(compose)
    assert taken == [0, 2, 4, 6, 8]
