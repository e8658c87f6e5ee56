"""The recorder: what it receives is in the files, in order, from host and device, however the run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import PeriodicCondition
from headrace.gpu import sim
from headrace.tensor.copies import copy
from headrace.testing import Message, run_operator
from headrace.video import VideoFileError
from headrace_holoscan.ready import VideoStreamRecorderOp, VideoStreamReplayerOp
from headrace_holoscan.recordings import EntityReader
from tests.harness import App, MakeScheduler, Step, run, source
from tests.harness.processes import run_forked, run_python
from tests.operators.allocators import CountingAllocator
from tests.operators.device_arrays import DeviceArray

MS = 1_000_000
FRAMES = [np.full((4, 6), number, np.uint16) for number in range(4)]


def recorded(folder: Path) -> list[Any]:
    with EntityReader(folder, "clip") as reader:
        assert reader.problems == []
        return list(reader)


def test_messages_are_recorded_in_order_with_the_distances_of_the_clock(tmp_path: Path) -> None:
    messages = [Message({"a": frame}, at=f"{10 * number}ms") for number, frame in enumerate(FRAMES)]
    outcome = run_operator(VideoStreamRecorderOp, inputs=messages, directory=tmp_path, basename="clip")
    entities = recorded(tmp_path)
    assert [int(entity.tensors["a"].max()) for entity in entities] == [0, 1, 2, 3]
    assert [(entity.log_time - entities[0].log_time) // MS for entity in entities] == [0, 10, 20, 30]
    assert outcome.operator.frames_recorded == 4


@pytest.mark.parametrize("message", [np.float32([1, 2]), {"": np.float32([1, 2])}])
def test_an_array_without_a_name_is_recorded_under_an_empty_name(tmp_path: Path, message: Any) -> None:
    run_operator(VideoStreamRecorderOp, inputs=[message], directory=tmp_path / "new", basename="clip")
    (entity,) = recorded(tmp_path / "new")
    np.testing.assert_array_equal(entity.tensors[""], [1, 2])
    assert entity.storage_types == {"": 2}


def test_what_is_recorded_plays_as_it_was(tmp_path: Path, scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        frames = source(
            app, [{"a": frame, "b": frame[0, 0]} for frame in FRAMES], PeriodicCondition(app, "20ms")
        )
        app.add_flow(frames, VideoStreamRecorderOp(app, directory=tmp_path, basename="clip"))

    run(compose, scheduler)
    outcome = run_operator(VideoStreamReplayerOp, directory=tmp_path, basename="clip")
    assert [message.at // MS for message in outcome.messages["output"]] == [0, 20, 40, 60]
    for frame, message in zip(FRAMES, outcome["output"], strict=True):
        np.testing.assert_array_equal(np.asarray(message["a"]), frame)
        assert np.asarray(message["b"]) == frame[0, 0]


def test_the_acquisition_timestamp_is_recorded_and_played(tmp_path: Path) -> None:
    messages = [Message(FRAMES[0], acq_timestamp=4711), Message(FRAMES[1])]
    run_operator(VideoStreamRecorderOp, inputs=messages, directory=tmp_path, basename="clip")
    assert [entity.acq_timestamp for entity in recorded(tmp_path)] == [4711, None]
    outcome = run_operator(VideoStreamReplayerOp, directory=tmp_path, basename="clip")
    assert outcome.messages["output"][0].acq_timestamp == 4711


@pytest.mark.parametrize("message", ["text", {"a": FRAMES[0], "b": "text"}, None])
def test_what_is_no_array_is_refused_by_name(tmp_path: Path, message: Any) -> None:
    with pytest.raises(TypeError, match="operator 'rec', input 'input': .*expected an array.*TensorMap"):
        run_operator(VideoStreamRecorderOp, inputs=[message], directory=tmp_path, basename="clip", name="rec")


def test_elements_that_the_files_cannot_hold_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="operator 'rec', input 'input': tensor 'm' has elements of type bool"
    ):
        run_operator(
            VideoStreamRecorderOp,
            inputs=[{"m": np.ones(2, np.uint8)}, {"m": np.ones(2, bool)}],
            directory=tmp_path,
            basename="clip",
            name="rec",
        )
    assert len(recorded(tmp_path)) == 1


def test_a_folder_that_cannot_be_written_to_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VideoFileError, match="cannot be written"):
        run_operator(VideoStreamRecorderOp, inputs=[FRAMES[0]], directory=tmp_path / "file", basename="clip")
    with pytest.raises(ValueError, match="basename must not be empty"):
        run_operator(VideoStreamRecorderOp, inputs=[FRAMES[0]], directory=tmp_path, basename="")


KILLED = """
import os, sys
import numpy as np
from headrace_holoscan.ready import VideoStreamRecorderOp
from headrace.testing import run_operator

class Killer(np.ndarray):
    def __dlpack_device__(self):
        os.kill(os.getpid(), 9)

