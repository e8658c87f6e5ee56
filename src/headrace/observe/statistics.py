"""Statistics of a run: what each operator, queue and path did, and how long it took."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.observe.distribution import Distribution, Summary
from headrace.observe.watchers import Watcher

if TYPE_CHECKING:
    from headrace.observe.records import (
        Arrivals,
        Computes,
        Flows,
        OperatorInfo,
        Path,
        QueueInfo,
        RunInfo,
    )

__all__ = [
    "OperatorStatistics",
    "PathStatistics",
    "QueueStatistics",
    "SegmentStatistics",
    "Statistics",
    "StatisticsWatcher",
]


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """What one operator did."""

    name: str
    count: int
    """The number of computes."""
    rate: float
    """The computes per second, from the first start to the last end."""
    host: Summary
    """The time in `compute` on the host."""
    gpu: Summary
    """The time on the device, of the computes that submitted work to it."""
    slice: str
    sm_count: int


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """What waited in one queue."""

    name: str
    """The operator and the port; with a number if the port has several queues."""
    received: int
    depth: int
    """The number of messages that waited at the end, or wait now."""
    most: int
    """The largest number of messages that waited at once."""
    dropped: int
    """The number of messages that the full queue dropped."""
    discarded: int
    """The number of messages that were discarded, because the compute that they waited for had failed."""
    wait: Summary


@dataclass(frozen=True, slots=True)
class PathStatistics:
    """How long messages took on one path."""

    name: str
    """The names of its operators, joined by ``","``."""
    count: int
    rate: float
    latency: Summary
    """From the acquisition or the emission at the source to the end of the last operator's work on the device, of
    the messages for which that end was timed."""


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """What became of one captured segment."""

    name: str
    operators: tuple[str, ...]
    state: str
    """As in :class:`headrace.core.SegmentOutcome`."""
    reason: str
    """Why it is eager; empty otherwise."""
    frames: int
    replayed: int
    """The number of frames that were replayed; they count as computes of its operators."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What happened in a run, so far or in all."""

    application: str
    seconds: float
    operators: tuple[OperatorStatistics, ...]
    queues: tuple[QueueStatistics, ...]
    paths: tuple[PathStatistics, ...]
    sources: dict[str, int]
    """The number of messages that each output of a source emitted, by ``"operator.port"``."""
    sinks: dict[str, int]
    """The number of messages that each input of a sink received, by ``"operator.port"``."""
    segments: tuple[SegmentStatistics, ...] = ()

    def operator(self, name: str) -> OperatorStatistics:
        """Return the statistics of an operator; raise KeyError if there is none of this name."""
        return _by_name(self.operators, name, "operator")

    def queue(self, name: str) -> QueueStatistics:
        """Return the statistics of a queue, as in ``"display.in"``."""
        return _by_name(self.queues, name, "queue")

    def path(self, name: str) -> PathStatistics:
        """Return the statistics of a path, as in ``"camera,blur,display"``."""
        return _by_name(self.paths, name, "path")

    def segment(self, name: str) -> SegmentStatistics:
        """Return the statistics of a captured segment."""
        return _by_name(self.segments, name, "segment")

    def to_json(self, indent: int | None = 2) -> str:
        """Return all figures as JSON; durations are in nanoseconds."""
        return json.dumps(asdict(self), indent=indent)

    def to_prometheus(self) -> str:
        """Return all figures in the text format of Prometheus; durations are in seconds."""
        from headrace.observe.statistics_text import prometheus_text

        return prometheus_text(self)

    def __str__(self) -> str:
        from headrace.observe.statistics_text import table_text

        return table_text(self)


_Named = TypeVar("_Named", OperatorStatistics, QueueStatistics, PathStatistics, SegmentStatistics)


def _by_name(found: tuple[_Named, ...], name: str, kind: str) -> _Named:
    for each in found:
        if each.name == name:
            return each
    raise KeyError(f"there is no {kind} {name!r}; there are {', '.join(repr(each.name) for each in found)}")


