"""TraceFile: a file of trace events that can be opened however its writing ends, and the tracks that it shows.

The format is Chrome's JSON array of events, which Perfetto and other viewers open. The closing bracket may be
missing. Events are written one a line, and nothing stays in a buffer. A process that is killed leaves a file that
ends after an event, or within one in the rare case that it is killed while the system copies it: Perfetto reads
it up to there. A compressed file ends with the last complete block.

A viewer groups tracks by process. Here the first group is the host with a track for each thread; then each slice of
each device with a track for each stream; then the paths, the queues and the messages in flight.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Hashable
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.observe.events.records import OperatorInfo, RunInfo, StreamInfo

_FIRST_SLICE = 10
_LAST = 1 << 20  # a place after all others
_WAITING = 1 << 18  # characters that wait at most to be written


class TraceFile:
    """Writes trace events, as text in JSON.

    Parameters
    ----------
    path
        The file, compressed if its name ends with ``.gz``. An existing file is overwritten.
    """

    def __init__(self, path: Path) -> None:
        self._file: Any = (
            gzip.GzipFile(path, "wb", 4, mtime=0) if path.name.endswith(".gz") else open(path, "wb")  # noqa: SIM115
        )
        self._waiting: list[str] = []
        self._length = 0
        self._separator = "[\n"

    def add(self, *events: str) -> None:
        """Add events."""
        self._waiting += events
        self._length += sum(map(len, events))
        if self._length > _WAITING:
            self.write()

    def write(self) -> None:
        """Write the events that wait."""
        if not self._waiting:
            return
        text = self._separator + ",\n".join(self._waiting)
        self._separator = ",\n"
        self._waiting.clear()
        self._length = 0
        self._put(text)

    def close(self) -> None:
        """Write what waits and close the file."""
        try:
            self.write()
            self._put("\n]\n")
        finally:
            self._file.close()  # also if the disk is full

    def _put(self, text: str) -> None:
        # A lone surrogate, as in the name of a file that is not UTF-8, becomes an escape of JSON.
        self._file.write(text.encode(errors="backslashreplace"))
        self._file.flush()


class Group(IntEnum):
    """The groups of tracks that every trace has; slices of devices come between the host and the others."""

    HOST = 1
    PATHS = 2
    QUEUES = 3
    IN_FLIGHT = 4


class Tracks:
    """Numbers and names the tracks of a trace, as they are needed.

    Attributes
    ----------
    threads
        The names of the threads that have a track.
    """

    def __init__(self, file: TraceFile, run: RunInfo) -> None:
        self._file = file
        self._run = run
        self.threads: dict[int, str] = {}
        self._groups: dict[tuple[int, str], int] = {}
        self._tracks: dict[Hashable, int] = {}
        titles = ("host", "paths, from origin to end", "messages in queues", "messages in use")
        for group, title in zip(Group, titles, strict=True):
            order = 0 if group is Group.HOST else _LAST + group
            self._name("process", group, group, f"{run.application}: {title}", order)

    def thread(self, ident: int) -> str:
        """Return the place of a thread's events."""
        if self._run.threads:
            return self._thread_elsewhere(ident)
        if ident not in self.threads:
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            self.threads[ident] = names.get(ident) or f"worker {ident}"
        return place(Group.HOST, self._track(ident, Group.HOST, self.threads[ident]))

    def _thread_elsewhere(self, ident: int) -> str:
        """Return the place of the events of a thread in the process of a part."""
        part, name = self._run.threads.get(ident, ("", f"worker {ident}"))
        self.threads.setdefault(ident, f"{part}, {name}")
        group = self._groups.get((-1, part))
        if group is None:
            group = self._groups[-1, part] = _FIRST_SLICE + len(self._groups)
            self._name("process", group, group, f"{self._run.application}: {part}", 1 + len(self._groups))
        return place(group, self._track(ident, group, name))

    def stream(self, stream: StreamInfo) -> str:
        """Return the place of a stream's events."""
        return place(*self._stream(stream))

    def kernels(self, device: int, stream: int, operator: OperatorInfo | None) -> str:
        """Return the place of the kernels of a stream; it comes directly after the operator's."""
        if operator is not None and operator.streams:
            group, track = self._stream(operator.streams[0])
            name, order = f"kernels of {operator.name}, stream {stream}", 2 * track + 1
        else:
            group, name, order = self.slice(device), f"stream {stream}", _LAST
        return place(group, self._track((group, name), group, name, order))

    def _stream(self, stream: StreamInfo) -> tuple[int, int]:
        if stream.segment:  # its operators may be on several slices
            group, title = self.slice(stream.device), "segment"
        else:
            operator = stream.operator
            group, title = self.slice(stream.device, operator.slice, operator.sm_count), "stream of"
        return group, self._track(stream, group, f"{title} {stream.name}")

    def slice(self, device: int, name: str = "", sm_count: int = 0) -> int:
        """Return the group of a slice of a device; an empty name stands for the whole device."""
        group = self._groups.get((device, name))
        if group is None:
            group = self._groups[device, name] = _FIRST_SLICE + len(self._groups)
            total = self._run.device_sm_counts.get(device, 0)
            title = f"slice {name}, {sm_count} of {total} SMs" if name else f"all {total} SMs"
            self._name("process", group, group, f"GPU {device}: {title}", group)
        return group

    def _track(self, key: Hashable, group: int, name: str, order: int = 0) -> int:
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = 100 + len(self._tracks)
            self._name("thread", group, track, name, order or 2 * track)
        return track

    def _name(self, what: str, group: int, track: int, name: str, order: int) -> None:
        """Name a group or a track, and give it its place among the others."""
        for field, value in (("name", name), ("sort_index", order)):
            event = {"ph": "M", "name": f"{what}_{field}", "pid": group, "tid": track, "ts": 0}
            self._file.add(json_text({**event, "args": {field: value}}))


def place(group: int, track: int) -> str:
    """Return the place of an event, in JSON."""
    return f'"pid":{group:d},"tid":{track:d}'


def json_text(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
