"""The simulated camera: its frames come at their times, are those of the sensor, and their truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.core import ParameterError
from headrace.operators import CameraSimOp
from headrace.tensor.copies import simulated_memory
from headrace.testing import run_operator
from tests.harness import MS, MakeScheduler, Step, launch, run
from tests.operators.allocators import CountingAllocator

SMALL = {"width": 64, "height": 48, "count": 4}


def test_frames_come_at_their_rate_with_number_and_time() -> None:
    outcome = run_operator(CameraSimOp, name="camera", frame_rate=50, **SMALL)
    messages = outcome.messages["output"]
    assert [message.at for message in messages] == [20_000_000 * number for number in range(4)]
    assert [message.acq_timestamp for message in messages] == [message.at for message in messages]
    assert outcome.operator.frame_number_key == "camera.frame_number"
    assert [message.metadata for message in messages] == [
        {"camera.frame_number": number} for number in range(4)
    ]


def test_frames_are_those_of_the_sensor_and_the_truth_is_the_operators() -> None:
    outcome = run_operator(CameraSimOp, noise=0.0, bayer_grid_pos=1, out_tensor_name="raw", **SMALL)
    camera = outcome.operator
    for number, message in enumerate(outcome["output"]):
        frame = np.asarray(message["raw"])
        assert (frame.shape, frame.dtype) == ((48, 64), np.uint8)
        truth = camera.truth(number)
        assert len(truth.objects) == 4
        np.testing.assert_array_equal(frame[::2, ::2], truth.rgb[::2, ::2, 0])
        np.testing.assert_array_equal(frame[1::2, 1::2], truth.rgb[1::2, 1::2, 2])


def test_an_endless_camera_is_ended_by_the_run() -> None:
    assert len(run_operator(CameraSimOp, width=64, height=48, steps=5)["output"]) == 5


def test_without_real_time_frames_come_at_once() -> None:
    messages = run_operator(CameraSimOp, realtime=False, **SMALL).messages["output"]
    assert [message.at for message in messages] == [0] * 4


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_on_a_device_the_frames_are_the_same(scheduler: MakeScheduler, dtype: str) -> None:
    frames: list[np.ndarray] = []

    def look(self: Any, op_input: Any, op_output: Any) -> None:
        tensor = op_input.receive("in")[""]
        stream = op_input.receive_cuda_stream("in")
        memory = simulated_memory(tensor)
        launch(stream, MS, lambda: frames.append(memory.copy()))

    def compose(app: Any) -> None:
        app.allocator = CountingAllocator(app)
        app.camera = CameraSimOp(
            app, dtype=dtype, storage_type="device", allocator=app.allocator, name="camera", **SMALL
        )
        app.add_flow(app.camera, Step(app, inputs=["in"], body=look))

    app: Any = run(compose, scheduler)
    assert app.allocator.requests == [((48, 64), dtype, 1, "camera")] * 4
    np.testing.assert_array_equal(frames, [app.camera.sensor.bayer(number) for number in range(4)])


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"width": 63}, "operator 'camera': a Bayer pattern needs an even width and height, not 63 by 48"),
        ({"height": 0}, "at least 2 by 2 pixels"),
        ({"frame_rate": 0.0}, "rate must be more than 0"),
        ({"dtype": "float32"}, "'uint8' or 'uint16'"),
        ({"dtype": "nonsense"}, "operator 'camera'.*nonsense"),
        ({"bayer_grid_pos": 7}, "0 BGGR"),
        ({"count": -1}, "'count' of .* must be at least 0"),
        ({"read_ahead": 0}, "'read_ahead' of .* must be at least 1"),
        ({"objects": 100}, "0 to 64 objects"),
        ({"noise": "loud"}, "must be a float"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_runs(parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        run_operator(CameraSimOp, name="camera", **{**SMALL, **parameters})
