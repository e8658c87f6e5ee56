"""What OpenCV, NumPy and PyAV make of the same files and pictures."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.testing import run_operator
from headrace_holoscan.ready import InferenceProcessorOp, VideoStreamRecorderOp, VideoStreamReplayerOp
from tests.operators.cases import random


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 1 << 30))
@settings(max_examples=20, deadline=None)
def test_an_equalized_picture_is_that_of_opencv(rows: int, columns: int, seed: int) -> None:
    """OpenCV rounds what ours cuts off."""
    cv2 = pytest.importorskip("cv2")
    levels = random(np.uint8, 1, rows, columns, seed=seed)
    levels[0, 0, 0], levels[0, -1, -1] = 0, 255  # so that a value is its own level
    (message,) = run_operator(
        InferenceProcessorOp,
        inputs={"receivers": [[{"p": levels.astype(np.float32)}]]},
        process_operations={"p": ["scale_intensity_cpu"]},
        processed_map={"p": ["picture"]},
    )["transmitter"]
    picture = np.asarray(message["picture"])
    if levels.size > 1:
        assert np.abs(picture[..., 0].astype(int) - cv2.equalizeHist(levels[0])).max() <= 1


def test_a_video_file_of_pyav_is_played_as_pyav_decodes_it(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    frames = [random(np.uint8, 30, 40, 3, seed=seed) for seed in range(5)]
    with av.open(str(tmp_path / "clip.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 40, 30, "bgr0"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    played = run_operator(VideoStreamReplayerOp, directory=str(tmp_path), basename="clip", realtime=False)
    for frame, message in zip(frames, played["output"], strict=True):
        np.testing.assert_array_equal(np.asarray(message[""]), frame)


@given(
    st.lists(st.integers(0, 6), max_size=4), st.sampled_from(["u1", "i2", "u4", "i8", "f4", "f8"]), st.text()
)
@settings(max_examples=8, deadline=None)
def test_a_recording_is_that_of_a_structured_type_of_numpy(shape: list[int], dtype: str, name: str) -> None:
    """NumPy reads the file with a type that is written out from the table of the format."""
    if not name.isprintable():
        name = "frame"
    array = random(np.float32, *shape).astype(np.dtype(f"<{dtype}"))
    title = name.encode()
    layout = np.dtype([
        ("size", "<u8"), ("checksum", "<u4"), ("number", "<u8"), ("flags", "<u4"), ("components", "<u8"),
        ("reserved", "<u8"), ("component_size", "<u8"), ("kind", "<u8", 2), ("name_size", "<u8"),
        ("name", "u1", len(title)), ("storage", "<i4"), ("element", "<i4"), ("item", "<u8"), ("rank", "<u4"),
        ("dims", "<i4", 8), ("strides", "<u8", 8), ("data", f"<{dtype}", array.shape),
    ])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run_operator(VideoStreamRecorderOp, inputs=[{name: array}] * 2, directory=folder, basename="clip")
        read = np.fromfile(f"{folder}/clip.gxf_entities", layout)
    assert read["number"].tolist() == [0, 1]
    assert read["components"].tolist() == [1, 1]
    for entity in read:
        assert entity["name"].tobytes() == title
        assert entity["item"] == array.itemsize
        assert entity["rank"] == max(array.ndim, 1)  # a scalar is one element
        assert entity["dims"][: array.ndim].tolist() == list(array.shape)
        np.testing.assert_array_equal(entity["data"], array)
