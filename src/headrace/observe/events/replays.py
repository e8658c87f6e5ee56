"""Replays: what is recorded of frames that a captured segment replays.

In a replay no operator computes. The queues and feeds at the boundary of the segment record messages as always. The
rows that the operators would have written besides are written here: the messages between them, and their computes.
So paths, counts and latencies are the same as in a run without capture.

The time on the host is that of one launch for all operators. Up to the launch it is divided evenly among them, in
their order; the rest, in which results are emitted, belongs to the last one.

The times on the device come from a second executable graph of the same recording, with records of events between
the operators. Its launches are slower: on an H200, 13 µs of the host's time in place of 4
(`benchmarks/graph_costs.py`). So it is launched as often as computes of ordinary operators are timed, and otherwise
the plain graph is. The next launch overwrites the times, which have to be read before; there are a few such graphs,
to be used in turn. Where the driver refuses them, the time of the whole graph is taken, which counts for the last
operator.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.observe.events.operator_spans import OperatorSpans
from headrace.observe.events.queues import Feed
from headrace.observe.events.records import StreamInfo
from headrace.observe.events.sampling import Sampling

if TYPE_CHECKING:
    from headrace.observe.events.gpu_timing import DeviceTime
    from headrace.observe.events.recorder import NodeRecorder
    from headrace.observe.events.records import SegmentInfo
    from headrace.observe.events.watchers import Watcher

_log = logging.getLogger("headrace.observe")
_FEW = 2  # graphs that take times, if only some replays are timed
_MOST = 16  # and if all are
_WHOLE = -1  # in place of the place of an operator: all operators


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
        self._now = now
        self._device_time = device_time
        self._watchers = watchers
        self._notes_threads = any(watcher.wants_threads for watcher in watchers)
        inside = {recorder.info for recorder in recorders}
        self._members = [_Member(recorder, inside, set(segment.operators)) for recorder in recorders]
        # When the graph of this replay was launched, and what takes the times of that.
        self._launched = 0
        self._sample: _Sample | None = None
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
                self._sample = None

        return observed

    def _note(self, started: int, ended: int) -> None:
        """Record a frame for every operator; producers first, because the logs of consumers are read first."""
        members, sample = self._members, self._sample
        count = len(members)
        took = self._launched - started
        thread = get_ident() if self._notes_threads else 0
        for place, member in enumerate(members, 1):
            until = started + took * place // count if place < count else ended
            member.note(started + took * (place - 1) // count, until, thread, sample)

    # Launches.

    def around_launches(self, launches: Any, spans: Any, managed: Any) -> _Launches:
        """Return what launches a recorded graph, and takes the times of some launches."""
        if self._device_time is None:
            return _Launches(self, launches, None, None)
        for place, member in enumerate(self._members):
            member.prepare(place, managed)
        self._members[-1].segment = self._segment.name
        return _Launches(
            self, launches, self._device_time(managed.device_id), self._how_to_time(launches, spans)
        )

    def _how_to_time(self, launches: Any, spans: Any) -> Callable[[DeviceTime], _TimedGraph]:
        if spans is None or not spans.is_complete:
            return lambda time: _WholeGraph(launches, time)
        places = {place: spans.spans[member.info.node] for place, member in enumerate(self._members)}
        return lambda time: _DividedGraph(launches, time, spans.points, places)

    def is_due(self, time: DeviceTime) -> bool:
        """Return whether the current replay is to be timed."""
        if not self._is_watching:
            return False
        if time.is_sampled:
            now = self._now()
            return now >= self._sampling.next and self._sampling.takes(now)
        return True

    def launched(self, sample: _Sample | None) -> None:
        """Note that the graph of the current replay was launched."""
        self._launched = self._now()
        self._sample = sample


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
        self._place = -1
        self._managed: Any = None
        # With their positions: for the work of the operator, and for that of all of them if it is not divided.
        self._timers: dict[int, tuple[int, ReplayTimer]] = {}

    def prepare(self, place: int, managed: Any) -> None:
        """Prepare to be timed, as the operator at a place of its segment, which is replayed on a stream."""
        self._place, self._managed = place, managed

    def note(self, started: int, ended: int, thread: int, sample: _Sample | None) -> None:
        """Record a frame."""
        timed = -1
        if sample is not None:
            place = self._place if self._place in sample.spans else _WHOLE
            if place != _WHOLE or self.segment:
                timed, timer = self._timers.get(place) or self._add_timer(place, sample.time)
                timer.segments.append(sample)
        for receiver in self._receivers:
            receiver.note(started)
        for emitter in self._emitters:
            emitter.note(ended)
        self._recorder.note_replay(started, ended, thread, timed)

    def _add_timer(self, place: int, time: DeviceTime) -> tuple[int, ReplayTimer]:
        info, timers, managed = self.info, self._recorder.timer.streams, self._managed
        name = self.segment if place == _WHOLE else ""
        # That of its ordinary frames, if there is one, so that all its work is shown together.
        stream = next((each for each in info.streams if not name and each.device == managed.device_id), None)
        if stream is None:
            stream = StreamInfo(info, managed.device_id, int(managed.handle), len(info.streams), name)
        found = self._timers[place] = len(timers), ReplayTimer(stream, place, time)
        info.streams.append(stream)
        timers.append(found[1])
        return found


class ReplayTimer:
    """The times of one operator's work in replays; beside the `StreamTimer` of its ordinary frames.

    Attributes
    ----------
    segments
        The samples that were not read yet, oldest first.
    times
        When each earlier piece of work began and ended; None if the device has failed.
    place
        The place of the operator in its segment; `_WHOLE` for all of them.
    """

    __slots__ = ("place", "segments", "stream", "time", "times")

    def __init__(self, stream: StreamInfo, place: int, time: DeviceTime) -> None:
        self.stream = stream
        self.place = place
        self.time = time
        self.segments: deque[_Sample] = deque()
        self.times: deque[tuple[int, int] | None] = deque()

    def begin(self, receives: bool = False) -> None:
        """Do nothing: an ordinary compute begins."""

    def receive(self, item: Any, port: Any) -> None:
        """Do nothing."""

    def end(self) -> int:
        """Do nothing."""
        return 0

    def read(self, is_last: bool) -> None:
        """Read the times of work that the device has completed; `is_last` if it is idle or has failed."""
        segments = self.segments
        while segments and (is_last or segments[0].is_done):
            times: tuple[int, int] | None = None
            try:
                times = segments[0].times(self.place)
            except Exception as error:
                if not is_last:
                    raise
                _log.debug("no GPU times for a replay of %r: %s", self.stream.operator.name, error)
            segments.popleft()
            self.times.append(times)


class _Launches:
    """Launches a recorded graph, or one that takes times.

    Parameters
    ----------
    watch
        What is told about each launch.
    launches
        What launches the plain graph.
    time
        The clock of the device; None if nothing is timed.
    make
        Makes a graph that takes times.
    """

    def __init__(
        self,
        watch: ReplayWatch,
        launches: Any,
        time: DeviceTime | None,
        make: Callable[[DeviceTime], _TimedGraph] | None,
    ) -> None:
        self._watch = watch
        self._launches = launches
        self._time = time
        self._make = make
        self._graphs: deque[_TimedGraph] = deque()

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        watch, time = self._watch, self._time
        graph = None if time is None or not watch.is_due(time) else self._free_graph(time)
        if graph is None:
            self._launches.launch(addresses, stream)
            watch.launched(None)
        else:
            watch.launched(graph.launch(addresses, stream))

    def close(self) -> None:
        """Release the graphs; the device has finished."""
        for graph in self._graphs:
            graph.close()
        self._graphs.clear()
        self._launches.close()

    def _free_graph(self, time: DeviceTime) -> _TimedGraph | None:
        """Return a graph whose last times were read, or None."""
        graphs = self._graphs
        if graphs:
            graph = graphs[0]  # the one that was launched longest ago
            if not time.is_sampled and not graph.is_free:
                graph.read_if_done()
            if graph.is_free:
                graphs.rotate(-1)
                return graph
        if len(graphs) >= (_FEW if time.is_sampled else _MOST):
            return None
        graph = self._make_graph(time)
        graphs.append(graph)
        return graph

    def _make_graph(self, time: DeviceTime) -> _TimedGraph:
        assert self._make is not None
        try:
            return self._make(time)
        except Exception:
            _log.debug("a segment is timed as a whole", exc_info=True)
            self._make = lambda time: _WholeGraph(self._launches, time)
            return self._make(time)


class _TimedGraph:
    """A graph whose launches are timed."""

    def __init__(self, time: DeviceTime) -> None:
        self.time = time
        self._last: _Sample | None = None

    @property
    def is_free(self) -> bool:
        """Whether the times of the last launch were read."""
        return self._last is None or self._last.is_read

    def read_if_done(self) -> None:
        """Read the times of the last launch, if it is complete."""
        if self._last is not None and self._last.is_done:
            with gpu.on_device(self.time.device_id):
                self._last.read()

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> _Sample:
        """Launch the graph, and return what reads its times."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the graph; the device has finished."""


