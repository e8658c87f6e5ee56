"""Frames of a device that loggers and recorders copy while the pipeline goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, gpu
from headrace.observe import DataLogger, LoggedMessage, PortRecorder, replay, watch
from headrace.resources import UnboundedAllocator
from tests.gpu.bench import Bench
from tests.gpu.kernels import slow_write

FRAMES = 30
COUNT = 1 << 16  # elements of a frame
MILLISECOND = 1_000_000


@pytest.fixture(autouse=True)
def _of_this_process(bench: Bench) -> None:
    if bench.is_simulated != (gpu.backend() == "sim"):
        pytest.skip("pipelines run on the kind of device that the process uses")


def fill(stream: Any, tensor: Any, value: int, nanoseconds: int) -> None:
    """Write a number to every element of a tensor, after a while."""
    memory = tensor.data if stream.backend.runs_cuda else tensor
    config = gpu.LaunchConfig(grid=-(-COUNT // 256), block=256)
    arguments = (memory, np.int32(COUNT), np.int32(value), np.int64(nanoseconds))
    gpu.launch(stream.stream, config, slow_write.on(gpu.Device()), *arguments)


class Camera(Operator):
    """Writes all its frames to one buffer, or each to a buffer of its own."""

    def __init__(self, fragment: Any, *args: Any, reuses: bool, **kwargs: Any) -> None:
        self.reuses = reuses
        self.ran = False
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.ran = True
        self.number = 0
        self.frame: Any = None
        self.pool = UnboundedAllocator(self.fragment, name="pool")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        if self.frame is None or not self.reuses:
            self.frame = self.pool.allocate_tensor(COUNT, np.int32, "device", stream=stream)
        fill(stream, self.frame, self.number, MILLISECOND // 2)
        op_output.emit({"frame": self.frame}, "out")
        self.number += 1


class Spoiler(Operator):
    """Writes to what it received, in place."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")["frame"]
        fill(op_input.receive_cuda_stream("in"), frame, -1, 1)


class Pipeline(Application):
    def __init__(self, reuses: bool = False) -> None:
        super().__init__([])
        self.reuses = reuses

    def compose(self) -> None:
        self.camera = Camera(self, CountCondition(self, FRAMES), reuses=self.reuses, name="camera")
        self.add_flow(self.camera, Spoiler(self, name="spoiler"))


class Listing(DataLogger):
    def initialize(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def log(self, message: LoggedMessage) -> None:
        frame = np.asarray(message.data["frame"])
        self.seen.append((int(frame.min()), int(frame.max())))


EXPECTED = [(number, number) for number in range(FRAMES)]


@pytest.mark.parametrize("reuses", [False, True])
def test_a_logger_sees_each_frame_as_it_was_emitted(reuses: bool) -> None:
    app = Pipeline(reuses)
    logger = Listing("*.out")
    app.add_data_logger(logger)
    app.run()
    assert logger.seen == EXPECTED
    assert logger.dropped == 0


@pytest.mark.parametrize("reuses", [False, True])
def test_a_recording_has_each_frame_as_it_was_emitted_and_plays_it(tmp_path: Path, reuses: bool) -> None:
    pytest.importorskip("mcap")
    from headrace.observe import Recording

    def recorded(app: Pipeline, name: str) -> list[Any]:
        watch(app, PortRecorder(tmp_path / name, ["camera.out"]))
        app.run()
        messages = list(Recording(tmp_path / name))
        assert all(str(one.data["frame"].device) == "cuda:0" for one in messages)
        return [np.asarray(one.data["frame"]) for one in messages]

    first = recorded(Pipeline(reuses), "a.mcap")
    assert [(int(one.min()), int(one.max())) for one in first] == EXPECTED
    again = Pipeline(reuses)
    replay(again, tmp_path / "a.mcap", "fast")
    second = recorded(again, "b.mcap")
    assert not again.camera.ran
    assert len(second) == FRAMES
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
