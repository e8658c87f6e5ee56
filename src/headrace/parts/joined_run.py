"""JoinedRun: the runs of all parts as one run, on one time line, for the watchers of the driver.

Each part sends its graph and then its computes (`forwarding`). Here they are operators and queues of one graph. The
two ends of a link become one operator. It computes once for each message, from the moment at which the message was
sent to the moment at which it was taken, so a path leads through it, and its time is known like that of any other.

The times of a part on another host are converted to the clock of the driver (`observe.events.clock_offsets`). Parts
with simulated time have clocks that know nothing of each other: their links are not joined, and paths end there.

A compute is shown when those whose messages it received were shown, as in one process. At the end, what still waits
for others is shown as it is, because the part that would have sent them is gone.

The computes of a part that was restarted are numbered behind those of the process before. Its links are new, and no
number says which of their messages were sent before: from then on, paths end at them.

A part whose graph has changed sends it again. What it had is still there, in the same order, and the rest is new.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from dataclasses import replace
from graphlib import TopologicalSorter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.condition import Condition
from headrace.core.error_policy import ErrorPolicy, FaultCounts
from headrace.observe.events.clock_offsets import ClockOffset
from headrace.observe.events.flow_tables import FlowTables, mark_cycles
from headrace.observe.events.records import (
    NO_TIMESTAMP,
    Arrivals,
    Computes,
    Drops,
    Emissions,
    OperatorInfo,
    OutputInfo,
    QueueInfo,
    RunInfo,
    SegmentInfo,
    StreamInfo,
    WorkersInfo,
)
from headrace.observe.events.watchers import WatcherGroup
from headrace.observe.figures.run_figures import with_figures
from headrace.parts.forwarding import PartGraph, Round, Unpickler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Times
    from headrace.observe.events.watchers import Watcher

_log = logging.getLogger("headrace.parts")
_LATE = 1_500_000_000  # nanoseconds after which what a part does is known, if it does not say that it does nothing
_KEPT = 20_000  # computes of an operator whose messages may yet arrive
_NOTHING = np.zeros(0, np.int64)


class JoinedRun:
    """The run of all parts.

    Parameters
    ----------
    application
        The application, as the driver has composed it.
    parts
        The names of the parts.
    watchers
        Those to whom the run is shown.
    gpus
        The GPUs that the process of a part sees as its first, second and so on; None if it sees all.

    Attributes
    ----------
    run
        The run, once all parts have begun.
    group
        The watchers.
    """

    def __init__(
        self,
        application: Any,
        parts: Sequence[str],
        watchers: Sequence[Watcher],
        gpus: Mapping[str, Sequence[int] | None],
    ) -> None:
        self.watchers = with_figures(watchers)
        self.group = WatcherGroup(self.watchers)
        self.run: RunInfo | None = None
        self.fragment = application
        self._graphs: dict[str, PartGraph] = {}
        self._clocks = dict.fromkeys(parts, ClockOffset())
        self._early: list[tuple[str, PartGraph | bytes]] = []
        self._parts: dict[str, _Part] = {}
        self._gpus = gpus
        self._links: dict[str, _Link] = {}
        self._waiting: dict[OperatorInfo, deque[Computes]] = {}
        self._shown: dict[OperatorInfo, int] = {}
        self._forgotten: defaultdict[OperatorInfo, int] = defaultdict(int)
        self._newest = 0  # the end of the newest compute that was shown
        self._threads: dict[tuple[str, int], int] = {}

    # What comes from the parts.

    def set_clock(self, part: str, clock: ClockOffset) -> None:
        """Convert the times of a part from now on by this offset."""
        self._clocks[part] = clock
        if self.run is not None:
            self.run.clocks[part] = clock

    def describe(self, part: str, graph: PartGraph) -> None:
        """Learn the graph of a part; when all are known, the watchers begin.

        What a watcher raises then is raised here, as it is by a run in one process.
        """
        if part in self._graphs:
            if self.run is None:
                self._early.append((part, graph))
            else:
                self._describe_again(part, graph)
            return
        self._graphs[part] = graph
        if self._graphs.keys() >= self._clocks.keys():
            self._begin()

    def _describe_again(self, part: str, graph: PartGraph) -> None:
        if graph.is_changed:
            self._change(part, graph)
        else:
            self._begin_again(part, graph)

    def _change(self, part: str, graph: PartGraph) -> None:
        """Add operators and flows that began in a part."""
        run, known = self.run, self._parts[part]
        assert run is not None
        if not known.is_known:
            return
        known.change(graph)
        self._arrange(run)
        self.group.tell("changed", run)

    def _begin_again(self, part: str, graph: PartGraph) -> None:
        """Let the computes of a restarted part follow those of the process before."""
        known = self._parts[part]
        limits = known.begin_again(graph)
        for name, link in self._links.items():
            if known.name_of_end(name):
                link.is_cut = link.operator.is_cut = True
                limits[link.operator] = link.first
        for waiting in self._waiting.values():  # for computes that nobody will hear of
            for batch in waiting:
                batch.arrivals = [_without_producers(each, limits) for each in batch.arrivals]
        self._show()

    def add(self, part: str, content: bytes) -> None:
        """Add a round of a part."""
        if self.run is None:
            self._early.append((part, content))
            return
        self._read(part, content)
        self._show()

    def end(self, outcome: Outcome | None) -> None:
        """End the watchers, and raise the first error of one."""
        if self.run is None and self._graphs:
            self._begin()
        if self.run is not None:
            self._show(is_last=True)
        self.group.end(outcome)

    # For watchers, as an Observation.

    def now(self) -> int:
        """Return the time of the time line."""
        return time.perf_counter_ns()

    @property
    def known_until(self) -> int:
        """The time up to which all is known: that of the newest compute, unless nothing has come for a while."""
        now = self.now()
        return now if now - self._newest >= _LATE else self._newest

    def catch_up(self) -> None:
        """Do nothing: what happens elsewhere comes by itself."""

    # The graph.

    def _begin(self) -> None:
        graphs = {part: self._graphs[part] for part in self._clocks if part in self._graphs}
        is_virtual = any(graph.is_virtual for graph in graphs.values())
        started = min(graph.started + self._clocks[part].offset for part, graph in graphs.items())
        epoch = 0 if is_virtual else time.time_ns() - time.perf_counter_ns()
        run = RunInfo(self.fragment.name, [], started, epoch, is_virtual)
        run.clocks = {part: self._clocks[part] for part in graphs}
        composed = {operator.name: operator for operator in self.fragment.graph}
        for part, graph in graphs.items():
            self._parts[part] = _Part(part, graph, run, self._gpus.get(part), composed)
        if not is_virtual:
            self._join_links(run, graphs)
        run.kernels = next((graph.kernels for graph in graphs.values() if graph.kernels), "")
        self._arrange(run)
        self._tables = FlowTables(run)
        self.run = run
        observation: Any = self
        self.group.begin(observation, run)
        early, self._early = self._early, []
        for part, content in early:
            if isinstance(content, PartGraph):
                self._describe_again(part, content)
            else:
                self._read(part, content)
        self._show()

    def _arrange(self, run: RunInfo) -> None:
        """Number the operators and queues, and find the order in which computes are shown."""
        for index, operator in enumerate(run.operators):
            operator.index = index
            self._waiting.setdefault(operator, deque())
            self._shown.setdefault(operator, 0)
        for index, queue in enumerate(run.queues):
            queue.index = index
        mark_cycles(run.operators)
        self._order = list(
            TopologicalSorter({each: _producers(each) for each in run.operators}).static_order()
        )

    def _join_links(self, run: RunInfo, graphs: Mapping[str, PartGraph]) -> None:
        """Make one operator of both ends of each link."""
        ends: defaultdict[str, dict[str, OperatorInfo]] = defaultdict(dict)
        for part, graph in graphs.items():
            for operator, known in zip(self._parts[part].operators, graph.operators, strict=True):
                if known.sends or known.receives:
                    ends[known.sends or known.receives]["to" if known.sends else "from"] = operator
        for name, both in ends.items():
            if len(both) < 2:
                continue
            sender, receiver = both["to"], both["from"]
            sender.is_link = True
            sender.outputs = receiver.outputs
            for output in sender.outputs:
                output.operator = sender
            run.operators.remove(receiver)
            self._links[name] = _Link(sender, receiver)

    # Computes.

    def _read(self, part: str, content: bytes) -> None:
        run, known = self.run, self._parts[part]
        assert run is not None
        if not known.is_known:
            return
        found: Round = Unpickler(content, known.find).load()
        known.count(found)
        offset = self._clocks[part].offset
        if not run.is_virtual:  # the parts share one clock
            run.clock_offset = found.clock_offset - offset
        for ident, name in found.threads.items():
            run.threads.setdefault(self._thread(part, ident), (part, name))
        for name, times in found.links.items():
            if name in self._links and not self._links[name].is_cut:
                self._links[name].add_times(known.name_of_end(name), [each + offset for each in times])
        senders = {link.operator: link for link in self._links.values()}
        receivers = {link.receiver for link in self._links.values()}
        cut = {link.operator: -1 for link in self._links.values() if link.is_cut}
        for batch in found.computes:
            _shift(batch, offset)
            known.renumber(batch)
            if batch.operator in senders:
                if batch.operator not in cut:
                    senders[batch.operator].add_arrivals(batch.arrivals)
            elif batch.operator not in receivers:
                numbers, places = np.unique(batch.threads, return_inverse=True)
                threads = [self._thread(part, each) for each in numbers.tolist()]
                batch.threads = np.array(threads, np.int64)[places]
                batch.arrivals = [_without_producers(_from_link(each), cut) for each in batch.arrivals]
                self._waiting[batch.operator].append(batch)
        for link in self._links.values():
            made = link.take(self._track)
            if made is not None:
                self._waiting[link.operator].append(made)
        self.group.show("messages_dropped", [known.renumber_drops(each, offset) for each in found.drops])
        self.group.show("ran", [known.kernel(each, offset) for each in found.kernels])
        run.kernels = found.kernels_shown or run.kernels

    def _thread(self, part: str, ident: int) -> int:
        """Return a number for a thread, which several processes may know by the same one; 0 stays 0."""
        return self._threads.setdefault((part, ident), len(self._threads) + 1) if ident else 0

    def _track(self, link: _Link, track: int) -> int:
        """Return a number for a track of a link, on which its messages do not overlap."""
        assert self.run is not None
        thread = self._thread(f"link {link.operator.name}", track + 1)
        self.run.threads.setdefault(thread, ("links", link.operator.name))
        return thread

    def _show(self, is_last: bool = False) -> None:
        found = False
        for operator in self._order:
            waiting = self._waiting[operator]
            while waiting and (is_last or self._is_ready(waiting[0])):
                batch = waiting.popleft()
                found = True
                self._shown[operator] = batch.first + len(batch.started)
                self._newest = max(self._newest, int(batch.ended[-1]))
                self.group.tell("computed", batch)
                self.group.show("flowed", self._tables.add(batch))
        self.group.show("flowed", self._tables.close_cycles(self._shown))
        if not found:
            return
        for operator, shown in self._shown.items():
            if shown > self._forgotten[operator] + 2 * _KEPT:
                self._forgotten[operator] = shown - _KEPT
                self._tables.forget(operator, shown - _KEPT, _NOTHING)
        self.group.tell("resolved")

    def _is_ready(self, batch: Computes) -> bool:
        """Return whether everything that a batch follows from was shown."""
        for arrivals in batch.arrivals:
            for position, output in enumerate(arrivals.queue.outputs):
                if output.operator not in arrivals.queue.closing:
                    producers = arrivals.producer[arrivals.output == position]
                    if producers.max(initial=-1) >= self._shown[output.operator]:
                        return False
        return True


class _Link:
    """Both ends of a link, as one operator.

    Attributes
    ----------
    operator
        The operator, which has the queue of the sender and the output of the receiver.
    receiver
        The receiver by itself, whose computes are not shown.
    is_cut
        Whether a part of it was restarted, so that its messages are not known any more.
    first
        The number of the next message.
    """

    def __init__(self, operator: OperatorInfo, receiver: OperatorInfo) -> None:
        self.operator = operator
        self.receiver = receiver
        self.is_cut = False
        self.first = 0
        # When each message left and arrived, and what is known of it in the queue of the sender, in order.
        self._times: dict[str, list[int]] = {"sends": [], "receives": []}
        self._arrivals: list[Arrivals] = []
        self._tracks: list[int] = []

    def add_times(self, end: str, times: list[int]) -> None:
        """Add when messages were sent, or taken."""
        self._times[end] += times

    def add_arrivals(self, arrivals: list[Arrivals]) -> None:
        """Add messages that left the queue of the sender."""
        self._arrivals += arrivals

    def take(self, track_of: Any) -> Computes | None:
        """Return the messages of which everything is known, as computes; None if there are none."""
        sent, taken = self._times["sends"], self._times["receives"]
        count = min(len(sent), len(taken), sum(len(each.compute) for each in self._arrivals))
        if not count:
            return None
        ended = np.array(taken[:count], np.int64)
        # Two clocks: a message might seem to arrive before it left.
        started = np.minimum(np.array(sent[:count], np.int64), ended)
        del sent[:count], taken[:count]
        arrived = self._take_arrivals(count)
        compute = np.arange(self.first, self.first + count, dtype=np.int64)
        arrived = replace(
            arrived, compute=compute, received=started, emitted=np.minimum(arrived.emitted, started)
        )
        self.first += count
        no, unknown = np.zeros(count, np.bool_), np.full(count, NO_TIMESTAMP)
        tracks = [track_of(self, track) for track in self._find_tracks(started.tolist(), ended.tolist())]
        emissions = [
            Emissions(
                queue,
                queue.outputs.index(output),
                compute,
                compute,
                ended,
                producer=compute,
                acq_timestamp=unknown,
                rejected=_NOTHING,
                rejected_by=_NOTHING,
            )
            for output in self.operator.outputs
            for queue in output.queues
        ]
        return Computes(
            self.operator,
            int(compute[0]),
            started,
            ended,
            np.array(tracks, np.int64),
            np.ones(count, np.bool_),
            [arrived],
            [],
            emissions,
            [],
            is_replayed=no,
            is_failed=no,
            due=unknown,
            skipped=np.zeros(count, np.int64),
            cpu_time=unknown,
            others_cpu_time=unknown,
        )

    def _take_arrivals(self, count: int) -> Arrivals:
        columns = ("compute", "output", "number", "producer", "emitted", "received", "acq_timestamp")
        known = {name: np.concatenate([getattr(each, name) for each in self._arrivals]) for name in columns}
        queue = self.operator.inputs[0]
        self._arrivals = [Arrivals(queue, **{name: column[count:] for name, column in known.items()})]
        return Arrivals(queue, **{name: column[:count] for name, column in known.items()})

    def _find_tracks(self, started: list[int], ended: list[int]) -> Iterator[int]:
        """Yield for each message a track that is free when it is sent."""
        tracks = self._tracks
        for began, end in zip(started, ended, strict=True):
            track = next((track for track, free in enumerate(tracks) if free <= began), len(tracks))
            tracks[track : track + 1] = [end]
            yield track


# Of an operator of another process that the driver has not composed: it may have any condition.
_UNKNOWN = {"unknown": Condition(name="unknown")}
_NO_STATE = SimpleNamespace(
    live_parameters={}, live_state=None, conditions=tuple(_UNKNOWN.values()), error_policy=ErrorPolicy()
)


class _Part:
    """What the numbers of a part's operators, queues and streams stand for."""

    def __init__(
        self,
        name: str,
        graph: PartGraph,
        run: RunInfo,
        gpus: Sequence[int] | None,
        composed: Mapping[str, Any],
    ) -> None:
        self.name = name
        self._gpus = gpus
        self._run = run
        self._graph = self._first_graph = graph
        self._composed = composed
        self.operators: list[OperatorInfo] = []
        self._outputs: dict[tuple[int, str], OutputInfo] = {}
        self._queues: dict[int, QueueInfo] = {}
        self._workers: dict[str, WorkersInfo] = {}
        self._add(graph)
        self._segments = [
            SegmentInfo(
                text,
                [self.operators[index] for index in members],
                SimpleNamespace(state="", reason="", frames=0, replayed=0),
            )
            for text, members in graph.segments
        ]
        for segment in self._segments:
            for operator in segment.operators:
                operator.segment = segment
        run.segments += self._segments
        self._streams: dict[Any, StreamInfo] = {}
        self.is_known = True
        # How many computes and messages are known; how many there were before this process.
        self._computes: dict[OperatorInfo, int] = {}
        self._numbers: dict[QueueInfo, int] = {}
        self._bases: dict[OperatorInfo, int] = {}
        self._number_bases: dict[QueueInfo, int] = {}
        self._counts_before: dict[OperatorInfo, tuple[int, ...]] = {}
        self._outputs_before: dict[OutputInfo, int] = {}
        self._queues_before: dict[QueueInfo, tuple[int, int]] = {}

    def _add(self, graph: PartGraph) -> None:
        """Add what is new in a graph."""
        name, run = self.name, self._run
        for each in graph.operators[len(self.operators) :]:
            composed = (
                self._composed.get(each.name)
                or type(each.kind, (), {"_headrace": _NO_STATE, "conditions": _UNKNOWN})()
            )
            operator = OperatorInfo(
                each.name, 0, slice=each.slice, sm_count=each.sm_count, node=_NodeCounts(composed)
            )
            operator.goes_on, operator.is_parallel = each.goes_on, each.is_parallel
            self.operators.append(operator)
            run.operators.append(operator)
            if not (each.sends or each.receives):
                run.fragments[each.name] = name
        for index, each in enumerate(graph.operators):
            for port in each.outputs:
                if (index, port) not in self._outputs:
                    output = self._outputs[index, port] = OutputInfo(self.operators[index], port)
                    output.operator.outputs.append(output)
        for known in graph.queues:
            if known.index not in self._queues:
                queue = QueueInfo(self.operators[known.operator], known.port, known.size, 0)
                queue.queue, queue.feeds = _QueueCounts(), [SimpleNamespace(emitter=SimpleNamespace(most=0))]
                queue.operator.inputs.append(queue)
                self._queues[known.index] = queue
            queue = self._queues[known.index]
            queue.outputs += [self._outputs[each] for each in known.outputs[len(queue.outputs) :]]
        for index, each in enumerate(graph.operators):
            for port, queues in zip(each.outputs, each.queues, strict=True):
                self._outputs[index, port].feed([], [self._queues[number] for number in queues])
        for title, count, members in graph.workers:
            of = [graph.operators[index] for index in members]
            shared = [
                self.operators[index]
                for index, each in zip(members, of, strict=True)
                if not (each.sends or each.receives)
            ]
            if shared and title not in self._workers:
                self._workers[title] = WorkersInfo(f"{name}, {title}", count, [])
                run.workers.append(self._workers[title])
            if shared:
                self._workers[title].operators[:] = shared

    def change(self, graph: PartGraph) -> None:
        """Add what began in the run. Another process of the part may have begun something else before."""
        is_same = all(
            each.name == operator.name
            for each, operator in zip(graph.operators, self.operators, strict=False)
        ) and all(
            (queue := self._queues.get(each.index)) is None
            or (queue.operator is self.operators[each.operator] and queue.port == each.port)
            for each in graph.queues
        )
        if not is_same:
            self._forget()
            return
        self._add(graph)
        self._graph = graph

    def _forget(self) -> None:
        self.is_known = False
        for operator in self.operators:
            operator.is_unseen = True
        _log.warning(
            "fragment %r has another graph since it was restarted, and is not watched any more", self.name
        )

    def name_of_end(self, flow: str) -> str:
        """Return which end of a link is here; empty for none."""
        ends = {each.sends: "sends" for each in self._graph.operators if each.sends}
        ends |= {each.receives: "receives" for each in self._graph.operators if each.receives}
        return ends.get(flow, "")

    # What a process of the part counts anew if it is not the first one.

    def begin_again(self, graph: PartGraph) -> dict[OperatorInfo, int]:
        """Number the computes of another process behind those so far; return the number of each operator's."""
        first = self._first_graph
        if graph.operators != first.operators or graph.queues != first.queues:
            self._forget()
        self._bases = dict(self._computes)
        self._number_bases = dict(self._numbers)
        self._counts_before = {operator: operator.node.total() for operator in self.operators}
        self._outputs_before = {output: output.count for output in self._outputs.values()}
        self._queues_before = {
            queue: (queue.queue.dropped, queue.queue.discarded) for queue in self._queues.values()
        }
        return {operator: self._computes.get(operator, 0) for operator in self.operators}

    def renumber(self, batch: Computes) -> None:
        """Note how far the numbers are, and add those of the processes before."""
        each: Any
        messages: Any
        if self._bases:
            base = self._bases.get(batch.operator, 0)
            batch.first += base
            for each in (*batch.gpu, *batch.arrivals, *batch.emissions):
                each.compute = each.compute + base
            for emissions in batch.emissions:
                emissions.producer = emissions.producer + base
                emissions.rejected_by = emissions.rejected_by + base
            for arrivals in batch.arrivals:
                bases = [self._bases.get(output.operator, 0) for output in arrivals.queue.outputs]
                arrivals.producer = arrivals.producer + np.array(bases, np.int64)[arrivals.output]
            for messages in (*batch.arrivals, *batch.emissions, *batch.discards):
                messages.number = messages.number + self._number_bases.get(messages.queue, 0)
        self._computes[batch.operator] = batch.first + len(batch.started)
        for messages in (*batch.arrivals, *batch.emissions):
            most = int(messages.number.max(initial=-1)) + 1
            self._numbers[messages.queue] = max(self._numbers.get(messages.queue, 0), most)

    def renumber_drops(self, drops: Drops, offset: int) -> Drops:
        """Return messages that were dropped, with the numbers of the run, and times of its clock."""
        number = drops.number + self._number_bases.get(drops.queue, 0)
        return replace(drops, number=number, dropped=drops.dropped + offset)

    def find(self, kind: str, number: Any) -> Any:
        """Return the operator, queue or stream of a number."""
        if kind == "operator":
            return self.operators[number]
        if kind == "queue":
            return self._queues[number]
        if number not in self._streams:
            index, device, handle, position, segment = number
            operator = self.operators[index]
            stream = StreamInfo(operator, self._device(device), handle, position, segment)
            self._streams[number] = stream
            operator.streams.append(stream)
        return self._streams[number]

    def _device(self, device: int) -> int:
        return device if self._gpus is None or device >= len(self._gpus) else self._gpus[device]

    def kernel(self, activity: Any, offset: int) -> Any:
        """Return a kernel or copy of the part, with the times and numbers of the run."""
        index = activity.operator
        return replace(
            activity,
            operator=None if index is None else self.operators[index].index,
            compute=activity.compute + (0 if index is None else self._bases.get(self.operators[index], 0)),
            device=self._device(activity.device),
            started=activity.started + offset,
            ended=activity.ended + offset,
        )

    def count(self, found: Round) -> None:
        """Note the counts so far."""
        for operator, counts in zip(self.operators, found.operators, strict=False):
            before = self._counts_before.get(operator, (0,) * 5)
            operator.node.set(map(sum, zip(counts, before, strict=False)), counts[-1])
        if found.page:
            self._run.pages[self.name] = found.page
        for (index, parameter), shown in found.live.items():
            state = self.operators[index].node.operator._headrace.live_state
            if state is not None:  # of an operator that the driver has composed
                state.show(parameter, shown)
        for index, outputs in enumerate(found.outputs):
            for port, count in zip(self._graph.operators[index].outputs, outputs, strict=False):
                output = self._outputs[index, port]
                output._earlier = count + self._outputs_before.get(output, 0)
        for index, waiting, most, dropped, discarded, size in found.queues:
            if index not in self._queues:  # it is described in a moment
                continue
            queue = self._queues[index]
            queue.size = size
            before = self._queues_before.get(queue, (0, 0))
            queue.queue.waiting = waiting
            queue.queue.dropped, queue.queue.discarded = dropped + before[0], discarded + before[1]
            queue.feeds[0].emitter.most = most
        for segment, states in zip(self._segments, found.segments, strict=True):
            for name, value in zip(("state", "reason", "frames", "replayed"), states, strict=True):
                setattr(segment.segment, name, value)
        run = self._run
        for device, count in found.device_sm_counts.items():
            run.device_sm_counts[self._device(device)] = count
        for device, error in found.clock_errors.items():
            run.clock_errors[self._device(device)] = error


