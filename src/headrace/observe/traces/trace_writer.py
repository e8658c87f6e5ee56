"""TraceWriter: writes a run as a trace that Perfetto opens (https://ui.perfetto.dev).

Every compute is a slice on the track of its thread, and its work on the device a slice on the track of its stream.
Arrows lead from the compute that emitted a message to the one that received it, and from a compute to its work on
the device. Every message that reached the end of its path is a slice from its origin to its end, with where its
time went (`critical_path`). Counters show how many messages wait in each queue and how many each operator has in
use.

The file is written as the run goes on, and opens even if the process is killed.

All times are exact to the nanosecond. In simulated time a compute may take no time at all; the events of one
compute are therefore written one after the other and in the order of time, so that a viewer that sorts by time
keeps them together. Microseconds are the shortest text of a float, which has digits enough for a hundred days.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice, repeat
from math import isfinite
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._runtime import Envelope
from headrace.core.run_files import numbered
from headrace.observe.events.records import QueueInfo
from headrace.observe.figures.critical_path import divide
from headrace.observe.figures.recent_computes import RecentRows
from headrace.observe.figures.run_figures import ShowsFigures
from headrace.observe.traces.trace_file import Group, TraceFile, Tracks, json_text, place

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.observe.events.records import (
        Computes,
        Drops,
        Flows,
        GpuWork,
        OperatorInfo,
        OutputInfo,
        RunInfo,
        Times,
    )

END = 1 << 62
"""A time after everything."""
_MOST_CHANGES = 20_000  # that wait at most: of a queue, if its consumer computes for very long


class Level:
    """A number that changes by known amounts at known times."""

    __slots__ = ("_amounts", "_horizon", "_times", "_value")

    def __init__(self) -> None:
        self._value = 0
        self._times: Times = np.zeros(0, np.int64)
        self._amounts = self._times
        self._horizon = -END

    def change(self, times: Sequence[int] | Times, amount: int) -> None:
        """Note a change by an amount at each of some times; at the last time that was told, if that is later."""
        self._times = np.concatenate((self._times, np.maximum(times, self._horizon)))
        self._amounts = np.concatenate((self._amounts, np.full(len(times), amount)))

    def tell(self, horizon: int) -> list[tuple[int, int]]:
        """Return times up to the horizon, or later if too many wait, and the number from each on."""
        order = np.argsort(self._times, kind="stable")
        times, amounts = self._times[order], self._amounts[order]
        count = max(int(times.searchsorted(horizon, "right")), len(times) - _MOST_CHANGES)
        values = self._value + np.cumsum(amounts[:count])
        # The last one of several changes at a time counts.
        is_last = np.diff(times[:count], append=END) > 0
        self._times, self._amounts = times[count:], amounts[count:]
        if count:
            self._value, self._horizon = int(values[-1]), int(times[count - 1])
        return list(zip(times[:count][is_last].tolist(), values[is_last].tolist(), strict=True))


class TraceWriter(ShowsFigures):
    """Writes every run that it watches to a trace file.

    Parameters
    ----------
    path
        The file; compressed if its name ends with ``.gz``. If several runs are watched, the second one is written
        to ``out-2.json`` beside ``out.json``, and so on.
    metadata
        Whether the metadata of received messages is shown with each compute; this slows down every message.
    kernels
        Whether each kernel and copy on a GPU is shown, if the package ``cupti-python`` is installed.
    """

    period = 0.25
    wants_threads = True
    explains = True
    wants_every_gpu_time = True
    wants_emissions = True
    spans_parts = True

    def __init__(self, path: str | os.PathLike[str], *, metadata: bool = False, kernels: bool = True) -> None:
        self.path = Path(path)
        self.wants_data = metadata
        self.wants_kernels = kernels
        self._runs = 0

    def begin(self, run: RunInfo) -> None:
        """Open the file, and name what is known of the run."""
        self._run = run
        self._runs += 1
        self._file = TraceFile(numbered(self.path, self._runs))
        # For each queue, the metadata of the messages that were received and not written yet, in order.
        self._metadata: dict[QueueInfo, deque[str]] = defaultdict(deque)
        self._write_header()
        self._tracks = Tracks(self._file, run)
        self._names: list[str] = []
        self._depths: defaultdict[QueueInfo, Level] = defaultdict(Level)
        self._in_use: defaultdict[OperatorInfo, Level] = defaultdict(Level)
        # When the computes that are known ended, by operator.
        self._known: defaultdict[OperatorInfo, int] = defaultdict(lambda: -END)
        # By operator: the frame of each compute, coded as its number times `_STRIDE` plus the source's index.
        self._frames: defaultdict[OperatorInfo, RecentRows] = defaultdict(partial(RecentRows, 1))
        # By queue and the position of the output: a number for the ids of arrows, which are the number of a message
        # times `_STRIDE` plus this.
        self._ways: defaultdict[tuple[QueueInfo, int], int] = defaultdict(lambda: len(self._ways))
        self.changed(run)
        # The computes that were not written yet: when they began and ended, and their events.
        self._computed: list[tuple[int, int, str]] = []
        # When the last work at each place ended.
        self._gpu_ended: defaultdict[str, int] = defaultdict(lambda: -END)
        self._flow_count = 0
        more = f',"s":"p","args":{{"epoch_ns":{run.epoch}}}'
        self._file.add(self._event("i", '"run"', "run", place(Group.HOST, Group.HOST), run.started, more))
        self._file.write()

    def changed(self, run: RunInfo) -> None:
        """Name the operators that are new."""
        self._names += [json_text(operator.name) for operator in run.operators[len(self._names) :]]

    def _event(self, kind: str, name: str, category: str, place: str, time: int, more: str = "") -> str:
        """Return an event: its kind, its name in JSON, its category and place, its time, and what more it has."""
        # The time 0 of the trace is known when the first compute begins.
        ts = (time - self._run.started) / 1000
        return f'{{"ph":"{kind}","name":{name},"cat":"{category}",{place},"ts":{ts}{more}}}'

    def _slice(self, name: str, category: str, place: str, began: int, ended: int, arguments: str) -> str:
        """Return the event of something that took a while."""
        more = f',"dur":{(ended - began) / 1000},"args":{{{arguments}}}'
        return self._event("X", name, category, place, began, more)

    def _arrow(self, kind: str, what: str, category: str, place: str, time: int, number: int) -> str:
        """Return the event of the begin or the end of an arrow."""
        more = f',"id":{number},"bp":"e"' if kind == "f" else f',"id":{number}'
        return self._event(kind, f'"{what}"', category, place, time, more)

    def _add_metadata(self, name: str, arguments: dict[str, Any]) -> None:
        event = {"ph": "M", "name": name, "pid": Group.HOST, "tid": Group.HOST, "ts": 0, "args": arguments}
        self._file.add(json_text(event))

    @property
    def _kernels_shown(self) -> str:
        return self._run.kernels if self.wants_kernels else "not shown"

    def _write_header(self) -> None:
        run = self._run
        self._add_metadata(
            "headrace",
            {
                "application": run.application,
                "epoch_ns": run.epoch,
                "started_ns": run.started,
                "is_virtual": run.is_virtual,
                "kernels": self._kernels_shown,
                "clocks": _clocks(run),
            },
        )

    # Computes.

    def computed(self, computes: Computes) -> None:
        """Write computes, their work on the device, and the arrows between them."""
        columns = computes.started, computes.ended, computes.threads
        started, ended, threads = (column.tolist() for column in columns)
        tracks = {thread: self._tracks.thread(thread) for thread in set(threads)}
        places = [tracks[thread] for thread in threads]
        replayed = set(np.flatnonzero(computes.is_replayed).tolist())
        arguments = [
            f'"frame":{frame},"source":{source},"compute":{computes.first + position}'
            + (',"replayed":true' if position in replayed else "")
            for position, (frame, source) in enumerate(self._frame_names(self._find_frames(computes)))
        ]
        name, metadata = self._names[computes.operator.index], self._metadata_of(computes)
        events = [
            [self._slice(name, "compute", track, began, end, arguments[position] + metadata[position])]
            for position, (track, began, end) in enumerate(zip(places, started, ended, strict=True))
        ]
        for work in computes.gpu:
            self._add_gpu_work(computes, work, arguments, places, events)
        for kind, compute, number, time in self._messages_of(computes):
            at = compute - computes.first
            # A segment takes its messages just before it is replayed; an arrow binds to the slice around it.
            time = min(max(time, started[at]), ended[at])
            events[at].append(self._arrow(kind, "message", "message", places[at], time, number))
        self._computed += zip(started, ended, map(",\n".join, events), strict=True)
        self._known[computes.operator] = ended[-1]
        self._note_levels(computes)

    def _find_frames(self, batch: Computes) -> Times:
        """Return the frame of each compute: the compute of the source that its first message follows from."""
        operator = batch.operator
        count = len(batch.started)
        frames = np.full(count, -1, np.int64)
        if not operator.inputs:
            frames = (np.arange(count) + batch.first) * _STRIDE + operator.index
        for arrivals in batch.arrivals:
            for position, output in enumerate(arrivals.queue.outputs):
                # Of several messages of a compute, the first is written last.
                rows = np.flatnonzero(arrivals.output == position)[::-1]
                known, is_known = self._frames[output.operator].find(arrivals.producer[rows])
                found = np.full(count, -1, np.int64)
                found[arrivals.compute[rows] - batch.first] = np.where(is_known, known[0], -1)
                frames = np.where(frames < 0, found, frames)
        self._frames[operator].extend(frames[None])
        return frames

    def _frame_names(self, frames: Times) -> list[tuple[str, str]]:
        """Return the number of each frame and the name of its source, in JSON."""
        names = self._names
        return [
            ("null", "null") if frame < 0 else (str(frame // _STRIDE), names[frame % _STRIDE])
            for frame in frames.tolist()
        ]

    def _messages_of(self, batch: Computes) -> Iterator[tuple[str, int, int, int]]:
        """Yield where arrows end and begin: the kind of event, the compute, the id of the arrow, and the time."""
        for arrivals in batch.arrivals:
            way = [self._ways[arrivals.queue, output] for output in range(len(arrivals.queue.outputs))]
            numbers = arrivals.number * _STRIDE + np.array(way)[arrivals.output]
            # A message may come during the compute, whose events may be first in the file. Events of one time stay
            # in the order of the file, so the arrow would end before it begins.
            came_during = arrivals.received > batch.started[arrivals.compute - batch.first]
            times = arrivals.received + (came_during & (arrivals.received == arrivals.emitted))
            yield from zip(repeat("f"), arrivals.compute.tolist(), numbers.tolist(), times.tolist())
        for emissions in batch.emissions:
            numbers = emissions.number * _STRIDE + self._ways[emissions.queue, emissions.output]
            yield from zip(
                repeat("s"), emissions.compute.tolist(), numbers.tolist(), emissions.emitted.tolist()
            )

    def _add_gpu_work(
        self,
        computes: Computes,
        work: GpuWork,
        arguments: list[str],
        places: list[str],
        events: list[list[str]],
    ) -> None:
        """Add work on the device to the events of each compute, and the arrow from there to it."""
        name, track = self._names[computes.operator.index], self._tracks.stream(work.stream)
        launched = -1
        for compute, began, ended in zip(
            work.compute.tolist(), work.started.tolist(), work.ended.tolist(), strict=True
        ):
            at = compute - computes.first
            # The times of events are rounded: two pieces of work might overlap by some nanoseconds.
            began = max(began, self._gpu_ended[track])
            ended = self._gpu_ended[track] = max(ended, began)
            events[at].append(self._slice(name, "gpu", track, began, ended, arguments[at]))
            # Two clocks: the device might seem to begin before the host.
            host = int(computes.started[at])
            if compute != launched and host <= ended:
                number = (compute * _MOST_STREAMS + work.stream.number) * _STRIDE
                number += work.stream.operator.index
                events[at].append(self._arrow("s", "launch", "gpu", places[at], host, number))
                events[at].append(self._arrow("f", "launch", "gpu", track, max(began, host), number))
            launched = compute

    def _metadata_of(self, batch: Computes) -> defaultdict[int, str]:
        """Return the metadata of received messages as arguments, by the position of the compute."""
        found: defaultdict[int, str] = defaultdict(str)
        for arrivals in batch.arrivals:
            waiting = self._metadata.get(arrivals.queue)
            for position in (arrivals.compute - batch.first).tolist() if waiting else ():
                if arrivals.queue.is_inner and batch.is_replayed[position]:
                    continue  # the message did not come through the queue
                text = waiting.popleft() if waiting else ""
                if text and not found[position]:
                    found[position] = f',"metadata":{text}'
        return found

    # Metadata.

    def watches(self, port: OutputInfo | QueueInfo) -> bool:
        """Return whether the metadata of a port is shown: that of received messages is."""
        return isinstance(port, QueueInfo)

    def received(self, queue: QueueInfo, item: Any, time: int) -> None:
        """Keep the metadata of a message until the compute that received it is written."""
        metadata = item.metadata if type(item) is Envelope else None
        # A limited number of entries, and of characters for each.
        shown = {
            str(key)[:_LONGEST]: _short(value)
            for key, value in islice((metadata or {}).items(), _MOST_ENTRIES)
        }
        self._metadata[queue].append(json_text(shown) if shown else "")

    # Counters.

    def _note_levels(self, batch: Computes) -> None:
        """Count the messages in queues, and those that the host or the device still works on."""
        in_use = self._in_use[batch.operator]
        for emissions in batch.emissions:
            self._depths[emissions.queue].change(emissions.emitted, 1)
            self._add_drops(emissions.queue, emissions.rejected)
        for arrivals in batch.arrivals:
            self._depths[arrivals.queue].change(arrivals.received, -1)
            in_use.change(arrivals.received, 1)
            in_use.change(batch.done[arrivals.compute - batch.first], -1)
        for discards in batch.discards:
            self._depths[discards.queue].change(discards.dropped, -1)
        self._add_counter(Group.IN_FLIGHT, batch.operator.name, in_use.tell(int(batch.ended[-1])))

    def messages_dropped(self, drops: list[Drops]) -> None:
        """Write messages that a full queue or a join dropped."""
        for each in drops:
            self._depths[each.queue].change(each.dropped, -1)
            self._add_drops(each.queue, each.dropped)

    def _add_drops(self, queue: QueueInfo, times: Times) -> None:
        name, track = json_text(f"dropped: {queue.name}"), place(Group.QUEUES, Group.QUEUES)
        for time in times.tolist():
            self._file.add(self._event("i", name, "drop", track, time, ',"s":"p"'))

    def _add_counter(self, group: int, name: str, values: list[tuple[int, int]]) -> None:
        begins = f'{{"ph":"C","name":{json_text(name)},{place(group, group)},"ts":'
        zero = self._run.started
        self._file.add(
            *[f'{begins}{(time - zero) / 1000},"args":{{"messages":{value}}}}}' for time, value in values]
        )

    # Paths.

    def flowed(self, flows: list[Flows]) -> None:
        """Write messages that reached the end of a path."""
        for each in flows:
            self._add_flows(each)

    def _add_flows(self, flows: Flows) -> None:
        if not flows.is_timed.all():  # of a very fast operator, only some computes are timed on the device
            flows = flows.part(np.flatnonzero(flows.is_timed))
        division, zero = divide(flows, self.figures.computes), self._run.started
        name = json_text(" → ".join(operator.name for operator in flows.path.operators))
        sources = self._frames[flows.path.operators[0]].find(flows.computes[:, 0])[0][0]
        frames = self._frame_names(np.where(flows.computes[:, 0] < 0, -1, sources))
        paths = place(Group.PATHS, Group.PATHS)
        keys = [json_text(part) for part in division.names]
        events = []
        for origin, done, (frame, source), parts in zip(
            flows.origin.tolist(), flows.done.tolist(), frames, division.parts.tolist(), strict=True
        ):
            self._flow_count += 1
            begins = max(origin, zero)
            # A local id, or Perfetto would show the path among the events of no process.
            track = f'{paths},"id2":{{"local":"{self._flow_count:x}"}}'
            shown = ",".join(f"{key}:{part / 1000}" for key, part in zip(keys, parts, strict=True) if part)
            arguments = (
                f'"frame":{frame},"source":{source},"latency_us":{(done - origin) / 1000},'
                f'"parts_us":{{{shown}}}'
            )
            events.append(self._event("b", name, "path", track, begins, f',"args":{{{arguments}}}'))
            events.append(self._event("e", name, "path", track, max(done, begins)))
        self._file.add(*events)

    # Kernels.

    def ran(self, kernels: list[Activity]) -> None:
        """Write kernels and copies."""
        super().ran(kernels)
        for each in kernels if self.wants_kernels else ():
            self._add_kernel(each)

    def _add_kernel(self, activity: Activity) -> None:
        operator, arguments = None, activity.arguments
        if activity.operator is not None and activity.operator < len(self._run.operators):
            operator = self._run.operators[activity.operator]
            arguments = {"operator": operator.name, "compute": activity.compute, **arguments}
        track = self._tracks.kernels(activity.device, activity.stream, operator)
        began = max(activity.started, self._gpu_ended[track])
        ended = self._gpu_ended[track] = max(activity.ended, began)
        name, shown = json_text(activity.name), json_text(arguments)[1:-1]
        self._file.add(self._slice(name, "kernel", track, began, ended, shown))

    def resolved(self, is_last: bool = False) -> None:
        """Write counters, and everything that waits."""
        # In the order in which computes began. Of two at the same time, which there are in simulated time, the
        # shorter one came first; it may not be known yet.
        self._computed.sort(key=itemgetter(0, 1))
        observation = None if is_last or not self._run.is_virtual else self.observation
        known_until = END if observation is None else observation.known_until
        count = bisect_left(self._computed, known_until, key=itemgetter(0))
        self._file.add(*(text for _, _, text in self._computed[:count]))
        del self._computed[:count]
        for queue, depth in self._depths.items():
            operators = (queue.operator, *(output.operator for output in queue.outputs))
            horizon = END if is_last else min(self._known[operator] for operator in operators)
            self._add_counter(Group.QUEUES, queue.name, depth.tell(horizon))
        self._file.write()

    def end(self, outcome: Outcome | None) -> None:
        """Write the rest and close the file."""
        run = self._run
        try:
            self.resolved(is_last=True)
            for operator, level in self._in_use.items():
                self._add_counter(Group.IN_FLIGHT, operator.name, level.tell(END))
            self._add_metadata(
                "end",
                {
                    "outcome": None if outcome is None else str(outcome.ended_by),
                    "clock_errors_ns": {str(device): error for device, error in run.clock_errors.items()},
                    "clocks": _clocks(run),
                    "kernels": self._kernels_shown,
                    "goals": {}
                    if outcome is None
                    else {name: asdict(goal) for name, goal in outcome.goals.items()},
                },
            )
        finally:
            self._file.close()


def _clocks(run: RunInfo) -> dict[str, Any]:
    """Return how the clocks of the parts of a run are related to that of the trace."""
    return {
        part: {"offset_ns": clock.offset, "error_ns": clock.error, "is_shared": clock.is_shared}
        for part, clock in run.clocks.items()
    }


def _short(value: Any) -> Any:
    """Return a value of the metadata as JSON can have it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value[:_LONGEST]
    try:
        if isinstance(value, (int, float)):
            text = repr(value)
            return value if len(text) <= _LONGEST and isfinite(value) else text[:_LONGEST]
    except ValueError:  # Python limits the digits of an int
        pass
    return f"<{type(value).__name__}>"  # an array might describe all its elements, or wait for the device


_MOST_STREAMS = 1 << 10  # of an operator
_STRIDE = 1 << 16  # more than the operators of a run, and the ways between them
_MOST_ENTRIES = 32  # of the metadata
_LONGEST = 200  # characters
