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

A part sends its graph again when it was restarted, and when the graph has changed. What has the same name is the
same, and the rest is new. What is not there any more keeps its figures.
"""

from __future__ import annotations

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
    Emissions,
    OperatorInfo,
    OutputInfo,
    QueueInfo,
    RunInfo,
    StreamInfo,
)
from headrace.observe.events.watchers import WatcherGroup
from headrace.observe.figures.run_figures import with_figures
from headrace.parts.forwarding import PartGraph, Round, Unpickler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Drops
    from headrace.observe.events.watchers import Watcher

_LATE = 1_500_000_000  # nanoseconds after which what a part does is known, if it does not say that it does nothing
_KEPT = 20_000  # computes of an operator whose messages may yet arrive
_NOTHING = np.zeros(0, np.int64)
_SHARED = ClockOffset()


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
        self._parts = {part: _Part(part, gpus.get(part)) for part in parts}
        self._early: list[tuple[_Part, PartGraph | Round]] = []
        self._links: dict[str, _Link] = {}
        self._waiting: dict[OperatorInfo, deque[Computes]] = {}
        self._shown: dict[OperatorInfo, int] = {}
        self._forgotten: defaultdict[OperatorInfo, int] = defaultdict(int)
        self._newest = 0  # the end of the newest compute that was shown
        self._threads: dict[tuple[str, int], int] = {}

    # What comes from the parts.

    def add(self, part: str, content: bytes, clock: ClockOffset = _SHARED) -> None:
        """Learn of a part: of its graph, and then of what happens there. With all graphs, the watchers begin.

        What a watcher raises then is raised here, as it is by a run in one process. The clock converts the times of
        the part from now on.
        """
        known = self._parts[part]
        known.clock = clock
        found = Unpickler(content, known.find).load()
        if self.run is not None:
            self.run.clocks[part] = clock
            self._take(known, found)
            self._show()
        elif known.graph is not None:
            self._early.append((known, found))
        else:
            known.graph = found
            if all(each.graph is not None for each in self._parts.values()):
                self._begin()

    def _take(self, part: _Part, found: PartGraph | Round) -> None:
        assert self.run is not None
        if isinstance(found, Round):
            self._read(self.run, part, found)
            return
        if not found.is_changed:
            self._begin_again(part)
        part.take(found, self.run, self._composed)
        self._arrange(self.run)
        self.group.tell("changed", self.run)

    def _begin_again(self, part: _Part) -> None:
        """Let the computes of a restarted part follow those of the process before."""
        limits = part.begin_again()
        for name, link in self._links.items():
            if name in part.ends:
                link.operator.is_cut = True
                limits[link.operator] = link.first
        for waiting in self._waiting.values():  # for computes that nobody will hear of
            for batch in waiting:
                batch.arrivals = [_without_producers(each, limits) for each in batch.arrivals]

    def end(self, outcome: Outcome | None) -> None:
        """End the watchers, and raise the first error of one."""
        if self.run is None and any(each.graph is not None for each in self._parts.values()):
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
        graphs = {part: each.graph for part, each in self._parts.items() if each.graph is not None}
        is_virtual = any(graph.is_virtual for graph in graphs.values())
        started = min(graph.started + self._parts[part].clock.offset for part, graph in graphs.items())
        epoch = 0 if is_virtual else time.time_ns() - time.perf_counter_ns()
        run = RunInfo(self.fragment.name, [], started, epoch, is_virtual)
        run.clocks = {part: self._parts[part].clock for part in graphs}
        self._composed = {operator.name: operator for operator in self.fragment.graph}
        for part, graph in graphs.items():
            self._parts[part].take(graph, run, self._composed)
        if not is_virtual:
            self._join_links(run)
        run.kernels = next((graph.kernels for graph in graphs.values() if graph.kernels), "")
        self._arrange(run)
        self._tables = FlowTables(run)
        self.run = run
        observation: Any = self
        self.group.begin(observation, run)
        early, self._early = self._early, []
        for part_of, found in early:
            self._take(part_of, found)
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

    def _join_links(self, run: RunInfo) -> None:
        """Make one operator of both ends of each link."""
        ends: defaultdict[str, dict[str, OperatorInfo]] = defaultdict(dict)
        for part in self._parts.values():
            for name, end in part.ends.items():
                ends[name][end] = part.find(OperatorInfo, name)
        for name, both in ends.items():
            if len(both) < 2:
                continue
            sender, receiver = both["sends"], both["receives"]
            sender.is_link = True
            sender.outputs = receiver.outputs
            for output in sender.outputs:
                output.operator = sender
            run.operators.remove(receiver)
            self._links[name] = _Link(sender, receiver)

    # Computes.

    def _read(self, run: RunInfo, part: _Part, found: Round) -> None:
        offset = part.clock.offset
        part.count(found, run)
        if not run.is_virtual:  # the parts share one clock
            run.clock_offset = found.clock_offset - offset
        for ident, name in found.threads.items():
            run.threads.setdefault(self._thread(part.name, ident), (part.name, name))
        for name, times in found.links.items():
            link = self._links.get(name)
            if link is not None and not link.operator.is_cut:
                link.times[part.ends[name]] += [each + offset for each in times]
        senders = {link.operator: link for link in self._links.values()}
        receivers = {link.receiver for link in self._links.values()}
        for batch in found.computes:
            part.convert(batch, offset)
            if batch.operator in senders:
                if not batch.operator.is_cut:
                    senders[batch.operator].arrivals += batch.arrivals
            elif batch.operator not in receivers:
                numbers, places = np.unique(batch.threads, return_inverse=True)
                threads = [self._thread(part.name, each) for each in numbers.tolist()]
                batch.threads = np.array(threads, np.int64)[places]
                batch.arrivals = [_from_links(each) for each in batch.arrivals]
                self._waiting[batch.operator].append(batch)
        for link in self._links.values():
            made = link.take(self._track)
            if made is not None:
                self._waiting[link.operator].append(made)
        for drops in found.drops:
            part.convert_drops(drops, offset)
        self.group.show("messages_dropped", found.drops)
        self.group.show("ran", [part.kernel(*each, offset) for each in found.kernels])
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
    first
        The number of the next message.
    times, arrivals
        When each message left and arrived, and what is known of it in the queue of the sender, in order.
    """

    def __init__(self, operator: OperatorInfo, receiver: OperatorInfo) -> None:
        self.operator = operator
        self.receiver = receiver
        self.first = 0
        self.times: dict[str, list[int]] = {"sends": [], "receives": []}
        self.arrivals: list[Arrivals] = []
        self._tracks: list[int] = []

    def take(self, track_of: Any) -> Computes | None:
        """Return the messages of which everything is known, as computes; None if there are none."""
        sent, taken = self.times["sends"], self.times["receives"]
        count = min(len(sent), len(taken), sum(len(each.compute) for each in self.arrivals))
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
        known = {name: np.concatenate([getattr(each, name) for each in self.arrivals]) for name in columns}
        queue = self.operator.inputs[0]
        self.arrivals = [Arrivals(queue, **{name: column[count:] for name, column in known.items()})]
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
    """What the names of a part's operators, outputs, queues and streams stand for, and how its numbers go on.

    Attributes
    ----------
    graph
        The first graph, once there is one.
    clock
        What is added to its times to have those of the driver.
    ends
        Which end of each flow to another part is here: ``"sends"`` or ``"receives"``.
    """

    def __init__(self, name: str, gpus: Sequence[int] | None) -> None:
        self.name = name
        self.graph: PartGraph | None = None
        self.clock = _SHARED
        self.ends: dict[str, str] = {}
        self._gpus = gpus
        self._known: dict[tuple[Any, ...], Any] = {}
        # Where the outputs of a queue are in the run, which may have others of a process before.
        self._places: dict[QueueInfo, NDArray[np.int64]] = {}
        # The next number of a compute, or of a message in a queue; and what was counted of each. Then the same at
        # the end of the process before, which the numbers and counts of this one are added to.
        self._next: dict[Any, int] = {}
        self._counts: dict[Any, tuple[int, ...]] = {}
        self._first: dict[Any, int] = {}
        self._counts_before: dict[Any, tuple[int, ...]] = {}

    def find(self, kind: Any, *name: Any) -> Any:
        """Return the operator, output, queue or stream of a name."""
        found = self._known.get((kind, *name))
        if found is None:
            found = self._known[kind, *name] = self._make(kind, *name)
        return found

    def _make(self, kind: Any, name: str, *rest: Any) -> Any:
        if kind is OperatorInfo:
            return OperatorInfo(name, 0)
        operator = self.find(OperatorInfo, name)
        if kind is OutputInfo:
            return OutputInfo(operator, *rest)
        if kind is QueueInfo:
            counts, feed = _QueueCounts(), SimpleNamespace(emitter=SimpleNamespace(most=0))
            return QueueInfo(operator, rest[0], 0, 0, feeds=[feed], queue=counts)
        device, *others = rest
        operator.streams.append(StreamInfo(operator, self._device(device), *others))
        return operator.streams[-1]

    def take(self, graph: PartGraph, run: RunInfo, composed: Mapping[str, Any]) -> None:
        """Add what is new in a graph, and connect the rest as it is there."""
        for each in graph.operators:
            operator = each.info
            if operator.node is None:
                unknown = type(each.kind, (), {"_headrace": _NO_STATE, "conditions": _UNKNOWN})
                operator.node = _NodeCounts(composed.get(operator.name) or unknown())
                run.operators.append(operator)
                if each.end:
                    self.ends[operator.name] = each.end
                else:
                    run.fragments[operator.name] = self.name
            for name, value in each.attributes.items():
                setattr(operator, name, value)
            for output, queues in each.outputs:
                operator.outputs += [] if output in operator.outputs else [output]
                output.feed([], queues)
            for queue, size, outputs in each.inputs:
                operator.inputs += [] if queue in operator.inputs else [queue]
                queue.size = size
                queue.outputs += [output for output in outputs if output not in queue.outputs]
                self._places[queue] = np.array([queue.outputs.index(output) for output in outputs], np.int64)
        for workers in graph.workers:
            workers.name = f"{self.name}, {workers.name}"
            known = next((each for each in run.workers if each.name == workers.name), None)
            if known is not None:
                known.operators[:] = workers.operators
            elif workers.operators:
                run.workers.append(workers)
        if graph is self.graph:
            run.segments += graph.segments
            for segment in graph.segments:
                for operator in segment.operators:
                    operator.segment = segment

    def begin_again(self) -> dict[OperatorInfo, int]:
        """Let numbers and counts follow those of another process; return the number of each operator's computes."""
        self._first, self._counts_before = dict(self._next), dict(self._counts)
        operators = (each for (kind, *_), each in self._known.items() if kind is OperatorInfo)
        return {operator: self._next.get(operator, 0) for operator in operators}

    def convert(self, batch: Computes, offset: int) -> None:
        """Convert the numbers of computes to those of the run, and their times to its clock."""
        first = self._first.get(batch.operator, 0)
        batch.first += first
        batch.due = np.where(batch.ticks, batch.due + offset, batch.due)
        _add(offset, batch, "started", "ended")
        for work in batch.gpu:
            _add(first, work, "compute")
            _add(offset, work, "started", "ended", "certain")
        for emissions in batch.emissions:
            _add(first, emissions, "compute", "producer", "rejected_by")
            _add(offset, emissions, "emitted", "rejected")
        for arrivals in batch.arrivals:
            _add(first, arrivals, "compute")
            _add(offset, arrivals, "emitted", "received")
        for messages in (*batch.arrivals, *batch.emissions):
            self._convert_messages(messages)
        for discards in batch.discards:
            self.convert_drops(discards, offset)
        for arrivals in batch.arrivals:
            firsts = [self._first.get(output.operator, 0) for output in arrivals.queue.outputs]
            arrivals.producer = arrivals.producer + np.array(firsts, np.int64)[arrivals.output]
        self._next[batch.operator] = batch.first + len(batch.started)

    def convert_drops(self, drops: Drops, offset: int) -> None:
        """Convert messages that nobody receives in the same way."""
        _add(offset, drops, "dropped")
        self._convert_messages(drops)

    def _convert_messages(self, messages: Any) -> None:
        """Convert the numbers of messages, and the positions of the outputs that emitted them."""
        queue = messages.queue
        messages.number = messages.number + self._first.get(queue, 0)
        messages.output = self._places[queue][messages.output]
        self._next[queue] = max(self._next.get(queue, 0), int(messages.number.max(initial=-1)) + 1)

    def _device(self, device: int) -> int:
        return device if self._gpus is None or device >= len(self._gpus) else self._gpus[device]

    def kernel(self, activity: Any, operator: OperatorInfo | None, offset: int) -> Any:
        """Return a kernel or copy of the part, with the times and numbers of the run."""
        return replace(
            activity,
            operator=None if operator is None else operator.index,
            compute=activity.compute + self._first.get(operator, 0),
            device=self._device(activity.device),
            started=activity.started + offset,
            ended=activity.ended + offset,
        )

    def count(self, found: Round, run: RunInfo) -> None:
        """Note the counts so far."""
        for operator, kept, counts in found.operators:
            operator.node.counts = FaultCounts(*self._count(operator, counts))
            operator.node.lifetimes.frames_in_flight = kept
        for output, count in found.outputs:
            (output._earlier,) = self._count(output, (count,))
        for queue, size, waiting, most, counts in found.queues:
            queue.size, queue.queue.waiting, queue.feeds[0].emitter.most = size, waiting, most
            queue.queue.dropped, queue.queue.discarded = self._count(queue, counts)
        for (operator, parameter), shown in found.live.items():
            state = operator.node.operator._headrace.live_state
            if state is not None:  # of an operator that the driver has composed
                state.show(parameter, shown)
        assert self.graph is not None
        for segment, states in zip(self.graph.segments, found.segments, strict=True):
            vars(segment.segment).update(states)
        run.device_sm_counts |= {self._device(each): count for each, count in found.device_sm_counts.items()}
        run.clock_errors |= {self._device(each): error for each, error in found.clock_errors.items()}
        run.pages |= {self.name: found.page} if found.page else {}

    def _count(self, what: Any, counts: tuple[int, ...]) -> tuple[Any, ...]:
        before = self._counts_before.get(what, (0,) * len(counts))
        total = self._counts[what] = tuple(map(sum, zip(counts, before, strict=True)))
        return total


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


def _add(number: int, record: Any, *columns: str) -> None:
    for name in columns:
        setattr(record, name, getattr(record, name) + number)


def _from_links(arrivals: Arrivals) -> Arrivals:
    """Return messages of which those that came over a link follow from the computes of the link, if it is known."""
    links = [output.operator.is_link for output in arrivals.queue.outputs]
    if not any(links):
        return arrivals
    is_cut = np.array([output.operator.is_cut for output in arrivals.queue.outputs])[arrivals.output]
    is_from_link = np.array(links)[arrivals.output]
    return replace(
        arrivals,
        producer=np.where(is_from_link, np.where(is_cut, -1, arrivals.number), arrivals.producer),
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
        if queue in output.queues and output.operator not in queue.closing
    }