class _QueueCounts:
    """The counts of a queue in another process."""

    held = undelivered = 0

    def __init__(self) -> None:
        self.waiting = self.dropped = self.discarded = 0
        self.reasons: dict[str, int] = {}

    def __len__(self) -> int:
        return self.waiting


class _NodeCounts:
    """The counts of an operator in another process; `operator` is that of the driver, which sets values there."""

    is_elsewhere = True

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.counts = FaultCounts()
        self.lifetimes = SimpleNamespace(frames_in_flight=0)

    def total(self) -> tuple[int, ...]:
        """Return the counts so far."""
        return self.counts.numbers

    def set(self, counts: Iterable[Any], kept: int) -> None:
        """Note the counts so far, and the number of frames that are kept for the device."""
        self.counts = FaultCounts(*counts)
        self.lifetimes.frames_in_flight = kept


def _shift(batch: Computes, offset: int) -> None:
    """Convert the times of computes to another clock."""
    if not offset:
        return

    def moved(times: Times) -> Times:
        return times + offset

    batch.started, batch.ended = moved(batch.started), moved(batch.ended)
    batch.due = np.where(batch.ticks, moved(batch.due), batch.due)
    for arrivals in batch.arrivals:
        arrivals.emitted, arrivals.received = moved(arrivals.emitted), moved(arrivals.received)
    for work in batch.gpu:
        work.started, work.ended, work.certain = moved(work.started), moved(work.ended), moved(work.certain)
    for emissions in batch.emissions:
        emissions.emitted, emissions.rejected = moved(emissions.emitted), moved(emissions.rejected)
    for discards in batch.discards:
        discards.dropped = moved(discards.dropped)


