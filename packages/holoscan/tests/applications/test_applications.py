"""Applications that were written for the Holoscan SDK run unchanged, on the device of the process.

`tests/gpu/real/test_holoscan_applications.py` runs the same tests on a GPU.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace import gpu
from headrace_holoscan.recordings import EntityReader
from packages.holoscan.tests.applications import data
from packages.holoscan.tests.applications.running import PROGRAMS, Ended, run_program

LAST = data.FRAMES - 1
Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the clips, and of the models of a test that asks for them."""
    return data.make(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def models(samples: Path) -> None:
    """The models in that folder, and a library that runs them."""
    pytest.importorskip("onnxruntime")
    data.make_models(samples)


@pytest.fixture
def run(samples: Path, tmp_path: Path) -> Run:
    """Run a program that must end well; its data are where both variables say."""

    def run(program: str, *arguments: object, status: int = 0, **variables: object) -> Ended:
        paths = {"HOLOSCAN_INPUT_PATH": samples, "HOLOHUB_DATA_PATH": samples}
        ended = run_program(program, *arguments, folder=tmp_path, **{**paths, **variables})
        assert ended.status == status, ended.errors
        return ended

    return run


def square(number: int) -> tuple[slice, slice]:
    left = data.corner(number)
    return slice(data.SIDE, 2 * data.SIDE), slice(left, left + data.SIDE)


def assert_a_frame_with_its_square(picture: np.ndarray, color: list[int]) -> None:
    """Assert that the last frame is shown, with its square in a colour.

    On a GPU it may be an earlier frame: one that comes before the viewer wants another is not copied to the host.
    """
    number = LAST
    if os.environ.get("HEADRACE_DEVICE") == "cuda":
        values = [int(data.frame(number)[0, 0, 0]) for number in range(data.FRAMES)]
        number = values.index(int(picture[0, 0, 0]))
    expected = data.frame(number)
    expected[square(number)] = color
    np.testing.assert_array_equal(picture, expected)


# Tensors.


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_tensors_between_libraries(run: Run, library: str) -> None:
    if library == "torch" and "torch" not in sys.modules and gpu.backend() != "cuda":
        pytest.skip("importing PyTorch takes seconds: only where another test has done so, and on a GPU")
    printed = run("tensor_interop", "--library", library).printed
    assert [line for line in printed if line.startswith("(3, 4)")] == [
        f"(3, 4) float32 {2 * count + 1:.1f} {2 * count + 1:.1f} {count}" for count in (1, 2, 3)
    ]


# Configuration.


def test_another_configuration_by_the_command_line(run: Run, tmp_path: Path) -> None:
    text = (PROGRAMS / "video_replayer.yaml").read_text().replace("count: 0 ", "count: 2 ")
    (tmp_path / "other.yaml").write_text(text)
    picture = run("video_replayer", "--config", tmp_path / "other.yaml").picture()
    np.testing.assert_array_equal(picture, data.frame(1))


# Clips.


def test_video_replayer(run: Run) -> None:
    np.testing.assert_array_equal(run("video_replayer").picture(), data.frame(LAST))


def test_a_clip_that_is_not_there(run: Run, tmp_path: Path) -> None:
    ended = run("video_replayer", status=1, HOLOSCAN_INPUT_PATH=tmp_path / "nowhere")
    assert "Could not find video data: replayer_args['directory']=" in ended.errors


def test_recorder_and_replayer(run: Run) -> None:
    files, *shown = run("recorder_round_trip").printed
    assert ast.literal_eval(files) == ["clip.gxf_entities", "clip.gxf_index"]
    assert [line.rpartition(" ")[0] or line for line in shown] == ["(4, 6, 3)"] * 6 or all(
        line.startswith("(4, 6, 3)") for line in shown
    )
    assert len(shown) == 6


@pytest.mark.parametrize("record", ["none", "input", "visualizer"])
def test_endoscopy_tool_tracking(run: Run, record: str, tmp_path: Path) -> None:
    ended = run("endoscopy_tool_tracking", "--record_type", record)
    numbers = [number % data.FRAMES for number in range(8)]
    assert ended.printed == [
        f"frame {count}: tool at {(data.corner(number) + 4) / data.COLUMNS:.3f}, 0.500"
        for count, number in enumerate(numbers, 1)
    ]
    picture = ended.picture()
    assert picture[0, -1].tolist() == [10 * numbers[-1]] * 3
    rows, columns = square(numbers[-1])
    inside = picture[rows, columns].reshape(-1, 3)
    assert [0, 255, 0] in inside.tolist()  # the mask
    assert (inside[:, 0] > 0).any()  # the cross, or its label, over it
    assert "enable_fp16_" in ended.errors
    if record != "none":
        with EntityReader(tmp_path, "tensor") as reader:
            (first, *_), count = [list(reader)], len(reader)
        tensor = next(iter(first[0].tensors.values()))
        assert tensor.shape == (data.ROWS, data.COLUMNS, 3)
        assert count == 8
        if record == "input":
            np.testing.assert_array_equal(tensor, data.frame(0))


@pytest.mark.usefixtures("models")
def test_ultrasound_segmentation(run: Run) -> None:
    assert_a_frame_with_its_square(run("ultrasound_segmentation").picture(), [0, 255, 0])


@pytest.mark.usefixtures("models")
def test_bring_your_own_model(run: Run) -> None:
    assert_a_frame_with_its_square(run("byom").picture(), [255, 0, 0])


@pytest.mark.usefixtures("models")
def test_the_folder_of_the_data_as_an_argument(run: Run, samples: Path) -> None:
    ended = run("byom", "--data", samples, HOLOSCAN_INPUT_PATH="/nowhere")
    assert ended.picture().shape == (data.ROWS, data.COLUMNS, 3)


@pytest.mark.usefixtures("models")
def test_body_pose_estimation(run: Run) -> None:
    ended = run("body_pose_estimation", "--source", "replayer")
    assert ended.printed == ["1 people, nose at [16.0, 10.0]"] * 2
    picture = ended.picture()
    assert picture[10, 16, 2] > 100  # the line that begins at the nose
    assert picture[8, 13].tolist() == [255, 0, 0]  # the box


@pytest.mark.usefixtures("models")
def test_two_networks_in_one_operator(run: Run) -> None:
    ended = run("multiai")
    picture = ended.picture()
    # The first pixel of the square scores most. The operator gives its row first; HolovizOp takes x first.
    row, column = data.SIDE / data.ROWS, data.corner(LAST) / data.COLUMNS
    assert picture[round(column * data.ROWS), int(row * data.COLUMNS)].tolist() == [255, 0, 0]
    assert picture[0, 0].tolist() == [10 * LAST] * 3


def test_shapes_that_change_at_run_time(run: Run) -> None:
    picture = run("holoviz_geometry").picture()
    assert picture[6, 16].tolist() == [
        0,
        255,
        0,
    ]  # an edge of the rectangle, in the colour of the third frame
    assert picture[:8, :16].min(axis=2).max() > 100  # the label, in its part of the window
    assert picture[12, 16].tolist() == [0, 0, 0]


# Cameras.


@pytest.mark.parametrize("program", ["v4l2_camera", "body_pose_estimation"])
def test_a_camera_that_is_not_there(run: Run, program: str) -> None:
    ended = run(program, status=1)
    assert "headrace run: CameraError: there is no camera /dev/video97; " in ended.errors


# Measuring.


def test_flow_tracker(run: Run, tmp_path: Path) -> None:
    printed = run("flow_tracker", "times.log").printed
    assert "tx,rx 25 True" in printed
    assert "{'tx->out': 30}" in printed
    assert "Data Flow Tracking Results:" in printed
    log = (tmp_path / "times.log").read_text()
    assert len(re.findall(r"^\(tx,\d+,\d+\) -> \(rx,\d+,\d+\) $", log, re.MULTILINE)) == 30


# On top of it.


def test_monai_deploy(run: Run, tmp_path: Path) -> None:
    """The picture is the SDK's, byte for byte: recorded by running the program on it.

    To run the MONAI Deploy App SDK itself: ``pip install --no-deps monai-deploy-app-sdk``, and ``pip install
    'tritonclient[http,grpc]' typeguard colorama``; it asks for the Holoscan SDK, which must not be installed.
    """
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "input").mkdir()
    image.fromarray(data.frame(3)).save(tmp_path / "input" / "frame.png")
    paths = {"HOLOSCAN_INPUT_PATH": tmp_path / "input", "HOLOSCAN_OUTPUT_PATH": tmp_path / "output"}
    ended = run("monai_imaging", **paths)
    assert (tmp_path / "output" / "final_output.ppm").read_bytes() == (
        PROGRAMS / "monai_imaging.ppm"
    ).read_bytes()
    assert [line for line in ended.printed if line.startswith("Number")] == [
        f"Number of times operator {name}_op was called: 1" for name in ("sobel", "median", "gaussian")
    ]
    assert ended.printed[-1] == "simple_imaging_app This is a very simple application. 0.1.0"


# Streams and parts of the GPU.


@pytest.mark.parametrize("option", [[], ["--green_context"], ["--default_stream"]], ids=" ".join)
def test_green_context_two_sources(run: Run, option: list[str]) -> None:
    printed = run("cuda_green_context", *option, "--count", 4).printed
    assert printed.count("right: True") == 4
    assert ("0 stream" if option == ["--default_stream"] else "1 stream") in printed


def test_the_snippets_of_the_page_on_streams(run: Run) -> None:
    printed = run("stream_handling").printed
    assert printed == [f"sum {3 * number + 1} {3 * number + 1}" for number in range(5)]
