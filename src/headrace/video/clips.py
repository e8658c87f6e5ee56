"""Clips: a recording or a video file, found by folder and name, as a sequence of messages with times."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace.video.entities import UNKNOWN_INTERVAL, EntityReader, entity_files
from headrace.video.errors import VideoFileError
from headrace.video.files import VideoReader

_logger = logging.getLogger("headrace.video")

# The video files that a name without an extension may stand for, beside a recording.
VIDEO_EXTENSIONS = (
    ".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".wmv", ".flv", ".ogv", ".gif",
    ".y4m", ".264", ".h264", ".265", ".h265", ".mjpeg",
)  # fmt: skip


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
    """A recording or a video file.

    Attributes
    ----------
    path
        Its file; of a recording, that of the entities.
    interval
        How long its last frame is shown before it starts over, in nanoseconds; known once it has been played.
    """

    path: Path
    interval: int = UNKNOWN_INTERVAL

    def frames(self) -> Generator[ClipFrame, None, None]:
        """Read the frames, from the beginning."""
        raise NotImplementedError


class _Recording(Clip):
    def __init__(self, directory: Path, basename: str, ignore_corrupted: bool) -> None:
        self._place = directory, basename
        self._ignore_corrupted = ignore_corrupted
        with EntityReader(*self._place) as reader:
            self.path = reader.entities_path
            if not len(reader) and reader.problems:
                raise VideoFileError(
                    f"{self.path} has no entity that can be read. {'. '.join(reader.problems)}"
                )
            problems = reader.problems
            if not len(reader):  # perhaps nothing was recorded; perhaps the files have lost what they held
                problems = [f"{self.path} and {reader.index_path.name} are empty: there is nothing to play"]
                if not ignore_corrupted:
                    raise VideoFileError(problems[0])
            for problem in problems if ignore_corrupted else ():
                _logger.warning("%s", problem)

    def frames(self) -> Generator[ClipFrame, None, None]:
        with EntityReader(*self._place) as reader:
            self.interval = reader.interval
            last, first, problem = -1, reader.times[0] if reader.times else 0, None
            for number, recorded in enumerate(reader.times):
                try:
                    entity = reader[number]
                except VideoFileError as error:
                    if not self._ignore_corrupted:
                        raise
                    problem = problem or error
                    _logger.warning("skipped an entity: %s", error)
                    continue
                # A clock that was set back while recording must not stop the clip.
                last = max(recorded - first, last)
                acquired = entity.log_time if entity.acq_timestamp is None else entity.acq_timestamp
                yield ClipFrame(entity.tensors, last, acquired, entity.storage_types)
            if last < 0 and problem is not None:
                raise VideoFileError(f"{self.path} has no entity that can be read. {problem}")
            if reader.problems and not self._ignore_corrupted:
                raise VideoFileError(". ".join(reader.problems))


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


def _video_file(path: Path, ignore_corrupted: bool) -> Clip:
    return VideoClip(path, VideoReader(path, ignore_corrupted=ignore_corrupted))


def open_clip(directory: str | Path, basename: str, *, ignore_corrupted: bool = True) -> Clip:
    """Find and check a clip: the recording of this name, or else the video file.

    Parameters
    ----------
    directory
        The folder.
    basename
        The name: of a recording without an extension, of a video file with or without.
    ignore_corrupted
        Whether to skip what cannot be read, with a warning; otherwise it raises :class:`VideoFileError`.
    """
    folder = Path(directory).expanduser()
    if not folder.is_dir():
        raise VideoFileError(f"there is no folder {folder}")
    if not basename:
        raise VideoFileError(f"the name of a clip in {folder} must not be empty")
    basename = basename.removesuffix(".gxf_index").removesuffix(".gxf_entities")
    if any(path.exists() for path in entity_files(folder, basename)):
        return _Recording(folder, basename, ignore_corrupted)
    if (folder / basename).is_file():
        return _video_file(folder / basename, ignore_corrupted)
    stem = (folder / basename).name
    around = sorted((folder / basename).parent.glob("*")) if (folder / basename).parent.is_dir() else []
    found = [path for path in around if path.stem == stem and path.suffix.lower() in VIDEO_EXTENSIONS]
    if len(found) == 1:
        return _video_file(found[0], ignore_corrupted)
    if found:
        names = ", ".join(path.name for path in found)
        raise VideoFileError(
            f"{folder} has several videos named {basename!r}: {names}. Name one with its extension"
        )
    names = ", ".join(path.name for path in around[:20] if path.is_file()) or "none"
    raise VideoFileError(
        f"{folder} has neither a recording {basename}.gxf_index and {basename}.gxf_entities nor a video file "
        f"{basename!r}, with or without an extension; its files are: {names}"
    )


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