def _from_link(arrivals: Arrivals) -> Arrivals:
    """Return messages of which those that came over a link follow from the computes of the link."""
    places = [place for place, output in enumerate(arrivals.queue.outputs) if output.operator.is_link]
    if not places:
        return arrivals
    is_from_link = np.isin(arrivals.output, places)
    return replace(
        arrivals,
        producer=np.where(is_from_link, arrivals.number, arrivals.producer),
        # The origin of such a message is known from where it began.
        acq_timestamp=np.where(is_from_link, NO_TIMESTAMP, arrivals.acq_timestamp),
    )


def _without_producers(arrivals: Arrivals, limits: Mapping[OperatorInfo, int]) -> Arrivals:
    """Return messages that follow from no compute, if its number is not below the limit of its operator."""
    outputs = arrivals.queue.outputs
    if not any(output.operator in limits for output in outputs):
        return arrivals
    most = np.array([limits.get(output.operator, 1 << 62) for output in outputs], np.int64)
    return replace(
        arrivals, producer=np.where(arrivals.producer < most[arrivals.output], arrivals.producer, -1)
    )


def _producers(operator: OperatorInfo) -> set[OperatorInfo]:
    return {
        output.operator
        for queue in operator.inputs
        for output in queue.outputs
        if output.operator not in queue.closing
    }
