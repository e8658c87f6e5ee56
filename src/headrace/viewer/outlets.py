"""Outlets that write files: the newest picture as PNG, or all as a video."""

from __future__ import annotations

from pathlib import Path

from headrace.video import VideoWriter
from headrace.viewer.display import Outlet, Picture
from headrace.viewer.pictures import write_png


class PngOutlet(Outlet):
    """Keeps the newest picture in a PNG file, written when none has come for a while and at the end."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __str__(self) -> str:
        return repr(str(self._path))

    def show(self, picture: Picture, is_still: bool) -> None:
        """Write a picture that will be looked at."""
        if is_still:
            write_png(self._path, picture.pixels)


class VideoOutlet(Outlet):
    """Writes every picture that is drawn to an MP4 file, each at the time of its frame by the run's clock."""

    def __init__(self, path: str, frame_rate: float) -> None:
        self._writer = VideoWriter(path, frame_rate, preset="veryfast")
        self._last = -1

    def __str__(self) -> str:
        return repr(str(self._writer.path))

    def show(self, picture: Picture, is_still: bool) -> None:
        """Write a picture, once."""
        if picture.number != self._last:
            self._last = picture.number
            self._writer.write(picture.pixels, picture.scene.time)

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
