"""InferenceOp on the memory of a simulated device: right frames in the right order, none overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, gpu
from headrace.core.errors import AllocationError
from headrace.gpu import sim
from headrace.operators import InferenceOp
from headrace.resources import BlockMemoryPool, CudaStreamPool
from headrace.tensor.copies import simulated_memory
from tests.harness import Step, run
from tests.inference import models
from tests.operators.allocators import CountingAllocator
from tests.operators.device_frames import SHAPE, camera, reader
from tests.operators.inference_runs import inference, one_model, values

pytest.importorskip("onnxruntime")


def pipeline(app: Any, operator: Any, frames: int, seen: Any, hold: Any = None) -> None:
    app.add_flow(camera(app, frames), operator, {("out", "receivers")})
    app.add_flow(operator, reader(app, seen, hold), {("transmitter", "in")})


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("parallel", [True, False])
def test_several_models_have_streams_of_their_own_and_end_together(tmp_path: Path, parallel: bool) -> None:
    seen: list[Any] = []
    paths = {f"times_{factor}": models.scaling(tmp_path, factor) for factor in (2, 3, 4)}

    def compose(app: Any) -> None:
        app.net = InferenceOp(
            app,
            name="net",
            backend="onnxrt",
            model_path_map=paths,
            pre_processor_map={name: ["x"] for name in paths},
            inference_map={name: [name] for name in paths},
            parallel_inference=parallel,
        )
        pipeline(app, app.net, 6, seen)

    app = run(compose)
    streams = {running.stream for running in app.net._models}
    assert len(streams - {None}) == (3 if parallel else 0)
    assert seen == [
        {"times_2": 2.0 * number, "times_3": 3.0 * number, "times_4": 4.0 * number} for number in range(1, 7)
    ]


@pytest.mark.usefixtures("machine")
def test_later_frames_do_not_overwrite_device_memory_that_is_held(tmp_path: Path) -> None:
    seen: list[Any] = []
    hold: list[Any] = []
    path = models.scaling(tmp_path)

    def compose(app: Any) -> None:
        pipeline(app, InferenceOp(app, backend="onnxrt", **one_model(path)), 8, seen, hold)

    run(compose)
    assert [float(simulated_memory(message["y"])[0, 0]) for message in hold] == [2.0 * n for n in range(1, 9)]
    assert len({message["y"].data for message in hold}) == 8


@pytest.mark.usefixtures("machine")
def test_the_last_result_is_sent_again_between_temporal_frames(tmp_path: Path) -> None:
    seen: list[Any] = []
    path = models.scaling(tmp_path)

    def compose(app: Any) -> None:
        operator = InferenceOp(app, backend="onnxrt", **one_model(path), temporal_map={"m": 3})
        pipeline(app, operator, 7, seen)

    run(compose)
    assert [message["y"] for message in seen] == [2, 2, 2, 8, 8, 8, 14]


@pytest.mark.usefixtures("machine")
def test_results_go_to_host_memory_where_that_is_asked_for(tmp_path: Path) -> None:
    taken: list[Any] = []
    path = models.scaling(tmp_path)

    def compose(app: Any) -> None:
        operator = InferenceOp(app, backend="onnxrt", **one_model(path), transmit_on_cuda=False)
        app.add_flow(camera(app, 3), operator, {("out", "receivers")})
        body = lambda self, i, o: taken.append(np.asarray(i.receive("in")["y"])[0, 0])  # noqa: E731
        app.add_flow(operator, Step(app, inputs=["in"], body=body, name="sink"), {("transmitter", "in")})

    run(compose)
    assert taken == [2, 4, 6]


@pytest.mark.usefixtures("machine")
def test_host_and_device_tensors_may_meet_in_one_model(tmp_path: Path) -> None:
    seen: list[Any] = []
    path = models.save(
        tmp_path / "add.onnx",
        [models.helper.make_node("Add", ["a", "b"], ["y"])],
        {"a": ("FLOAT", ["n", 3]), "b": ("FLOAT", ["n", 3])},
        {"y": ("FLOAT", ["n", 3])},
    )

    def compose(app: Any) -> None:
        operator = InferenceOp(app, backend="onnxrt", **one_model(path, ["x", "h"]))
        app.add_flow(camera(app, 3), operator, {("out", "receivers")})

        def body(self: Any, i: Any, o: Any) -> None:
            frame = np.full(SHAPE, 100 * self.ticks, np.float32).T.copy().T  # strided
            o.emit({"h": frame}, "out")

        app.add_flow(
            Step(app, CountCondition(app, 3), outputs=["out"], body=body, name="host"),
            operator,
            {("out", "receivers")},
        )
        app.add_flow(operator, reader(app, seen), {("transmitter", "in")})

    run(compose)
    assert [message["y"] for message in seen] == [101, 202, 303]


@pytest.mark.usefixtures("machine")
def test_device_memory_comes_from_the_allocator_a_block_for_each_output(tmp_path: Path) -> None:
    allocator = CountingAllocator()
    path = models.scaling(tmp_path)

    def compose(app: Any) -> None:
        operator = InferenceOp(app, name="net", backend="onnxrt", allocator=allocator, **one_model(path))
        pipeline(app, operator, 3, [])

    run(compose)
    assert allocator.requests == [(SHAPE, "float32", 1, "net")] * 3


@pytest.mark.usefixtures("machine")
def test_an_allocator_that_has_no_memory_left_is_an_error_of_this_operator(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        pool = BlockMemoryPool(app, "device", block_size=48, num_blocks=1, name="pool")
        operator = InferenceOp(
            app, name="net", backend="onnxrt", allocator=pool, **one_model(models.scaling(tmp_path))
        )
        pipeline(app, operator, 3, [], hold=[])

    with pytest.raises(
        AllocationError, match=r"operator 'net': 'pool' has too little DEVICE memory for 48 B: 0 of 1 "
    ):
        run(compose)


@pytest.mark.usefixtures("machine")
def test_models_run_on_the_stream_of_the_pool_they_are_given(tmp_path: Path) -> None:
    seen: list[Any] = []

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, max_size=1, name="pool")
        path = models.scaling(tmp_path)
        app.net = InferenceOp(app, backend="onnxrt", cuda_stream_pool=pool, **one_model(path))
        pipeline(app, app.net, 3, seen)

    run(compose)
    assert [message["y"] for message in seen] == [2, 4, 6]


def test_host_data_stays_on_the_host_and_asks_for_no_stream(tmp_path: Path, machine: sim.Machine) -> None:
    (sent,) = inference([values(1, 2, 3)], **one_model(models.scaling(tmp_path)))
    assert sent["y"].device.is_host
    assert gpu.backend() == "sim"
    assert machine.now == 0
