"""Pictures as files: PNG exactly, JPEG and MP4 within a tolerance."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from headrace.lazy import import_or_explain
from headrace.viewer import VideoWriter, write_png
from headrace.viewer.pictures import encode_jpeg, encode_png


def gradient(rows: int = 64, columns: int = 96, shift: int = 0) -> np.ndarray:
    y, x = np.mgrid[0:rows, 0:columns]
    return (
        np.stack([x * 2 + shift, y * 3, 255 - x, np.full_like(x, 255)], axis=-1).clip(0, 255).astype(np.uint8)
    )


def test_a_png_file_holds_the_picture_exactly(tmp_path: Path) -> None:
    from PIL import Image

    write_png(tmp_path / "it.png", gradient())
    with Image.open(tmp_path / "it.png") as image:
        assert (np.asarray(image.convert("RGBA")) == gradient()).all()
    assert [file.name for file in tmp_path.iterdir()] == ["it.png"], "no other file is left behind"


def test_a_jpeg_picture_differs_by_little() -> None:
    from PIL import Image

    with Image.open(io.BytesIO(encode_jpeg(gradient()))) as image:
        difference = np.abs(np.asarray(image).astype(int) - gradient()[..., :3])
    assert difference.mean() < 2
    assert difference.max() < 24
    assert encode_png(gradient()).startswith(b"\x89PNG")


def test_a_video_holds_every_picture_at_its_rate(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with VideoWriter(tmp_path / "it.mp4", 25) as video:
        for number in range(6):
            video.write(gradient(shift=10 * number))
    assert video.count == 6
    with av.open(str(tmp_path / "it.mp4")) as container:
        stream = container.streams.video[0]
        assert float(stream.average_rate) == 25
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 6
    for number, frame in enumerate(frames):
        assert np.abs(frame.astype(int) - gradient(shift=10 * number)[..., :3]).mean() < 6


def test_an_odd_picture_loses_its_last_row_and_column(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with VideoWriter(tmp_path / "it.mp4") as video:
        video.write(gradient(33, 47))
    with av.open(str(tmp_path / "it.mp4")) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (46, 32)


def test_a_video_refuses_pictures_of_another_size_and_rates_of_nothing(tmp_path: Path) -> None:
    pytest.importorskip("av")
    with VideoWriter(tmp_path / "it.mp4") as video:
        video.write(gradient())
        with pytest.raises(ValueError, match="one size, 96 by 64, and this one is 47 by 33"):
            video.write(gradient(33, 47))
    with pytest.raises(ValueError, match="frame_rate must be greater than 0"):
        VideoWriter(tmp_path / "it.mp4", 0)


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(ImportError, match=r"no_such_library is needed to see: pip install '\.\[view\]'"):
        import_or_explain("no_such_library.part", "view", "to see")