class _DividedGraph(_TimedGraph):
    """A graph that records events where the work of each operator begins and ends."""

    def __init__(
        self, launches: Any, time: DeviceTime, points: Sequence[Any], spans: dict[int, tuple[int, int]]
    ) -> None:
        super().__init__(time)
        self._events = [time.create_event() for _ in points]
        self._done = time.create_event()
        self._graph = launches.with_records(zip(points, self._events, strict=True))
        self._spans = {
            place: (self._events[began], self._events[ended]) for place, (began, ended) in spans.items()
        }

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> _Sample:
        """Launch the graph, and return what reads its times."""
        self._graph.launch(addresses, stream)
        stream.stream.record(self._done)
        self._last = _Sample(self.time, self._spans, self._done)
        return self._last

    def close(self) -> None:
        """Release the graph; the device has finished."""
        self._graph.close()


class _WholeGraph(_TimedGraph):
    """A graph that is timed as a whole, from outside."""

    def __init__(self, launches: Any, time: DeviceTime) -> None:
        super().__init__(time)
        self._launches = launches
        self._began, self._ended = time.create_event(), time.create_event()

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> _Sample:
        """Launch the graph, and return what reads its times."""
        stream.stream.record(self._began)
        self._launches.launch(addresses, stream)
        stream.stream.record(self._ended)
        self._last = _Sample(self.time, {_WHOLE: (self._began, self._ended)}, self._ended)
        return self._last


class _Sample:
    """The times of one launch; any thread may read them.

    Parameters
    ----------
    time
        The clock of the device.
    spans
        The events at the beginning and end of each operator's work, by its place; or `_WHOLE`.
    done
        An event behind the launch.
    """

    def __init__(self, time: DeviceTime, spans: dict[int, tuple[Any, Any]], done: Any) -> None:
        self.time = time
        self.spans = spans
        self._done = done
        self._lock = threading.Lock()
        self._times: dict[int, tuple[int, int]] | None = None

    @property
    def is_read(self) -> bool:
        """Whether the times were read, so that the events can be used again."""
        return self._times is not None

    @property
    def is_done(self) -> bool:
        """Whether the device has completed the launch."""
        return self._times is not None or bool(self._done.is_done)

    def read(self) -> dict[int, tuple[int, int]]:
        """Return when the work of each operator began and ended."""
        with self._lock:
            if self._times is None:
                self._times = {place: self.time.times(*events) for place, events in self.spans.items()}
            return self._times

    def times(self, place: int) -> tuple[int, int]:
        """Return when the work of one operator began and ended."""
        return self.read()[place]
