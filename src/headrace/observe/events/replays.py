"""Replays: what is recorded of frames that a captured segment replays.

In a replay no operator computes. The queues and feeds at the boundary of the segment record messages as always. The
rows that the operators would have written besides are written here: the messages between them, and their computes.
So paths, counts and latencies are the same as in a run without capture.

The time on the host is that of one launch for all operators. Up to the launch it is divided evenly among them, in
their order; the rest, in which results are emitted, belongs to the last one.

The times on the device come from a second executable graph of the same recording, with records of events between
the operators. Its launches are slower: on an H200, 13 µs of the host's time in place of 4
(`benchmarks/graph_costs.py`). So it is launched as often as computes of ordinary operators are timed, and otherwise
the plain graph is. Where the work of each operator begins and ends is noted while the graph is recorded
(`OperatorSpans`). The next launch overwrites the times, which have to be read before; there are a few such graphs,
to be used in turn. Where the driver refuses them, the time of the whole graph is taken, for the last operator.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.gpu.capture import captured_frontier
from headrace.observe.events.gpu_timing import Sampling, Timer
from headrace.observe.events.queues import Feed
from headrace.observe.events.records import StreamInfo

if TYPE_CHECKING:
    from headrace._runtime import Node
    from headrace.observe.events.gpu_timing import DeviceTime, Piece
    from headrace.observe.events.recorder import NodeRecorder
    from headrace.observe.events.records import SegmentInfo
    from headrace.observe.events.watchers import Watcher

_log = logging.getLogger("headrace.observe")
_FEW = 2  # graphs that take times, if only some replays are timed
_MOST = 16  # and if all are
_WHOLE = "whole"  # in place of an operator: all of them


class ReplayWatch:
    """Watches the replays of operators that are recorded together.

    Parameters
    ----------
    segment
        The segment that they belong to.
    recorders
        The recorders of the operators, in the order of their computes.
    now
        The clock.
    device_time
        Returns the clock of a device; None if work on the device is not timed.
    watchers
        Those who watch the run.
    """

    def __init__(
        self,
        segment: SegmentInfo,
        recorders: Sequence[NodeRecorder],
        now: Callable[[], int],
        device_time: Callable[[int], DeviceTime] | None,
        watchers: Sequence[Watcher],
    ) -> None:
        self._segment = segment
        self.name = segment.name
        self._now = now
        self._device_time = device_time
        self._watchers = watchers
        self._notes_threads = any(watcher.wants_threads for watcher in watchers)
        inside = {recorder.info for recorder in recorders}
        self._members = [_Member(recorder, inside, set(segment.operators)) for recorder in recorders]
        # When the graph of this replay was launched, and what takes the times of that.
        self._launched = 0
        self._work: dict[Any, Piece] | None = None
        self._is_watching = False
        # Which replays are timed.
        self._sampling = Sampling()

    def new_spans(self, inner: Any) -> OperatorSpans | None:
        """Return what notes where each operator's work is in a graph; None if work on the device is not timed."""
        return None if self._device_time is None else OperatorSpans(inner)

    def around(self, replay: Callable[..., None]) -> Callable[..., None]:
        """Return a replay that records what its operators would have recorded."""
        now = self._now
        for watcher in self._watchers:
            try:
                replay = watcher.around_replays(self._segment, replay)
            except Exception:
                _log.exception("%s raised, and is not called around replays", type(watcher).__name__)

        def observed(*frame: Any) -> None:
            self._is_watching = True
            started = now()
            try:
                replay(*frame)
                self._note(started, now())
            finally:
                self._is_watching = False
                self._work = None

        return observed

    def _note(self, started: int, ended: int) -> None:
        """Record a frame for every operator; producers first, because the logs of consumers are read first."""
        members, work = self._members, self._work
        count = len(members)
        took = self._launched - started
        thread = get_ident() if self._notes_threads else 0
        for place, member in enumerate(members, 1):
            until = started + took * place // count if place < count else ended
            member.note(started + took * (place - 1) // count, until, thread, work)

    # Launches.

    def around_launches(self, launches: Any, spans: Any, managed: Any) -> _Launches:
        """Return what launches a recorded graph, and takes the times of some launches."""
        if self._device_time is None:
            return _Launches(self, launches)
        for member in self._members:
            member.managed, member.time = managed, self._device_time(managed.device_id)
        self._members[-1].segment = self._segment.name
        known = None if spans is None or not spans.is_complete else spans
        return _Launches(self, launches, self._members[0].time, known, self._members)

    def is_due(self, time: DeviceTime) -> bool:
        """Return whether the current replay is to be timed."""
        if not self._is_watching:
            return False
        if time.is_sampled:
            now = self._now()
            return now >= self._sampling.next and self._sampling.takes(now)
        return True

    def launched(self, work: dict[Any, Piece] | None) -> None:
        """Note that the graph of the current replay was launched, and its work, if it is timed."""
        self._launched = self._now()
        self._work = work


class _Member:
    """One of the operators: where it records what.

    Messages from other operators of the segment are taken by nobody in a replay. If the segment was divided, those
    to another part are sent all the same.
    """

    def __init__(self, recorder: NodeRecorder, inside: set[Any], of_segment: set[Any]) -> None:
        self._recorder = recorder
        self.info = recorder.info
        self._receivers = [
            queue.queue.receiver
            for queue in self.info.inputs
            if any(output.operator in of_segment for output in queue.outputs)
        ]
        self._emitters = [
            feed.emitter
            for output in self.info.outputs
            for feed in output.feeds
            if isinstance(feed, Feed) and feed.behind.info.operator in inside
        ]
        self.segment = ""
        """The name of the segment, if work that is not divided counts for this operator."""
        self.managed: Any = None
        self.time: DeviceTime | None = None
        # For the work of the operator, and for that of all of them if it is not divided.
        self._timers: dict[Any, Timer] = {}

    def read_times(self) -> None:
        """Read the times of work that the device has completed."""
        for timer in self._timers.values():
            timer.read()

    def note(self, started: int, ended: int, thread: int, work: dict[Any, Piece] | None) -> None:
        """Record a frame."""
        timed = -1
        if work is not None:
            place = self.info.node if self.info.node in work else _WHOLE
            if place is not _WHOLE or self.segment:
                timer = self._timers.get(place) or self._add_timer(place)
                timer.pieces.append(work[place])
                timed = self._recorder.timer.streams.index(timer)
        for receiver in self._receivers:
            receiver.note(started)
        for emitter in self._emitters:
            emitter.note(ended)
        self._recorder.note_replay(started, ended, thread, timed)

    def _add_timer(self, place: Any) -> Timer:
        info, managed = self.info, self.managed
        name = self.segment if place is _WHOLE else ""
        # That of its ordinary frames, if there is one, so that all its work is shown together.
        stream = next((each for each in info.streams if not name and each.device == managed.device_id), None)
        if stream is None:
            stream = StreamInfo(info, managed.device_id, int(managed.handle), len(info.streams), name)
        assert self.time is not None
        timer = self._timers[place] = Timer(stream, self.time)
        timer.is_exact = place is not _WHOLE
        info.streams.append(stream)
        self._recorder.timer.streams.append(timer)
        return timer


@dataclass(eq=False, slots=True)
class _Launches:
    """Launches a recorded graph, or one that takes times.

    Attributes
    ----------
    watch
        What is told about each launch.
    launches
        What launches the plain graph.
    time
        The clock of the device; None if nothing is timed.
    spans
        Where the work of each operator begins and ends; None if that is not known.
    members
        The operators.
    """

    watch: ReplayWatch
    launches: Any
    time: DeviceTime | None = None
    spans: OperatorSpans | None = None
    members: Sequence[_Member] = ()
    _graphs: deque[_TimedGraph] = field(default_factory=deque)

    def launch(self, addresses: list[int], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        watch, time = self.watch, self.time
        graph = None if time is None or not watch.is_due(time) else self._free_graph(time)
        if graph is None:
            self.launches.launch(addresses, stream)
            watch.launched(None)
        else:
            watch.launched(graph.launch(addresses, stream))

    def close(self) -> None:
        """Release the graphs; the device has finished."""
        for graph in self._graphs:
            graph.close()
        self._graphs.clear()
        self.launches.close()

    def _free_graph(self, time: DeviceTime) -> _TimedGraph | None:
        """Return a graph whose last times were read, or None."""
        graphs = self._graphs
        if graphs:
            graph = graphs[0]  # the one that was launched longest ago
            if graph.unread and (not time.is_sampled or graph.is_done):
                self._read(time)
            if not graph.unread:
                graphs.rotate(-1)
                return graph
        if len(graphs) >= (_FEW if time.is_sampled else _MOST):
            return None
        try:
            graph = _TimedGraph(self.launches, time, self.spans)
        except Exception:
            _log.debug("a segment is timed as a whole", exc_info=True)
            self.spans = None
            graph = _TimedGraph(self.launches, time, None)
        graphs.append(graph)
        return graph

    def _read(self, time: DeviceTime) -> None:
        """Read the times of earlier launches: the reader comes too seldom for two graphs."""
        try:
            with gpu.on_device(time.device_id):
                for member in self.members:
                    member.read_times()
        except Exception:  # the device has failed: the reader finds out
            _log.debug("no GPU times for a replay of %r", self.watch.name, exc_info=True)


class _TimedGraph:
    """A graph whose launches are timed: by events that it records, or, without spans, as a whole from outside.

    Attributes
    ----------
    unread
        An entry for each time of the last launch that was not read; until then, the events are in use.
    """

    def __init__(self, launches: Any, time: DeviceTime, spans: OperatorSpans | None) -> None:
        self.unread: deque[None] = deque()
        self._graph = launches
        self._is_own = spans is not None
        self._done = time.create_event()
        if spans is None:
            self._began = time.create_event()
            self._spans: dict[Any, tuple[Any, Any]] = {_WHOLE: (self._began, self._done)}
        else:
            events = [time.create_event() for _ in spans.points]
            self._graph = launches.with_records(zip(spans.points, events, strict=True))
            self._spans = {
                node: (events[began], events[ended]) for node, (began, ended) in spans.spans.items()
            }

    def launch(self, addresses: list[int], stream: gpu.StreamHandle) -> dict[Any, Piece]:
        """Launch the graph, and return the work of each operator, or of all of them."""
        if not self._is_own:
            stream.stream.record(self._began)
        self._graph.launch(addresses, stream)
        stream.stream.record(self._done)
        self.unread.extend([None] * len(self._spans))
        return {place: (*events, self._done, self.unread, True) for place, events in self._spans.items()}

    @property
    def is_done(self) -> bool:
        """Whether the device has completed the last launch."""
        return bool(self._done.is_done)

    def close(self) -> None:
        """Release the graph; the device has finished."""
        if self._is_own:
            self._graph.close()


class OperatorSpans:
    """Where the work of each operator begins and ends in a recorded graph.

    Work begins when that of the operators before it has ended, or with the graph. So one point serves as the end of
    an operator and as the beginning of those behind it.

    Parameters
    ----------
    inner
        The inputs inside the segment that the messages of each output go to.

    Attributes
    ----------
    points
        The nodes of the graph that come before each point, by their handles.
    spans
        For each operator, the numbers of the points at which it begins and ends.
    is_complete
        Whether all points are known; the driver may refuse to tell.
    """

    def __init__(self, inner: Mapping[tuple[Node, str], Iterable[tuple[Node, str]]]) -> None:
        self.points: list[dict[int, Any]] = []
        self.spans: dict[Node, tuple[int, int]] = {}
        self.is_complete = True
        self._sources: dict[Node, dict[Node, None]] = {}
        for (source, _), targets in inner.items():
            for target, _ in targets:
                self._sources.setdefault(target, {})[source] = None

    def begin(self, origin: gpu.StreamHandle) -> None:
        """Note the first point, at which nothing of the operators has been recorded yet."""
        self._add([origin])

    def end(self, node: Node, streams: Iterable[gpu.StreamHandle]) -> None:
        """Note the end of an operator, whose work is on these streams."""
        before = [self.spans[source][1] for source in self._sources.get(node, ())]
        begin = before[0] if before else 0
        if len(before) > 1 and self.is_complete:
            begin = len(self.points)
            self.points.append({handle: each for at in before for handle, each in self.points[at].items()})
        self.spans[node] = begin, self._add(streams)

    def _add(self, streams: Iterable[gpu.StreamHandle]) -> int:
        """Add the point that streams have reached, and return its number."""
        if self.is_complete:
            try:
                self.points.append(
                    {handle: each for one in streams for handle, each in captured_frontier(one).items()}
                )
            except Exception:
                _log.debug("the operators of a segment cannot be timed", exc_info=True)
                self.is_complete = False
        return len(self.points) - 1
