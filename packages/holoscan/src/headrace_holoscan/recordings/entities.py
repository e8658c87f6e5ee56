"""Recordings as a pair of files, ``.gxf_index`` and ``.gxf_entities``: a reader and a writer.

A recording must survive the end of its writer at any byte. So the writer uses no buffers of its own: an entity is
handed to the operating system before its line of the index. The reader takes neither file as complete. It uses the
lines of the index whose entities are there; behind those it walks through the entities themselves, whose headers
say how long they are. An entity without a line in the index has no time: it is placed after the last one, at the
mean distance of those before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from headrace.video import Clip, VideoFileError
from headrace_holoscan.recordings.entity_format import INDEX_ENTRY, Entity, encode_entity, parse_entity

# The distance of frames where a recording says nothing about it.
UNKNOWN_INTERVAL = Clip.interval


def entity_files(directory: str | Path, basename: str) -> tuple[Path, Path]:
    """Return the paths of the index and of the entities of a recording."""
    folder = Path(directory).expanduser()
    return folder / f"{basename}.gxf_index", folder / f"{basename}.gxf_entities"


class EntityReader(Sequence[Entity], AbstractContextManager["EntityReader"]):
    """A recording as a sequence of entities, each read when it is asked for.

    Both files are needed; each may be shorter than the other. An entity that cannot be read raises
    :class:`VideoFileError` where it is asked for, and those around it can be read.

    Parameters
    ----------
    directory, basename
        The folder of the pair of files, and their name without the extension.

    Attributes
    ----------
    times
        When each entity was recorded, in nanoseconds since the epoch.
    problems
        The problems at the end of the files, in words: an entity that was cut off, lines of the index without
        entities, entities without lines.
    recovered
        The number of entities that had no line in the index.
    """

    def __init__(self, directory: str | Path, basename: str) -> None:
        self.index_path, self.entities_path = entity_files(directory, basename)
        self.times: list[int] = []
        self.problems: list[str] = []
        self.recovered = 0
        self._places: list[tuple[int, int]] = []
        for path, other in ((self.index_path, self.entities_path), (self.entities_path, self.index_path)):
            if not path.is_file():
                raise VideoFileError(
                    f"there is no file {path}"
                    + (f", only {other.name}: a recording is both files" if other.is_file() else "")
                )
        self._file = self.entities_path.open("rb", buffering=0)
        try:
            self._find()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(len(self))[number]]
        number = range(len(self))[number]
        offset, size = self._places[number]
        where = self._where(number)
        entity, end = parse_entity(self._read, offset, offset + size, where)
        if end != offset + size:
            raise VideoFileError(
                f"{where}, byte {end}: expected the end of the entity at byte {offset + size}, as "
                f"{self.index_path.name} says, and it ends here"
            )
        entity.log_time = self.times[number]
        return entity

    @property
    def interval(self) -> int:
        """The mean time between entities in nanoseconds; that of 30 a second where there are fewer than two."""
        return _mean_interval(self.times)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<EntityReader of {len(self)} entities in {self.entities_path}>"

    def _find(self) -> None:
        """Find the place and the time of each entity."""
        length = os.fstat(self._file.fileno()).st_size
        index = self.index_path.read_bytes()
        lines, rest = divmod(len(index), INDEX_ENTRY.size)
        if rest:
            self.problems.append(
                f"{self.index_path}: expected {INDEX_ENTRY.size} bytes for each entity, found {rest} more at the "
                f"end, byte {len(index) - rest}"
            )
        end = 0
        missing: list[int] = []
        for number in range(lines):
            time, size, offset = INDEX_ENTRY.unpack_from(index, number * INDEX_ENTRY.size)
            if offset + size <= length:
                self._add(time, offset, size)
                end = max(end, offset + size)
            else:
                missing.append(number)
        self._walk(end, length)
        if missing:
            self.problems.append(
                f"{self.index_path}, entity {missing[0]}, byte {missing[0] * INDEX_ENTRY.size}: it names an entity "
                f"that is not, or not all, within the {length} bytes of {self.entities_path.name}"
                + (f", and so do {len(missing) - 1} others" if missing[1:] else "")
            )

    def _walk(self, offset: int, length: int) -> None:
        """Find the entities behind those of the index."""
        while offset < length:
            try:
                _, end = parse_entity(self._read, offset, length, self._where(len(self)), wanted=False)
            except VideoFileError as error:
                self.problems.append(str(error))
                break
            time = self.times[-1] + _mean_interval(self.times) if self.times else 0
            self._add(time, offset, end - offset)
            self.recovered += 1
            offset = end
        if self.recovered:
            self.problems.append(
                f"{self.index_path}: the last {self.recovered} entities of {self.entities_path.name} are not in "
                "it, so their times are estimates"
            )

    def _add(self, time: int, offset: int, size: int) -> None:
        self.times.append(time)
        self._places.append((offset, size))

    def _where(self, number: int) -> str:
        return f"{self.entities_path}, entity {number}"

    def _read(self, offset: int, size: int) -> Any:
        self._file.seek(offset)
        return np.fromfile(self._file, np.uint8, size)  # not bytes: a program may write to what it received


def _mean_interval(times: list[int]) -> int:
    if len(times) < 2 or times[-1] <= times[0]:
        return UNKNOWN_INTERVAL
    return (times[-1] - times[0]) // (len(times) - 1)


class EntityWriter(AbstractContextManager["EntityWriter"]):
    """Writes a recording. Files of the same name are replaced.

    Each entity is with the operating system when `write` returns, so it survives the end of the process, whatever
    ends it.

    Parameters
    ----------
    directory, basename
        The folder of the pair of files, which is created if there is none, and their name without the extension.
    flush
        Whether each entity is on the disk when `write` returns, so that it survives the loss of power, too. This
        takes milliseconds.
    """

    def __init__(self, directory: str | Path, basename: str, *, flush: bool = False) -> None:
        self.index_path, self.entities_path = entity_files(directory, basename)
        self.flush = flush
        self._count = 0
        self._offset = 0
        self._files: list[FileIO] = []
        try:
            self.index_path.parent.mkdir(parents=True, exist_ok=True)
            for path in (self.entities_path, self.index_path):
                self._files.append(FileIO(path, "w"))
        except OSError as error:
            self.close()
            raise VideoFileError(f"a recording cannot be written to {self.entities_path}: {error}") from error

    def __len__(self) -> int:
        return self._count

    def write(
        self,
        tensors: Mapping[str, Any],
        log_time: int,
        storage_types: Mapping[str, int] | None = None,
        acq_timestamp: int | None = None,
    ) -> None:
        """Write one entity.

        Parameters
        ----------
        tensors
            Arrays in host memory, by name.
        log_time
            Its time, in nanoseconds since the epoch.
        storage_types
            The memory that each tensor was in: 0 pinned host, 1 device, 2 system (the default), 3 managed.
        acq_timestamp
            When its data was acquired, in nanoseconds; None writes no such time.

        Raises
        ------
        TypeError, ValueError
            For what the files cannot hold; nothing of it is written.
        VideoFileError
            If the system does not take it; the entities before it can be read.
        """
        if not self._files:
            raise ValueError(f"the recording {self.entities_path} has been closed")
        parts = encode_entity(tensors, self._count, storage_types, acq_timestamp)
        size = sum(len(part) for part in parts)
        if not 0 <= log_time < 1 << 64:
            raise ValueError(f"the time of an entity must be 0 or more and fit into 64 bits, not {log_time}")
        line = INDEX_ENTRY.pack(log_time, size, self._offset)
        try:
            for file, content in zip(self._files, (parts, [line]), strict=True):
                _write(file, content)
                if self.flush:
                    os.fdatasync(file)
        except OSError as error:
            self._undo()
            raise VideoFileError(
                f"entity {self._count} ({size} bytes) cannot be written to {self.entities_path}: {error}; the "
                f"{self._count} before it can be read"
            ) from error
        self._offset += size
        self._count += 1

    def _undo(self) -> None:
        """Remove what was written of an entity that does not fit."""
        ends = (self._offset, self._count * INDEX_ENTRY.size)
        for file, end in zip(self._files, ends, strict=True):
            try:
                file.truncate(end)
                file.seek(end)
            except OSError:  # the reader finds the end by itself
                continue

    def close(self) -> None:
        """Close the files."""
        while self._files:
            self._files.pop().close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _write(file: FileIO, parts: list[Any]) -> None:
    """Write buffers, all of them, whatever part of them the system takes at once."""
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(file.fileno(), left) :]
