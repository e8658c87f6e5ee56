"""RunTrace: the events of one run, as they are written to its trace file.

All times are exact to the nanosecond. In simulated time a compute may take no time at all; the events of one
compute are therefore written one after the other and in the order of time, so that a viewer that sorts by time
keeps them together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.observe.figures.critical_path import CriticalPath
from headrace.observe.figures.recent_rows import RecentRows
from headrace.observe.traces.levels import END, Level
from headrace.observe.traces.trace_file import json_text, micros
from headrace.observe.traces.trace_reader import FORMAT, HOPS
from headrace.observe.traces.trace_tracks import HOST, IN_FLIGHT, PATHS, QUEUES, Tracks

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Computes, Flows, GpuWork, QueueInfo, RunInfo, Times
    from headrace.observe.traces.cupti_activity import Activity, CuptiActivity
    from headrace.observe.traces.trace_file import TraceFile


class RunTrace:
    """The trace of one run.

    Attributes
    ----------
    metadata
        For each queue, the metadata of the messages that were received and not written yet, in order.
    activity
        What CUPTI tells, if it is there.
    """

    def __init__(self, file: TraceFile, run: RunInfo, activity: CuptiActivity | None) -> None:
        self._file = file
        self._run = run
        self.metadata: dict[QueueInfo, deque[str]] = defaultdict(deque)
        self.activity = activity if activity is not None and activity.start() else None
        self._write_header("not shown" if activity is None else activity.state)
        self._tracks = Tracks(file, run)
        self._critical = CriticalPath(run)
        self._names = [json_text(operator.name) for operator in run.operators]
        self._depths = {queue: Level() for queue in run.queues if queue.outputs}
        self._in_use = {operator: Level() for operator in run.operators if operator.inputs}
        # When the computes that are known ended, by operator.
        self._known = dict.fromkeys(run.operators, -END)
        # By operator: the frame of each compute, coded as its number times the operators plus the source's index.
        self._frames = {operator: RecentRows(1) for operator in run.operators}
        # The ids of arrows: the number of a message times the ways between operators plus the way's index.
        ways = [(queue, position) for queue in run.queues for position in range(len(queue.outputs))]
        self._ways = {way: index for index, way in enumerate(ways)}
        # The computes of this round: when they began and ended, and their events.
        self._computed: list[tuple[int, int, str]] = []
        # The work of the device in this round.
        self._worked: list[str] = []
        self._gpu_ended: defaultdict[int, int] = defaultdict(lambda: -END)
        self._flow_count = 0
        more = f',"s":"p","args":{{"epoch_ns":{run.epoch}}}'
        self._file.add(self._event("i", '"run"', "run", _place(HOST, HOST), run.started, more))
        self._file.write()

    def _event(self, kind: str, name: str, category: str, place: str, time: int, more: str = "") -> str:
        """Return an event: its kind, its name in JSON, its category and place, its time, and what more it has."""
        # The time 0 of the trace is known when the first compute begins.
        ts = micros(time - self._run.started)
        return f'{{"ph":"{kind}","name":{name},"cat":"{category}",{place},"ts":{ts}{more}}}'

    def _slice(self, name: str, category: str, place: str, began: int, ended: int, arguments: str) -> str:
        """Return the event of something that took a while."""
        more = f',"dur":{micros(ended - began)},"args":{{{arguments}}}'
        return self._event("X", name, category, place, began, more)

    def _arrow(self, kind: str, what: str, category: str, place: str, time: int, number: int) -> str:
        """Return the event of the begin or the end of an arrow."""
        more = f',"id":{number}' + (',"bp":"e"' if kind == "f" else "")
        return self._event(kind, f'"{what}"', category, place, time, more)

    def _add_metadata(self, name: str, arguments: dict[str, Any]) -> None:
        event = {"ph": "M", "name": name, "pid": HOST, "tid": HOST, "ts": 0, "args": arguments}
        self._file.add(json_text(event))

    def _write_header(self, kernels: str) -> None:
        run = self._run
        self._add_metadata(
            "headrace",
            {
                "format": FORMAT,
                "application": run.application,
                "epoch_ns": run.epoch,
                "started_ns": run.started,
                "is_virtual": run.is_virtual,
                "kernels": kernels,
                "operators": [
                    {
                        "name": operator.name,
                        "slice": operator.slice,
                        "sm_count": operator.sm_count,
                        "queues": {queue.name: queue.limit for queue in operator.inputs},
                    }
                    for operator in run.operators
                ],
                "segments": {
                    segment.name: [operator.name for operator in segment.operators]
                    for segment in run.segments
                },
            },
        )

    # Computes.

    def add_computes(self, batch: Computes) -> None:
        """Write computes with their arrows, and their work on the device."""
        self._critical.add(batch)
        first, name = batch.first, self._names[batch.operator.index]
        started, ended, threads = batch.started.tolist(), batch.ended.tolist(), batch.threads.tolist()
        tracks = {thread: _place(HOST, self._tracks.thread(thread)) for thread in set(threads)}
        places = [tracks[thread] for thread in threads]
        replayed = set(np.flatnonzero(batch.is_replayed).tolist())
        arguments = [
            f'"frame":{frame},"source":{source},"compute":{first + position}'
            + (',"replayed":true' if position in replayed else "")
            for position, (frame, source) in enumerate(self._frame_names(self._find_frames(batch)))
        ]
        metadata = self._metadata_of(batch)
        events = [
            [self._slice(name, "compute", place, began, end, arguments[position] + metadata[position])]
            for position, (place, began, end) in enumerate(zip(places, started, ended, strict=True))
        ]
        for work in batch.gpu:
            for compute in sorted(set(work.compute.tolist())):
                at = compute - first
                events[at].append(
                    self._arrow("s", "launch", "gpu", places[at], started[at], self._launch_id(work, compute))
                )
        for kind, compute, number, time in self._messages_of(batch):
            at = compute - first
            # A segment takes its messages just before it is replayed; an arrow binds to the slice around it.
            time = min(max(time, started[at]), ended[at])
            events[at].append(self._arrow(kind, "message", "message", places[at], time, number))
        self._computed += zip(started, ended, map(",\n".join, events), strict=True)
        for work in batch.gpu:
            self._add_gpu_work(batch, work, name, arguments)
        self._known[batch.operator] = ended[-1]
        self._note_levels(batch)

    def _find_frames(self, batch: Computes) -> Times:
        """Return the frame of each compute: the compute of the source that its first message follows from."""
        operator = batch.operator
        count = len(batch.started)
        frames = np.full(count, -1, np.int64)
        if not operator.inputs:
            frames = (np.arange(count) + batch.first) * len(self._names) + operator.index
        for arrivals in batch.arrivals:
            for position, output in enumerate(arrivals.queue.outputs):
                # Of several messages of a compute, the first is written last.
                rows = np.flatnonzero(arrivals.output == position)[::-1]
                known, is_known = self._frames[output.operator].find(arrivals.producer[rows])
                found = np.full(count, -1, np.int64)
                found[arrivals.compute[rows] - batch.first] = np.where(is_known, known[:, 0], -1)
                frames = np.where(frames < 0, found, frames)
        self._frames[operator].extend(frames[:, None])
        return frames

    def _frame_names(self, frames: Times) -> list[tuple[str, str]]:
        """Return the number of each frame and the name of its source, in JSON."""
        names = self._names
        return [
            ("null", "null") if frame < 0 else (str(frame // len(names)), names[frame % len(names)])
            for frame in frames.tolist()
        ]

    def _messages_of(self, batch: Computes) -> Iterator[tuple[str, int, int, int]]:
        """Yield where arrows end and begin: the kind of event, the compute, the id of the arrow, and the time."""
        ways = len(self._ways)
        for arrivals in batch.arrivals:
            way = [self._ways[arrivals.queue, output] for output in range(len(arrivals.queue.outputs))]
            numbers = arrivals.number * ways + np.array(way)[arrivals.output]
            yield from zip(
                repeat("f"), arrivals.compute.tolist(), numbers.tolist(), arrivals.received.tolist()
            )
        for emissions in batch.emissions:
            numbers = emissions.number * ways + self._ways[emissions.queue, emissions.output]
            yield from zip(
                repeat("s"), emissions.compute.tolist(), numbers.tolist(), emissions.emitted.tolist()
            )

    def _launch_id(self, work: GpuWork, compute: int) -> int:
        return (compute * _MOST_STREAMS + work.stream.number) * len(self._names) + work.stream.operator.index

    def _add_gpu_work(self, batch: Computes, work: GpuWork, name: str, arguments: list[str]) -> None:
        group, track = self._tracks.stream(work.stream)
        place = _place(group, track)
        # The times of events are rounded: two pieces of work might overlap by some nanoseconds.
        last = self._gpu_ended[track]
        launched = -1
        for compute, began, ended in zip(
            work.compute.tolist(), work.started.tolist(), work.ended.tolist(), strict=True
        ):
            began = max(began, last)
            last = ended = max(ended, began)
            position = compute - batch.first
            self._worked.append(self._slice(name, "gpu", place, began, ended, arguments[position]))
            # Two clocks: the device might seem to begin before the host.
            time = max(began, int(batch.started[position]))
            if compute != launched and time <= ended:
                number = self._launch_id(work, compute)
                self._worked.append(self._arrow("f", "launch", "gpu", place, time, number))
            launched = compute
        self._gpu_ended[track] = last

    def _metadata_of(self, batch: Computes) -> defaultdict[int, str]:
        """Return the metadata of received messages as arguments, by the position of the compute."""
        found: defaultdict[int, str] = defaultdict(str)
        for arrivals in batch.arrivals:
            waiting = self.metadata.get(arrivals.queue)
            for position in (arrivals.compute - batch.first).tolist() if waiting else ():
                if arrivals.queue.is_inner and batch.is_replayed[position]:
                    continue  # the message did not come through the queue
                text = waiting.popleft() if waiting else ""
                if text and not found[position]:
                    found[position] = f',"metadata":{text}'
        return found

    # Counters.

    def _note_levels(self, batch: Computes) -> None:
        """Count the messages in queues, and those that the host or the device still works on."""
        in_use = self._in_use.get(batch.operator)
        for emissions in batch.emissions:
            depth = self._depths[emissions.queue]
            depth.change(emissions.emitted, 1)
            depth.change(emissions.dropped, -1)
            name, place = json_text(f"dropped: {emissions.queue.name}"), _place(QUEUES, QUEUES)
            for time in sorted([*emissions.rejected.tolist(), *emissions.dropped.tolist()]):
                self._file.add(self._event("i", name, "drop", place, time, ',"s":"p"'))
        for arrivals in batch.arrivals:
            if arrivals.queue in self._depths:
                self._depths[arrivals.queue].change(arrivals.received, -1)
            if in_use is not None:
                in_use.change(arrivals.received, 1)
                in_use.change(batch.done[arrivals.compute - batch.first], -1)
        for discards in batch.discards:
            if discards.queue in self._depths:
                self._depths[discards.queue].change(discards.discarded, -1)
        if in_use is not None:
            self._add_counter(IN_FLIGHT, batch.operator.name, in_use.tell(int(batch.ended[-1])))

    def _add_counter(self, group: int, name: str, values: list[tuple[int, int]]) -> None:
        place, name = _place(group, group), json_text(name)
        self._file.add(
            *(
                self._event("C", name, "counter", place, time, f',"args":{{"messages":{value}}}')
                for time, value in values
            )
        )

    # Paths.

    def add_flows(self, flows: Flows) -> None:
        """Write messages that reached the end of a path, if it is known when they did."""
        if not flows.is_timed.all():  # of a very fast operator, only some computes are timed on the device
            flows = flows.part(np.flatnonzero(flows.is_timed))
        division, zero = self._critical.divide(flows), self._run.started
        name = json_text(" → ".join(operator.name for operator in flows.path.operators))
        sources = self._frames[flows.path.operators[0]].find(flows.computes[:, 0])[0][:, 0]
        frames = self._frame_names(np.where(flows.computes[:, 0] < 0, -1, sources))
        keys = [json_text(part) for part in division.names]
        received, emitted = flows.times[:, 0::2], flows.times[:, 1::2]
        columns = zip(HOPS, (received, emitted, division.gpu_started, division.gpu_ended), strict=True)
        hops = [(column, times.tolist()) for column, times in columns]
        for row, (origin, done, (frame, source), parts) in enumerate(
            zip(flows.origin.tolist(), flows.done.tolist(), frames, division.parts.tolist(), strict=True)
        ):
            self._flow_count += 1
            begins = max(origin, zero)
            # A local id, or Perfetto would show the path among the events of no process.
            place = f'{_place(PATHS, PATHS)},"id2":{{"local":"{self._flow_count:x}"}}'
            shown = ",".join(f"{key}:{micros(part)}" for key, part in zip(keys, parts, strict=True) if part)
            times = ",".join(f'"{column}":[{self._times(values[row])}]' for column, values in hops)
            arguments = (
                f'"frame":{frame},"source":{source},"latency_us":{micros(done - origin)},'
                f'"parts_us":{{{shown}}},{times}'
            )
            self._file.add(
                self._event("b", name, "path", place, begins, f',"args":{{{arguments}}}'),
                self._event("e", name, "path", place, max(done, begins)),
            )

    def _times(self, times: list[int]) -> str:
        """Return the times at each operator of a path, in microseconds of the trace."""
        zero = self._run.started
        return ",".join(micros(time - zero) if time > _NEVER else "null" for time in times)

    # Kernels.

    def _add_activity(self, activity: Activity) -> None:
        operator, arguments = None, activity.arguments
        if activity.operator is not None and activity.operator < len(self._run.operators):
            operator = self._run.operators[activity.operator]
            arguments = {"operator": operator.name, "compute": activity.compute, **arguments}
        group, track = self._tracks.kernels(activity.device, activity.stream, operator)
        began = max(activity.started, self._gpu_ended[track])
        ended = self._gpu_ended[track] = max(activity.ended, began)
        name, shown = json_text(activity.name), json_text(arguments)[1:-1]
        self._file.add(self._slice(name, "kernel", _place(group, track), began, ended, shown))

    def write(self, is_last: bool = False) -> None:
        """Write what is known by now."""
        # In the order in which computes began. Of two at the same time, the shorter one came first.
        self._computed.sort(key=itemgetter(0, 1))
        self._file.add(*(text for _, _, text in self._computed), *self._worked)
        self._computed.clear()
        self._worked.clear()
        for queue, depth in self._depths.items():
            operators = (queue.operator, *(output.operator for output in queue.outputs))
            horizon = END if is_last else min(self._known[operator] for operator in operators)
            self._add_counter(QUEUES, queue.name, depth.tell(horizon))
        newest = max(self._run.started, *self._known.values())
        for operator in self._run.operators:
            # How many frames are kept because a stream may still read them. Simulated time is over when it is read.
            if operator.streams and not self._run.is_virtual:
                name = f"{operator.name}: frames kept"
                self._add_counter(IN_FLIGHT, name, [(newest, operator.frames_kept)])
        if self.activity is not None:
            for activity in self.activity.take(is_last):
                self._add_activity(activity)
        self._file.write()

    def close(self, outcome: Outcome | None) -> None:
        """Write what remains and close the file."""
        run = self._run
        try:
            self.write(is_last=True)
            for operator, level in self._in_use.items():
                self._add_counter(IN_FLIGHT, operator.name, level.tell(END))
            segments = {
                segment.name: {
                    name: getattr(segment, name) for name in ("state", "reason", "frames", "replayed")
                }
                for segment in run.segments
            }
            self._add_metadata(
                "end",
                {
                    "outcome": None if outcome is None else str(outcome.ended_by),
                    "clock_errors_ns": {str(device): error for device, error in run.clock_errors.items()},
                    "kernels": "not shown" if self.activity is None else self.activity.state,
                    "dropped": {queue.name: queue.dropped for queue in self._depths if queue.dropped},
                    "segments": segments,
                },
            )
        finally:
            if self.activity is not None:
                self.activity.stop()
            self._file.close()


def _place(group: int, track: int) -> str:
    return f'"pid":{group},"tid":{track}'


_MOST_STREAMS = 1 << 10  # of an operator
_NEVER = -(1 << 61)
