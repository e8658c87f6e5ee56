"""Video operators on a real GPU: frames go there and back unchanged, and the simulated camera draws the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.operators import CameraSimOp
from headrace.testing import run_operator
from headrace_holoscan.ready import VideoStreamRecorderOp, VideoStreamReplayerOp
from headrace_holoscan.recordings import EntityReader
from tests.harness import MakeScheduler, run

pytestmark = pytest.mark.usefixtures("real")


def recorded(folder: Path) -> list[Any]:
    with EntityReader(folder, "clip") as reader:
        assert reader.problems == []
        return list(reader)


def test_frames_go_to_the_gpu_and_back(tmp_path: Path, scheduler: MakeScheduler) -> None:
    frames = [np.random.default_rng(number).integers(0, 256, (480, 640, 3), np.uint8) for number in range(20)]
    run_operator(VideoStreamRecorderOp, inputs=frames, directory=tmp_path, basename="clip")

    def compose(app: Any) -> None:
        replayer = VideoStreamReplayerOp(
            app, directory=tmp_path, basename="clip", storage_type="device", realtime=False
        )
        app.add_flow(replayer, VideoStreamRecorderOp(app, directory=tmp_path / "again", basename="clip"))

    run(compose, scheduler)
    entities = recorded(tmp_path / "again")
    assert all(entity.storage_types == {"": 1} for entity in entities)
    np.testing.assert_array_equal([entity.tensors[""] for entity in entities], frames)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_gpu_draws_the_frames_of_the_host(tmp_path: Path, dtype: str, noise: float) -> None:
    def compose(app: Any) -> None:
        app.camera = CameraSimOp(
            app,
            width=322,
            height=242,
            count=10,
            dtype=dtype,
            noise=noise,
            storage_type="device",
            realtime=False,
        )
        app.add_flow(app.camera, VideoStreamRecorderOp(app, directory=tmp_path, basename="clip"))

    app: Any = run(compose)
    for number, entity in enumerate(recorded(tmp_path)):
        np.testing.assert_array_equal(entity.tensors[""], app.camera.sensor.bayer(number))
