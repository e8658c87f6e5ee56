"""Measure what InferenceOp adds to a call of the session by hand, for a small convolutional network.

python -m benchmarks.inference [--save]        on the CPU; on a GPU too if there is one that ONNX Runtime can use

Three ways to run the same model on the same frames: a loop that calls the session; a pipeline whose operator calls
the session; a pipeline with InferenceOp. The second and third have the same operators around them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, Operator, gpu
from headrace.operators import InferenceOp
from headrace.schedulers import GreedyScheduler

FRAMES, ROUNDS = 1000, 9
SIZES = (8, 32, 128)
LIMIT = 60.0  # µs


def make_model(path: Path) -> str:
    """Write a network of two convolutions."""
    rng = np.random.default_rng(1)
    weights = {
        "first": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "second": rng.standard_normal((2, 8, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["y"], pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, "h", "w"])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


class Source(Operator):
    """Sends the same frame again and again."""

    frame: Any

    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.param("frame")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit({"x": self.frame}, "out")


class ByHand(Operator):
    """Calls the session."""

    session: Any

    def setup(self, spec: Any) -> None:
        spec.input("receivers")
        spec.output("transmitter")
        spec.param("session")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = np.asarray(op_input.receive("receivers")["x"])
        op_output.emit({"y": self.session.run(["y"], {"x": frame})[0]}, "transmitter")


class Sink(Operator):
    """Notes when frames arrive; the first ones warm up."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.times: list[float] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        self.times.append(time.perf_counter())


class Pipeline(Application):
    """A source, the operator that is measured, a sink."""

    def __init__(self, frame: Any, make: Callable[[Application], Operator]) -> None:
        super().__init__([])
        self.frame, self.make = frame, make

    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self))
        middle, self.sink = self.make(self), Sink(self, name="sink")
        source = Source(self, CountCondition(self, FRAMES + 100), frame=self.frame, name="source")
        self.add_flow(source, middle, {("out", "receivers")})
        self.add_flow(middle, self.sink, {("transmitter", "in")})


def per_frame(frame: Any, make: Callable[[Application], Operator]) -> float:
    """Return the microseconds of a frame in a pipeline."""
    app = Pipeline(frame, make)
    app.run()
    return float(np.median(np.diff(app.sink.times[100:])) * 1e6)


def in_a_loop(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(FRAMES + 100):
        call()
        times.append(time.perf_counter())
    return float(np.median(np.diff(times[100:])) * 1e6)


def measure(path: str, size: int, on_gpu: bool) -> list[float]:
    """Return the microseconds of a frame in a loop, in an operator and with InferenceOp."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    provider = "CUDAExecutionProvider" if on_gpu else "CPUExecutionProvider"
    session = onnxruntime.InferenceSession(path, settings, providers=[provider])
    host = np.random.default_rng(2).standard_normal((1, 3, size, size)).astype(np.float32)
    frame: Any = host
    if on_gpu:
        import cupy

        frame = cupy.asarray(host)
    by_name = {
        "model_path_map": {"net": path},
        "pre_processor_map": {"net": ["x"]},
        "inference_map": {"net": ["y"]},
    }
    found = []
    for _ in range(ROUNDS):
        row = [] if on_gpu else [in_a_loop(lambda: session.run(["y"], {"x": host}))]
        if not on_gpu:
            row.append(per_frame(host, lambda app: ByHand(app, session=session, name="by_hand")))
        else:
            row.append(in_a_loop(lambda: run_bound(session, frame, size)))
        row.append(per_frame(frame, lambda app: InferenceOp(app, backend="onnxrt", name="net", **by_name)))
        found.append(row)
    return [min(column) for column in zip(*found, strict=True)]


def run_bound(session: Any, frame: Any, size: int) -> None:
    """Run a session by hand on a GPU, with addresses bound; this waits for the result."""
    import cupy

    binding = session.io_binding()
    result = cupy.empty((1, 2, size, size), cupy.float32)
    binding.bind_input("x", "cuda", 0, np.float32, frame.shape, frame.data.ptr)
    binding.bind_output("y", "cuda", 0, np.float32, result.shape, result.data.ptr)
    session.run_with_iobinding(binding)


def main() -> int:
    failed = False
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = make_model(Path(folder) / "net.onnx")
        for size in SIZES:
            loop, operator, ours = measure(path, size, on_gpu=False)
            failed |= size == SIZES[0] and ours - operator > LIMIT  # larger frames measure the runtime
            rows.append(
                [
                    f"CPU, {size} × {size}",
                    f"{loop:.0f}",
                    f"{operator:.0f}",
                    f"{ours:.0f}",
                    f"{ours - operator:.0f}",
                ]
            )
        if gpu.backend() == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            for size in SIZES:
                bound, ours = measure(path, size, on_gpu=True)
                rows.append([f"GPU, {size} × {size}", f"{bound:.0f} (waits)", "", f"{ours:.0f}", ""])
    text = [
        "# What InferenceOp adds to a call of the session",
        "",
        circumstances(gpu.Device(0).name if gpu.backend() == "cuda" else "no GPU"),
        "",
        f"µs a frame, ONNX Runtime {onnxruntime.__version__}, two convolutions: the least of {ROUNDS} rounds, each",
        f"the median of {FRAMES:,} frames. `python -m benchmarks.inference`. The session by hand is called in a",
        f"loop, and by an operator of a pipeline; InferenceOp may add {LIMIT:.0f} µs to it in the first row.",
        "",
        table(["", "loop", "operator by hand", "InferenceOp", "difference"], rows),
    ]
    publish("inference", "\n".join(text))
    return failed


if __name__ == "__main__":
    sys.exit(main())
