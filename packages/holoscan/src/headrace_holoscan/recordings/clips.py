"""Clips by folder and name: a recording in the SDK's format, or else a video file."""

from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path

from headrace.video import Clip, ClipFrame, VideoClip, VideoFileError, VideoReader
from headrace_holoscan.recordings.entities import EntityReader, entity_files

_logger = logging.getLogger("headrace.video")

# The video files that a name without an extension may stand for, beside a recording.
VIDEO_EXTENSIONS = (
    ".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".wmv", ".flv", ".ogv", ".gif",
    ".y4m", ".264", ".h264", ".265", ".h265", ".mjpeg",
)  # fmt: skip


class _Recording(Clip):
    """A pair of files; its path is that of the entities."""

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
