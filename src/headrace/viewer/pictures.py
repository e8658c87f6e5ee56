"""Pictures as files: JPEG for the page, PNG, and MP4 video."""

from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain

__all__ = ["VideoWriter", "encode_jpeg", "encode_png", "write_png"]


def encode_jpeg(picture: np.ndarray, quality: int = 90) -> bytes:
    """Return a picture, (rows, columns, 4) of uint8, as a JPEG file."""
    return _encoded(picture, "JPEG", quality=quality)


def encode_png(picture: np.ndarray) -> bytes:
    """Return a picture, (rows, columns, 4) of uint8, as a PNG file: exactly, and opaque."""
    return _encoded(picture, "PNG", compress_level=1)


def _encoded(picture: np.ndarray, kind: str, **options: Any) -> bytes:
    pillow = import_or_explain("PIL.Image", "view", f"to write {kind} files")
    rows, columns = picture.shape[:2]
    # As RGBX the memory is used as it lies; as RGB it would be copied first.
    image = pillow.frombuffer("RGBX", (columns, rows), np.ascontiguousarray(picture), "raw", "RGBX", 0, 1)
    if kind == "PNG":
        image = image.convert("RGB")
    # A file that the system knows: Pillow then encodes without the GIL. With BytesIO it holds the GIL all along,
    # and another thread waits 10 ms, the median, for each picture of 1080p; with this one 0.1 ms.
    with _memory_file() as file:
        image.save(file, kind, **options)
        file.seek(0)
        encoded: bytes = file.read()
        return encoded


def _memory_file() -> Any:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("picture"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def write_png(path: str | os.PathLike[str], picture: np.ndarray) -> None:
    """Write a picture, (rows, columns, 4) of uint8, to a PNG file.

    The file is written under another name first, so that a reader never finds half of it.
    """
    path = Path(path)
    other = path.with_name(f".{path.name}.{os.getpid()}")
    other.write_bytes(encode_png(picture))
    other.replace(path)


class VideoWriter:
    """Writes pictures to an MP4 file (H.264, 4:2:0); use it in a ``with`` statement.

    Parameters
    ----------
    path
        The file.
    frame_rate
        Pictures a second.
    quality
        The constant rate factor of the encoder: 0 is nearly exact, 23 usual, 51 the worst.
    """

    def __init__(self, path: str | os.PathLike[str], frame_rate: float = 60.0, quality: int = 18) -> None:
        if not frame_rate > 0:
            raise ValueError(f"frame_rate must be greater than 0, not {frame_rate!r}")
        self._av = import_or_explain("av", "video", "to write MP4 files")
        self._container = self._av.open(os.fspath(path), "w", format="mp4")
        self._rate = Fraction(frame_rate).limit_denominator(1001)
        self._quality = quality
        self._stream: Any = None
        self._size = (0, 0)
        self.count = 0
        """The number of pictures written."""

    def write(self, picture: np.ndarray) -> None:
        """Append a picture, (rows, columns, 3 or 4) of uint8; all must have the same size."""
        rows, columns = picture.shape[:2]
        if self._stream is None:
            self._size = (rows, columns)
            self._stream = self._container.add_stream("libx264", rate=self._rate)
            # Half the chroma needs even sizes; an odd picture loses its last row or column.
            self._stream.width, self._stream.height = columns - columns % 2, rows - rows % 2
            if not self._stream.width or not self._stream.height:
                raise ValueError(
                    f"a video needs at least 2 by 2 pixels, and the picture has {columns} by {rows}"
                )
            self._stream.pix_fmt = "yuv420p"
            self._stream.options = {"crf": str(self._quality), "preset": "veryfast"}
        elif (rows, columns) != self._size:
            raise ValueError(
                f"the pictures of a video have one size, {self._size[1]} by {self._size[0]}, "
                f"and this one is {columns} by {rows}"
            )
        even = picture[: self._stream.height, : self._stream.width, :3]
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
        frame.pts, frame.time_base = self.count, 1 / self._rate
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        self.count += 1

    def close(self) -> None:
        """Finish the file."""
        if self._container is None:
            return
        container, self._container = self._container, None
        try:
            if self._stream is not None:
                for packet in self._stream.encode():
                    container.mux(packet)
        finally:
            container.close()

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
