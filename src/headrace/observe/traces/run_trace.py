"""RunTrace: the events of one run, as they are written to its trace file.

All times are exact to the nanosecond. In simulated time a compute may take no time at all; the events of one
compute are therefore written one after the other and in the order of time, so that a viewer that sorts by time
keeps them together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from headrace.observe.figures.critical_path import CriticalPath
from headrace.observe.figures.recent_rows import RecentRows
from headrace.observe.traces.levels import END, Level, QueueDepth
from headrace.observe.traces.trace_file import json_text, micros
from headrace.observe.traces.trace_reader import FORMAT
from headrace.observe.traces.trace_tracks import HOST, IN_FLIGHT, PATHS, QUEUES, Tracks

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.observe.events.records import (
        Computes,
        Flows,
        GpuWork,
        QueueInfo,
        RunInfo,
        Times,
    )
    from headrace.observe.figures.critical_path import Division
    from headrace.observe.traces.trace_file import TraceFile


class RunTrace:
    """The trace of one run.

    Attributes
    ----------
    metadata
        For each queue, the metadata of the messages that were received and not written yet, in order.
    """

    def __init__(self, file: TraceFile, run: RunInfo) -> None:
        self._file = file
        self._run = run
        self.metadata: dict[QueueInfo, deque[str]] = defaultdict(deque)
        self._write_header()
        self._tracks = Tracks(file, run)
        self._critical = CriticalPath(run)
        self._depths = {queue: QueueDepth(queue) for queue in run.queues if queue.outputs}
        self._in_use = {operator: Level() for operator in run.operators if operator.inputs}
        # By operator: the frame of each compute, coded as its number times the operators plus the source's index.
        self._frames = {operator: RecentRows(1) for operator in run.operators}
        # The ids of arrows: the number of a message times the ways between operators plus the way's index.
        ways = [(queue, position) for queue in run.queues for position in range(len(queue.outputs))]
        self._ways = {way: index for index, way in enumerate(ways)}
        # The computes of this round: when they began and ended, and their events.
        self._computed: list[tuple[int, int, str]] = []
        # The work of the device in this round.
        self._worked: list[str] = []
        self._gpu_ended: dict[int, int] = {}
        self._flow_count = 0
        self._newest = run.started
        more = f',"s":"p","args":{{"epoch_ns":{run.epoch}}}'
        self._file.add(self._event("i", '"run"', "run", _place(HOST, HOST), self._zero, more))
        self._file.write()

    @property
    def _zero(self) -> int:
        """The time 0 of the trace; known when the first compute begins."""
        return self._run.started

    def _event(self, kind: str, name: str, category: str, place: str, time: int, more: str = "") -> str:
        """Return an event: its kind, its name in JSON, its category and place, its time, and what more it has."""
        ts = micros(time - self._zero)
        return f'{{"ph":"{kind}","name":{name},"cat":"{category}",{place},"ts":{ts}{more}}}'

    def _slice(self, name: str, category: str, place: str, began: int, ended: int, arguments: str) -> str:
        """Return the event of something that took a while."""
        more = f',"dur":{micros(ended - began)},"args":{{{arguments}}}'
        return self._event("X", name, category, place, began, more)

    def _write_header(self) -> None:
        run = self._run
        arguments = {
            "format": FORMAT,
            "application": run.application,
            "epoch_ns": run.epoch,
            "started_ns": run.started,
            "is_virtual": run.is_virtual,
            "kernels": run.kernels or "not shown",
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
                segment.name: [operator.name for operator in segment.operators] for segment in run.segments
            },
        }
        self._file.add(
            json_text({"ph": "M", "name": "headrace", "pid": HOST, "tid": HOST, "ts": 0, "args": arguments})
        )

    # Computes.

    def add_computes(self, batch: Computes) -> None:
        """Write computes with their arrows, and their work on the device."""
        self._critical.add(batch)
        frames = self._find_frames(batch)
        replayed = set(np.flatnonzero(batch.is_replayed).tolist())
        arguments = [
            f'"frame":{frame},"source":{source},"compute":{batch.first + position}'
            + (',"replayed":true' if position in replayed else "")
            for position, (frame, source) in enumerate(self._frame_names(frames))
        ]
        after = self._arrows(batch)
        launches = self._launches(batch)
        metadata = self._metadata_of(batch)
        name = json_text(batch.operator.name)
        for position, (started, ended, thread) in enumerate(
            zip(batch.started.tolist(), batch.ended.tolist(), batch.threads.tolist(), strict=True)
        ):
            place = _place(HOST, self._tracks.thread(thread))
            shown = arguments[position] + metadata.get(position, "")
            lines = [self._slice(name, "compute", place, started, ended, shown)]
            lines += [
                self._event("s", '"launch"', "gpu", place, started, f',"id":{launch}')
                for launch in launches.get(position, ())
            ]
            for kind, id_, at in after.get(position, ()):
                # A segment takes its messages just before it is replayed; an arrow binds to the slice around it.
                time = min(max(at, started), ended)
                more = f',"id":{id_}' + (',"bp":"e"' if kind == "f" else "")
                lines.append(self._event(kind, '"message"', "message", place, time, more))
            self._computed.append((started, ended, ",\n".join(lines)))
        for work in batch.gpu:
            self._add_gpu_work(batch, work, name, arguments)
        self._newest = max(self._newest, int(batch.ended[-1]))
        self._note_levels(batch)

    def _add_computed(self) -> None:
        """Write the computes of a round in the order in which they began."""
        # If two began at the same time, the shorter one came first, and the other one follows it.
        self._computed.sort(key=itemgetter(0, 1))
        self._file.extend([text for _, _, text in self._computed])
        self._file.extend(self._worked)
        self._computed.clear()
        self._worked.clear()

    def _find_frames(self, batch: Computes) -> Times:
        """Return the frame of each compute: the compute of the source that its first message follows from."""
        operator = batch.operator
        count = len(batch.started)
        sources = len(self._run.operators)
        frames = np.full(count, -1, np.int64)
        if not operator.inputs:
            frames = (np.arange(count) + batch.first) * sources + operator.index
        for arrivals in batch.arrivals:
            for position, output in enumerate(arrivals.queue.outputs):
                rows = np.flatnonzero(arrivals.output == position)[
                    ::-1
                ]  # of several, the first is written last
                known, is_known = self._frames[output.operator].find(arrivals.producer[rows])
                places = arrivals.compute[rows] - batch.first
                found = np.full(count, -1, np.int64)
                found[places] = np.where(is_known, known[:, 0], -1)
                frames = np.where(frames < 0, found, frames)
        self._frames[operator].extend(frames[:, None])
        return frames

    def _frame_names(self, frames: Times) -> list[tuple[str, str]]:
        names = [json_text(operator.name) for operator in self._run.operators]
        return [
            ("null", "null") if frame < 0 else (str(frame // len(names)), names[frame % len(names)])
            for frame in frames.tolist()
        ]

    def _arrows(self, batch: Computes) -> dict[int, list[tuple[str, int, int]]]:
        """Return where arrows begin and end, by the position of the compute."""
        found: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        ways = len(self._ways)
        for arrivals in batch.arrivals:
            way = [self._ways[arrivals.queue, output] for output in range(len(arrivals.queue.outputs))]
            for compute, number, output, received in zip(
                (arrivals.compute - batch.first).tolist(),
                arrivals.number.tolist(),
                arrivals.output.tolist(),
                arrivals.received.tolist(),
                strict=True,
            ):
                found[compute].append(("f", number * ways + way[output], received))
        for emissions in batch.emissions:
            index = self._ways[emissions.queue, emissions.output]
            for compute, number, emitted in zip(
                (emissions.compute - batch.first).tolist(),
                emissions.number.tolist(),
                emissions.emitted.tolist(),
                strict=True,
            ):
                found[compute].append(("s", number * ways + index, emitted))
        return found

    def _launches(self, batch: Computes) -> dict[int, list[int]]:
        """Return the ids of the arrows to the device, by the position of the compute."""
        found: dict[int, list[int]] = defaultdict(list)
        for work in batch.gpu:
            for compute in sorted(set(work.compute.tolist())):
                found[compute - batch.first].append(self._launch_id(work, compute))
        return found

    def _launch_id(self, work: GpuWork, compute: int) -> int:
        operators = len(self._run.operators)
        return (compute * _MOST_STREAMS + work.stream.number) * operators + work.stream.operator.index

    def _add_gpu_work(self, batch: Computes, work: GpuWork, name: str, arguments: list[str]) -> None:
        group, track = self._tracks.stream(work.stream)
        place, add = _place(group, track), self._worked.append
        # The times of events are rounded: two pieces of work might overlap by some nanoseconds.
        last = self._gpu_ended.get(track, -(1 << 62))
        launched = -1
        for compute, began, ended in zip(
            work.compute.tolist(), work.started.tolist(), work.ended.tolist(), strict=True
        ):
            began = max(began, last)
            last = ended = max(ended, began)
            position = compute - batch.first
            add(self._slice(name, "gpu", place, began, ended, arguments[position]))
            # Two clocks: the device might seem to begin before the host.
            arrow = max(began, int(batch.started[position]))
            if compute != launched and arrow <= ended:
                more = f',"id":{self._launch_id(work, compute)},"bp":"e"'
                add(self._event("f", '"launch"', "gpu", place, arrow, more))
            launched = compute
        self._gpu_ended[track] = last

    def _metadata_of(self, batch: Computes) -> dict[int, str]:
        """Return the metadata of received messages as arguments, by the position of the compute."""
        found: dict[int, str] = defaultdict(str)
        for arrivals in batch.arrivals:
            waiting = self.metadata.get(arrivals.queue)
            if waiting is None:
                continue
            for compute in (arrivals.compute - batch.first).tolist():
                if arrivals.queue.is_inner and batch.is_replayed[compute]:
                    continue  # the message did not come through the queue
                text = waiting.popleft() if waiting else ""
                if text and compute not in found:
                    found[compute] = f',"metadata":{text}'
        return found

    # Counters.

    def _note_levels(self, batch: Computes) -> None:
        """Count the messages in queues, and those that the host or the device still works on."""
        operator = batch.operator
        queues = {*operator.inputs, *(queue for output in operator.outputs for queue in output.queues)}
        for queue in queues & self._depths.keys():
            self._depths[queue].add(batch)
        if operator in self._in_use:
            level = self._in_use[operator]
            for arrivals in batch.arrivals:
                level.change(arrivals.received, 1)
                level.change(batch.done[arrivals.compute - batch.first], -1)
            self._add_counter(IN_FLIGHT, operator.name, level.tell(int(batch.ended[-1])))

    def _add_counter(self, group: int, name: str, values: list[tuple[int, int]]) -> None:
        begin = f'{{"ph":"C","name":{json_text(name)},"pid":{group},"tid":{group},"ts":'
        zero = self._zero
        self._file.extend(
            [f'{begin}{(time - zero) / 1000!r},"args":{{"messages":{value}}}}}' for time, value in values]
        )

    def _add_queues(self, is_last: bool = False) -> None:
        for queue, depth in self._depths.items():
            depths, drops = depth.tell(is_last)
            self._add_counter(QUEUES, queue.name, depths)
            name = json_text(f"dropped: {queue.name}")
            place = _place(QUEUES, QUEUES)
            self._file.extend([self._event("i", name, "drop", place, time, ',"s":"p"') for time in drops])

    def _add_held(self) -> None:
        """Sample how many frames are kept because a stream may still read them."""
        if self._run.is_virtual:
            return  # the run is over before it is looked at
        for operator in self._run.operators:
            if operator.streams:
                held = operator.frames_kept
                self._add_counter(IN_FLIGHT, f"{operator.name}: frames kept", [(self._newest, held)])

    # Paths.

    def add_flows(self, flows: Flows) -> None:
        """Write messages that reached the end of a path, if it is known when they did."""
        if not flows.is_timed.all():  # of a very fast operator, only some computes are timed on the device
            flows = flows.part(np.flatnonzero(flows.is_timed))
        division = self._critical.divide(flows)
        name = json_text(" → ".join(operator.name for operator in flows.path.operators))
        sources = self._frames[flows.path.operators[0]].find(flows.computes[:, 0])[0][:, 0]
        frames = self._frame_names(np.where(flows.computes[:, 0] < 0, -1, sources))
        keys = [json_text(part) for part in division.names]
        for row, origin, done, (frame, source) in zip(
            range(len(flows.compute)), flows.origin.tolist(), flows.done.tolist(), frames, strict=True
        ):
            self._flow_count += 1
            parts = ",".join(
                f"{key}:{micros(part)}"
                for key, part in zip(keys, division.parts[row].tolist(), strict=True)
                if part
            )
            begins = max(origin, self._zero)
            # A local id, or Perfetto would show the path among the events of no process.
            place = f'{_place(PATHS, PATHS)},"id2":{{"local":"{self._flow_count:x}"}}'
            arguments = (
                f'"frame":{frame},"source":{source},"latency_us":{micros(done - origin)},'
                f'"parts_us":{{{parts}}},{self._hops(flows, division, row)}'
            )
            self._file.add(self._event("b", name, "path", place, begins, f',"args":{{{arguments}}}'))
            self._file.add(self._event("e", name, "path", place, max(done, begins)))

    def _hops(self, flows: Flows, division: Division, row: int) -> str:
        """Return the times at each operator of the path, in microseconds of the trace."""
        times = flows.times[row].tolist()
        columns = {
            "received": times[0::2],
            "emitted": times[1::2],
            "gpu_started": division.gpu_started[row].tolist(),
            "gpu_ended": division.gpu_ended[row].tolist(),
        }
        return ",".join(
            f'"{column}":[{",".join(micros(time - self._zero) if time > _NEVER else "null" for time in values)}]'
            for column, values in columns.items()
        )

    # Kernels.

    def add_kernels(self, kernels: list[Activity]) -> None:
        """Add kernels and copies."""
        for each in kernels:
            self._add_kernel(each)

    def _add_kernel(self, activity: Activity) -> None:
        place, group, name = 1000, self._tracks.slice(activity.device, "", 0), f"stream {activity.stream}"
        arguments = activity.arguments
        operator = None
        if activity.operator is not None and activity.operator < len(self._run.operators):
            operator = self._run.operators[activity.operator]
        if operator is not None:
            arguments = {"operator": operator.name, "compute": activity.compute, **arguments}
            if operator.streams:
                group, _ = self._tracks.stream(operator.streams[0])
                place = self._tracks.place_of(operator.streams[0]) + 1
                name = f"kernels of {operator.name}, stream {activity.stream}"
        track = self._tracks.kernels(group, name, place)
        began = max(activity.started, self._gpu_ended.get(track, -(1 << 62)))
        ended = self._gpu_ended[track] = max(activity.ended, began)
        shown = json_text(arguments)[1:-1]
        self._file.add(
            self._slice(json_text(activity.name), "kernel", _place(group, track), began, ended, shown)
        )

    def write(self, is_last: bool = False) -> None:
        """Write what is known by now."""
        self._add_computed()
        self._add_queues(is_last)
        self._add_held()
        self._file.write()

    def close(self, outcome: Outcome | None) -> None:
        """Write what remains and close the file."""
        try:
            self.write(is_last=True)
            for operator, level in self._in_use.items():
                self._add_counter(IN_FLIGHT, operator.name, level.tell(END))
            arguments = {
                "outcome": None if outcome is None else str(outcome.ended_by),
                "clock_errors_ns": {str(device): error for device, error in self._run.clock_errors.items()},
                "kernels": self._run.kernels or "not shown",
                "dropped": {queue.name: queue.dropped for queue in self._depths if queue.dropped},
                "segments": {
                    segment.name: {
                        "state": segment.state,
                        "reason": segment.reason,
                        "frames": segment.frames,
                        "replayed": segment.replayed,
                    }
                    for segment in self._run.segments
                },
            }
            self._file.add(
                json_text({"ph": "M", "name": "end", "pid": HOST, "tid": HOST, "ts": 0, "args": arguments})
            )
        finally:
            self._file.close()


def _place(group: int, track: int) -> str:
    return f'"pid":{group},"tid":{track}'


_MOST_STREAMS = 1 << 10  # of an operator
_NEVER = -(1 << 61)
