"""Tracks: where the events of a trace are shown.

A viewer groups tracks by process. Here the first group is the host with a track for each thread; then each slice of
each device with a track for each stream; then the paths, the queues and the messages in flight.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.observe.traces.trace_file import json_text

if TYPE_CHECKING:
    from headrace.observe.events.records import RunInfo, StreamInfo
    from headrace.observe.traces.trace_file import TraceFile

HOST = 1
PATHS = 2
QUEUES = 3
IN_FLIGHT = 4
_FIRST_SLICE = 10
# Slices of devices are shown between the host and the paths.
_PLACES = {HOST: 0, PATHS: 1000, QUEUES: 1001, IN_FLIGHT: 1002}


class Tracks:
    """Numbers and names the tracks of a trace, as they are needed."""

    def __init__(self, file: TraceFile, run: RunInfo) -> None:
        self._file = file
        self._run = run
        self._threads: dict[int, int] = {}
        self._groups: dict[tuple[int, str], int] = {}
        self._streams: dict[StreamInfo, tuple[int, int]] = {}
        self._extra: dict[tuple[int, str], int] = {}
        self._next = 100
        self._name_group(HOST, f"{run.application}: host")
        self._name_group(PATHS, f"{run.application}: paths, from origin to end")
        self._name_group(QUEUES, f"{run.application}: messages in queues")
        self._name_group(IN_FLIGHT, f"{run.application}: messages in use")

    def thread(self, ident: int) -> int:
        """Return the track of a thread."""
        track = self._threads.get(ident)
        if track is None:
            number = len(self._threads) + 1
            known = {thread.ident: thread.name for thread in threading.enumerate()}
            track = self._threads[ident] = self._track(HOST, known.get(ident) or f"worker {number}", number)
        return track

    def stream(self, stream: StreamInfo) -> tuple[int, int]:
        """Return the group and the track of a stream."""
        found = self._streams.get(stream)
        if found is None:
            slice_name, sm_count = stream.operator.slice, stream.operator.sm_count
            if stream.segment:  # its operators may be on several slices
                slice_name, sm_count = "", 0
            group = self.slice(stream.device, slice_name, sm_count)
            # The tracks of a stream's kernels come directly after it.
            place = 2 * len(self._streams) + 1
            found = self._streams[stream] = group, self._track(group, _title(stream), place)
        return found

    def kernels(self, group: int, name: str, place: int) -> int:
        """Return a track for kernels in a group."""
        track = self._extra.get((group, name))
        if track is None:
            track = self._extra[group, name] = self._track(group, name, place)
        return track

    def slice(self, device: int, name: str, sm_count: int) -> int:
        """Return the group of a slice of a device; an empty name stands for the whole device."""
        group = self._groups.get((device, name))
        if group is None:
            group = self._groups[device, name] = _FIRST_SLICE + len(self._groups)
            total = self._run.device_sm_counts.get(device, 0)
            title = f"slice {name}, {sm_count} of {total} SMs" if name else f"all {total} SMs"
            self._name_group(group, f"GPU {device}: {title}")
        return group

    def place_of(self, stream: StreamInfo) -> int:
        """Return where the track of a stream is shown in its group."""
        return 2 * list(self._streams).index(stream) + 1

    def _name_group(self, group: int, name: str) -> None:
        self._meta("process_name", group, group, {"name": name})
        self._meta("process_sort_index", group, group, {"sort_index": _PLACES.get(group, group)})

    def _track(self, group: int, name: str, place: int) -> int:
        track = self._next
        self._next += 1
        self._meta("thread_name", group, track, {"name": name})
        self._meta("thread_sort_index", group, track, {"sort_index": place})
        return track

    def _meta(self, what: str, group: int, track: int, arguments: dict[str, object]) -> None:
        self._file.add(
            json_text({"ph": "M", "name": what, "pid": group, "tid": track, "ts": 0, "args": arguments})
        )


def _title(stream: StreamInfo) -> str:
    return f"segment {stream.name}" if stream.segment else f"stream of {stream.name}"
