"""Pictures as files: PNG exactly, JPEG and MP4 within a tolerance."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from headrace.lazy import import_or_explain
from headrace.viewer import write_png
from headrace.viewer.display import Picture, Scene
from headrace.viewer.outlets import VideoOutlet
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


def picture(value: int, number: int, time: float) -> Picture:
    return Picture(number, np.full((48, 64, 4), value, np.uint8), Scene([], {}, time=time))


def test_a_video_shows_each_picture_at_the_time_of_its_frame(tmp_path: Path) -> None:
    """Ten frames a second for two seconds are two seconds, whatever the most pictures a second."""
    av = pytest.importorskip("av")
    outlet = VideoOutlet(str(tmp_path / "it.mp4"), 60.0)
    for number in range(20):
        outlet.show(picture(10 * number, number, 5 + number / 10), False)
        outlet.show(picture(10 * number, number, 5 + number / 10), True)  # once more, as a still: not a frame
    outlet.close()
    with av.open(str(tmp_path / "it.mp4")) as container:
        assert container.duration / 1e6 == pytest.approx(1.9, abs=0.05)
        frames = [
            (frame.time, frame.to_ndarray(format="rgb24").mean()) for frame in container.decode(video=0)
        ]
    assert [time for time, _ in frames] == pytest.approx([number / 10 for number in range(20)], abs=1e-3)
    assert [level for _, level in frames] == pytest.approx([10 * number for number in range(20)], abs=3)


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(ImportError, match=r"no_such_library is needed to see: pip install '[.a-z]+\[view\]'"):
        import_or_explain("no_such_library.part", "view", "to see")
