"""Clips: a video file or another recording, as a sequence of messages with times."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace.video.files import UNKNOWN_INTERVAL, VideoReader


@dataclass(slots=True)
class ClipFrame:
    """One message of a clip.

    Attributes
    ----------
    tensors
        NumPy arrays by name; that of a video file is named "" and is RGB, uint8, (height, width, 3).
    time
        When it is due, in nanoseconds after the first.
    acq_timestamp
        When it was acquired: the recorded time, in nanoseconds since the epoch; in a video file, the time of its
        first frame if the file has that, and the time since.
    storage_types
        The memory that each tensor was recorded from: 0 pinned host, 1 device, 2 system, 3 managed.
    """

    tensors: dict[str, np.ndarray[Any, Any]]
    time: int
    acq_timestamp: int
    storage_types: dict[str, int] = field(default_factory=dict)


class Clip:
    """A video file, or a recording in a format of its own, whose class derives from this one.

    Attributes
    ----------
    path
        Its file.
    interval
        How long its last frame is shown before it starts over, in nanoseconds; known once it has been played.
    """

    path: Path
    interval: int = UNKNOWN_INTERVAL

    def frames(self) -> Generator[ClipFrame, None, None]:
        """Read the frames, from the beginning."""
        raise NotImplementedError


class VideoClip(Clip):
    """A video file."""

    def __init__(self, path: Path, reader: VideoReader) -> None:
        self.path = path
        self._reader = reader

    def frames(self) -> Generator[ClipFrame, None, None]:
        """Read the frames, from the beginning."""
        count = last = 0
        for count, frame in enumerate(self._reader.frames(), 1):  # noqa: B007
            last = frame.time
            yield ClipFrame({"": frame.pixels}, last, last + (self._reader.start or 0))
        if count > 1:
            self.interval = last // (count - 1)
        elif self._reader.rate:
            self.interval = round(1e9 / self._reader.rate)


def play(clip: Clip, *, repeat: bool = False, count: int = 0) -> Generator[ClipFrame, None, None]:
    """Read the frames of a clip, over and over with `repeat`, at most `count` of them unless it is 0.

    Their times go on from round to round: the first frame follows the last after one interval.
    """
    start = played = 0
    while True:
        last = -1
        for frame in clip.frames():
            last = frame.time
            frame.time += start
            yield frame
            played += 1
            if played == count:
                return
        if not repeat or last < 0:
            return
        start += last + clip.interval
