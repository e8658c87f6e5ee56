"""Tracks: where the events of a trace are shown.

A viewer groups tracks by process. Here the first group is the host with a track for each thread; then each slice of
each device with a track for each stream; then the paths, the queues and the messages in flight.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING

from headrace.observe.traces.trace_file import json_text

if TYPE_CHECKING:
    from headrace.observe.events.records import OperatorInfo, RunInfo, StreamInfo
    from headrace.observe.traces.trace_file import TraceFile

HOST = 1
PATHS = 2
QUEUES = 3
IN_FLIGHT = 4
_FIRST_SLICE = 10
_LAST = 1 << 20  # a place after all others


class Tracks:
    """Numbers and names the tracks of a trace, as they are needed."""

    def __init__(self, file: TraceFile, run: RunInfo) -> None:
        self._file = file
        self._run = run
        self._groups: dict[tuple[int, str], int] = {}
        self._tracks: dict[Hashable, int] = {}
        # Slices of devices are shown between the host and the paths.
        self._name("process", HOST, HOST, f"{run.application}: host", 0)
        self._name("process", PATHS, PATHS, f"{run.application}: paths, from origin to end", _LAST)
        self._name("process", QUEUES, QUEUES, f"{run.application}: messages in queues", _LAST + 1)
        self._name("process", IN_FLIGHT, IN_FLIGHT, f"{run.application}: messages in use", _LAST + 2)

    def thread(self, ident: int) -> int:
        """Return the track of a thread."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return self._track(ident, HOST, names.get(ident) or f"worker {ident}")

    def stream(self, stream: StreamInfo) -> tuple[int, int]:
        """Return the group and the track of a stream."""
        operator = stream.operator
        if stream.segment:  # its operators may be on several slices
            group = self.slice(stream.device)
            return group, self._track(stream, group, f"segment {stream.name}")
        group = self.slice(stream.device, operator.slice, operator.sm_count)
        return group, self._track(stream, group, f"stream of {stream.name}")

    def kernels(self, device: int, stream: int, operator: OperatorInfo | None) -> tuple[int, int]:
        """Return the group and the track for the kernels of a stream; it comes directly after the operator's."""
        if operator is not None and operator.streams:
            group, track = self.stream(operator.streams[0])
            name, place = f"kernels of {operator.name}, stream {stream}", 2 * track + 1
        else:
            group, name, place = self.slice(device), f"stream {stream}", _LAST
        return group, self._track((group, name), group, name, place)

    def slice(self, device: int, name: str = "", sm_count: int = 0) -> int:
        """Return the group of a slice of a device; an empty name stands for the whole device."""
        group = self._groups.get((device, name))
        if group is None:
            group = self._groups[device, name] = _FIRST_SLICE + len(self._groups)
            total = self._run.device_sm_counts.get(device, 0)
            title = f"slice {name}, {sm_count} of {total} SMs" if name else f"all {total} SMs"
            self._name("process", group, group, f"GPU {device}: {title}", group)
        return group

    def _track(self, key: Hashable, group: int, name: str, place: int = 0) -> int:
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = 100 + len(self._tracks)
            self._name("thread", group, track, name, place or 2 * track)
        return track

    def _name(self, what: str, group: int, track: int, name: str, place: int) -> None:
        """Name a group or a track, and give it its place among the others."""
        for field, value in (("name", name), ("sort_index", place)):
            event = {"ph": "M", "name": f"{what}_{field}", "pid": group, "tid": track, "ts": 0}
            self._file.add(json_text({**event, "args": {field: value}}))