class StatisticsWatcher(Watcher):
    """Collects the statistics of a run.

    The resolver's thread adds to them under a lock; `snapshot` may be called from any thread.
    """

    period = 1.0  # `snapshot` catches up with the run

    def __init__(self) -> None:
        # Reentrant: a signal handler may ask for figures while its thread holds it.
        self._lock = threading.RLock()
        self._run: RunInfo | None = None

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        with self._lock:
            self._run = run
            self._operators = {operator: _OperatorCounts() for operator in run.operators}
            self._queues = {queue: _QueueCounts() for queue in run.queues}
            self._paths: dict[Path, _PathCounts] = {}

    def computed(self, computes: Computes) -> None:
        """Add computes."""
        with self._lock:
            self._operators[computes.operator].add(computes)
            for arrivals in computes.arrivals:
                self._queues[arrivals.queue].add(arrivals)

    def flowed(self, flows: list[Flows]) -> None:
        """Add messages that reached the end of their paths."""
        with self._lock:
            for each in flows:
                self._paths.setdefault(each.path, _PathCounts()).add(each)

    def snapshot(self) -> Statistics:
        """Return the statistics so far."""
        self.catch_up()
        with self._lock:
            run = self._run
            if run is None:
                return Statistics("", 0.0, (), (), (), {}, {})
            operators = tuple(counts.statistics(operator) for operator, counts in self._operators.items())
            ends = [counts.last for counts in self._operators.values()]
            return Statistics(
                run.application,
                max(max(ends, default=0) - run.started, 0) / 1e9,
                operators,
                tuple(counts.statistics(queue) for queue, counts in self._queues.items()),
                tuple(counts.statistics(path) for path, counts in self._paths.items()),
                {
                    output.name: output.count
                    for operator in run.operators
                    if operator.is_source
                    for output in operator.outputs
                },
                self._sinks(),
                tuple(
                    SegmentStatistics(
                        segment.name,
                        tuple(operator.name for operator in segment.operators),
                        segment.state,
                        segment.reason,
                        segment.frames,
                        segment.replayed,
                    )
                    for segment in run.segments
                ),
            )

    def _sinks(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for queue, counts in self._queues.items():
            if queue.operator.is_leaf:
                found[queue.name] = found.get(queue.name, 0) + counts.wait.count
        return found


def _rate(count: int, first: int, last: int) -> float:
    return count * 1e9 / (last - first) if last > first else 0.0


class _OperatorCounts:
    __slots__ = ("count", "first", "gpu", "host", "last")

    def __init__(self) -> None:
        self.count = 0
        self.first = self.last = 0
        self.host = Distribution()
        self.gpu = Distribution()

    def add(self, computes: Computes) -> None:
        if not self.count:
            self.first = int(computes.started[0])
        self.count += len(computes.started)
        self.last = int(computes.ended[-1])
        self.host.add(computes.ended - computes.started)
        if computes.gpu:
            self.gpu.add(computes.gpu_time[computes.uses_gpu])

    def statistics(self, operator: OperatorInfo) -> OperatorStatistics:
        return OperatorStatistics(
            operator.name,
            self.count,
            _rate(self.count, self.first, self.last),
            self.host.summary(),
            self.gpu.summary(),
            operator.slice,
            operator.sm_count,
        )


class _QueueCounts:
    __slots__ = ("wait",)

    def __init__(self) -> None:
        self.wait = Distribution()

    def add(self, arrivals: Arrivals) -> None:
        if len(arrivals.compute):
            self.wait.add(arrivals.wait)

    def statistics(self, queue: QueueInfo) -> QueueStatistics:
        same = [other for other in queue.operator.inputs if other.port == queue.port]
        name = queue.name if len(same) == 1 else f"{queue.name}:{same.index(queue)}"
        return QueueStatistics(
            name,
            self.wait.count,
            queue.waiting,
            queue.most,
            queue.dropped,
            queue.discarded,
            self.wait.summary(),
        )


class _PathCounts:
    __slots__ = ("count", "first", "last", "latency")

    def __init__(self) -> None:
        self.count = 0
        self.first = self.last = 0
        self.latency = Distribution()

    def add(self, flows: Flows) -> None:
        if not self.count:
            self.first = int(flows.origin[0])
        self.count += len(flows.origin)
        self.last = int(flows.done[-1])
        self.latency.add(flows.latency[flows.is_timed])

    def statistics(self, path: Path) -> PathStatistics:
        rate = _rate(self.count, self.first, self.last)
        return PathStatistics(path.name, self.count, rate, self.latency.summary())