frames = [np.full((480, 640, 3), n, np.uint8) for n in range(5)]
frames.append(frames[0].view(Killer))
run_operator(VideoStreamRecorderOp, inputs=frames, directory=sys.argv[1], basename="clip")
"""


def test_a_killed_process_leaves_every_recorded_frame(tmp_path: Path) -> None:
    assert run_forked("-c", KILLED, tmp_path).returncode == -9
    assert [int(entity.tensors[""].max()) for entity in recorded(tmp_path)] == [0, 1, 2, 3, 4]


# The device.


@pytest.mark.usefixtures("machine")
def test_frames_go_to_the_device_and_back_in_the_order_of_streams(
    tmp_path: Path, scheduler: MakeScheduler
) -> None:
    """The frames of a recording are played on the device and recorded from there: nothing is read too early."""
    for frame, name in ((FRAMES, "clip"), ([], "empty")):
        run_operator(VideoStreamRecorderOp, inputs=frame, directory=tmp_path, basename=name)

    def compose(app: Any) -> None:
        app.allocator = CountingAllocator(app)
        replayer = VideoStreamReplayerOp(
            app,
            directory=tmp_path,
            basename="clip",
            allocator=app.allocator,
            storage_type="device",
            realtime=False,
            repeat=True,
            count=20,
            name="replayer",
        )
        app.recorder = VideoStreamRecorderOp(app, directory=tmp_path / "again", basename="clip")
        app.add_flow(replayer, app.recorder)

    app: Any = run(compose, scheduler)
    entities = recorded(tmp_path / "again")
    assert [int(entity.tensors[""].max()) for entity in entities] == [0, 1, 2, 3] * 5
    assert all(entity.storage_types == {"": 1} for entity in entities)
    assert app.allocator.requests == [((4, 6), "uint16", 1, "replayer")] * 20


@pytest.mark.usefixtures("machine")
def test_a_recorded_storage_type_is_used_if_asked_for(tmp_path: Path) -> None:
    from headrace_holoscan.recordings import EntityWriter

    with EntityWriter(tmp_path, "clip") as writer:
        writer.write({"gpu": FRAMES[0], "cpu": FRAMES[1], "pinned": FRAMES[2]}, 0, {"gpu": 1, "pinned": 0})
    allocator = CountingAllocator()
    outcome = run_operator(
        VideoStreamReplayerOp,
        directory=tmp_path,
        basename="clip",
        storage_type="recorded",
        allocator=allocator,
        name="replayer",
    )
    (message,) = outcome["output"]
    assert str(message["gpu"].device) == "cuda:0"
    assert str(message["cpu"].device) == "cpu"
    np.testing.assert_array_equal(np.asarray(message["pinned"]), FRAMES[2])
    assert [request[2] for request in allocator.requests] == [1, 0]


def test_system_memory_needs_no_allocator(tmp_path: Path) -> None:
    run_operator(VideoStreamRecorderOp, inputs=FRAMES, directory=tmp_path, basename="clip")
    allocator = CountingAllocator()
    run_operator(VideoStreamReplayerOp, directory=tmp_path, basename="clip", allocator=allocator)
    assert allocator.requests == []


def test_an_application_without_a_device_is_told_what_to_do(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np\n"
        "from headrace_holoscan.ready import VideoStreamRecorderOp, VideoStreamReplayerOp\n"
        "from headrace.testing import run_operator\n"
        "run_operator(VideoStreamRecorderOp, inputs=[np.ones(3)], directory=sys.argv[1], basename='clip')\n"
        "run_operator(VideoStreamReplayerOp, directory=sys.argv[1], basename='clip', storage_type=1)\n"
    )
    done = run_python("-c", program, tmp_path, HEADRACE_DEVICE="none")
    assert "storage_type is 'device', and there is no device; use storage_type='system'" in done.stderr


def test_a_strided_tensor_on_the_device_is_recorded_in_order(tmp_path: Path, machine: sim.Machine) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)

    def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        tensor = CountingAllocator().allocate_tensor((4, 6), np.float32, 1, stream=stream)
        copy(tensor, array, stream)
        op_output.emit({"x": DeviceArray(tensor.owner.buffer, (2, 6), array.dtype, (48, 4))}, "out")
        self.stop_execution()

    def compose(app: App) -> None:
        sender = Step(app, outputs=["out"], body=send)
        app.add_flow(sender, VideoStreamRecorderOp(app, directory=tmp_path, basename="clip"))

    run(compose)
    (entity,) = recorded(tmp_path)
    np.testing.assert_array_equal(entity.tensors["x"], array[::2])


def test_a_recorder_that_is_started_again_goes_on_in_another_recording(tmp_path: Path) -> None:
    messages = [FRAMES[0], "no array", FRAMES[1], "no array", FRAMES[2]]
    run_operator(
        VideoStreamRecorderOp, inputs=messages, directory=tmp_path, basename="clip", on_error={"restart": 5}
    )
    for number, name in enumerate(("clip", "clip-2", "clip-3")):
        with EntityReader(tmp_path, name) as reader:
            assert [int(entity.tensors[""].max()) for entity in reader] == [number]
