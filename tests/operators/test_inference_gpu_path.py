"""The way of a frame through models on a GPU, with a model that launches kernels of a simulated device.

What runs on a real GPU is tested in tests/gpu/real/test_inference.py; here is what surrounds the runtimes: streams,
memory and threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace.core.errors import ParameterError
from headrace.inference import InferenceError, Model, ModelOptions, TensorSpec
from headrace.operators import InferenceOp
from headrace.resources import CudaStreamPool, UnboundedAllocator
from headrace.tensor.copies import simulated_memory
from tests.harness import MS, MakeScheduler, launch, run
from tests.operators.allocators import CountingAllocator
from tests.operators.device_frames import camera, reader

FLOAT = np.dtype("float32")


class Times(Model):
    """Multiplies by the number in its name, on a GPU; with ``host`` in its name on the host."""

    loaded: ClassVar[list[Times]] = []
    returns_own_memory = False

    def __init__(self, path: str, *, backend: str, name: str, options: ModelOptions) -> None:
        self.path, self.name, self.options = Path(path), name, options
        self.runtime = "stand-in"
        self.device_id = None if "host" in name else options.device_id
        self.inputs = (TensorSpec("x", FLOAT, ("n", 3)),)
        self.outputs = (TensorSpec("y", FLOAT, ("n", 3)),)
        self.factor = float(name.split("_")[-1])
        self.returns_own_memory = "own" in name
        self.threads: set[int] = set()
        Times.loaded.append(self)

    def run_on_host(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        return [inputs[0] * np.float32(self.factor)]

    def run_on_device(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: Any) -> list[Any]:
        self.threads.add(threading.get_ident())
        target = outputs[0]
        if target is None:
            target = UnboundedAllocator().allocate_tensor(inputs[0].shape, FLOAT, stream=stream)
        if "failing" in self.name:
            raise ValueError("out of\n   order")
        source, result = simulated_memory(inputs[0]), simulated_memory(target)
        launch(stream, 2 * MS, lambda: np.multiply(source, self.factor, out=result))
        return [target]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _stand_in(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Times.loaded.clear()
    monkeypatch.setattr("headrace.inference.running_model.load_model", Times)
    monkeypatch.setattr("headrace.operators.inference.active", lambda: SimpleNamespace(runs_cuda=True))


def run_models(
    *names: str,
    frames: int = 6,
    scheduler: MakeScheduler | None = None,
    streams: int = 0,
    hold: list[Any] | None = None,
    **parameters: Any,
) -> list[dict[str, float]]:
    """Run models on the frames of a camera, and return what a slow reader saw."""
    seen: list[dict[str, float]] = []

    def compose(app: Any) -> None:
        net = InferenceOp(
            app,
            name="net",
            backend="onnxrt",
            model_path_map=dict.fromkeys(names, "file"),
            pre_processor_map={name: ["x"] for name in names},
            inference_map={name: [name] for name in names},
            cuda_stream_pool=CudaStreamPool(app, max_size=streams) if streams else None,
            **parameters,
        )
        app.add_flow(camera(app, frames), net, {("out", "receivers")})
        app.add_flow(net, reader(app, seen, hold), {("transmitter", "in")})

    run(compose, *([] if scheduler is None else [scheduler]))
    return seen


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize(
    "names", [("by_2",), ("by_2", "by_3", "own_4"), ("own_2",), ("host_2", "by_3"), ("host_2",)]
)
def test_frames_are_right(names: tuple[str, ...], scheduler: MakeScheduler, parallel: bool) -> None:
    seen = run_models(*names, scheduler=scheduler, parallel_inference=parallel)
    factors = {name: float(name.split("_")[-1]) for name in names}
    assert seen == [{name: factor * n for name, factor in factors.items()} for n in range(1, 7)]


def test_a_model_is_loaded_with_the_stream_that_it_runs_on() -> None:
    run_models("by_2", "by_3")
    streams = [model.options.stream for model in Times.loaded]
    assert None not in streams
    assert len(set(streams)) == 2


def test_a_model_of_pytorch_needs_no_stream_when_it_is_loaded() -> None:
    run_models("by_2", backend_map={"by_2": "torch"})
    assert Times.loaded[0].options.stream is None


def test_models_at_the_same_time_are_submitted_by_several_threads() -> None:
    run_models("by_2", "by_3", parallel_inference=False)
    assert len(set().union(*(model.threads for model in Times.loaded))) == 1
    Times.loaded.clear()
    run_models("by_2", "by_3")
    assert len(set().union(*(model.threads for model in Times.loaded))) == 2


def test_outputs_come_from_the_allocator_unless_the_runtime_has_its_own() -> None:
    allocator = CountingAllocator()
    run_models("by_2", "own_3", frames=2, allocator=allocator)
    assert allocator.requests == [((4, 3), "float32", 1, "net")] * 2


def test_results_are_sent_in_host_memory_where_that_is_asked_for() -> None:
    seen = run_models("by_2", "host_3", frames=3, transmit_on_cuda=False)
    assert seen == [{"by_2": 2.0 * n, "host_3": 3.0 * n} for n in range(1, 4)]


def test_results_of_the_host_are_sent_in_device_memory() -> None:
    messages: list[Any] = []
    run_models("by_2", "host_3", frames=2, hold=messages)
    assert all(tensor.device.is_cuda for message in messages for tensor in message.values())
    assert len(messages) == 2


def test_the_last_result_is_sent_again() -> None:
    seen = run_models("by_2", "by_3", frames=4, temporal_map={"by_3": 2})
    assert [message["by_3"] for message in seen] == [3, 3, 9, 9]


def test_a_failure_names_the_model_in_one_line() -> None:
    with pytest.raises(InferenceError, match=r"model 'failing_3' \(stand-in, file\) failed: out of order\n"):
        run_models("by_2", "failing_3", "by_4")


def test_a_pool_without_a_stream_for_each_model_is_an_error() -> None:
    with pytest.raises(InferenceError, match="no stream left for model 'by_3': raise max_size"):
        run_models("by_2", "by_3", streams=2)  # one of them is the operator's own


def test_a_model_on_another_gpu_is_refused_with_what_to_do() -> None:
    with pytest.raises(InferenceError, match=r"on GPU 1, and the operator's streams are on GPU 0.*dev_id=1"):
        run_models("by_2", device_map={"by_2": "1"})
    assert len(run_models("by_2", device_map={"by_2": "0"})) == 6


def test_a_float_is_no_device() -> None:
    with pytest.raises(
        ParameterError, match="device_map of model 'by_2' must be an integer from 0 on, not 0.5"
    ):
        run_models("by_2", device_map={"by_2": 0.5})
