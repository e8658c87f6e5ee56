"""Statistics of a run: what each operator, queue and path did, and how long it took."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.coverage import Coverage
from headrace.observe.figures.distribution import Distribution, Summary
from headrace.observe.figures.saturation import (
    FEW,
    gpu_load,
    operator_load,
    queue_load,
    saturated,
    slice_load,
    workers_load,
)

if TYPE_CHECKING:
    from headrace.observe.events.records import (
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
    "SliceStatistics",
    "Statistics",
    "StatisticsWatcher",
    "WorkersStatistics",
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
    busy: float = 0.0
    """The share of the time in which it computed on the host."""
    gpu_busy: float = 0.0
    """The share of the time in which the device worked for it."""
    skipped_errors: int = 0
    """The number of errors of its computes that were skipped (`Operator.on_error`)."""
    restarts: int = 0
    """The number of its restarts after errors."""


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
    busy: float = 0.0
    """The share of its places that were taken, on average, by messages that were received later."""


@dataclass(frozen=True, slots=True)
class WorkersStatistics:
    """How busy the worker threads were that share some operators."""

    name: str
    """``"workers"`` for those of the scheduler, else the name of the thread pool."""
    count: int
    busy: float
    """The share of their time in which they computed."""
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SliceStatistics:
    """How busy a slice of a device was."""

    name: str
    """The device and the name of the slice; ``"all SMs"`` for operators without one."""
    sm_count: int
    busy: float
    """The share of the time in which at least one operator's work was on it. If some computes were not timed on the
    device, those that were stand for them."""
    operators: tuple[str, ...]


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
    workers: tuple[WorkersStatistics, ...] = ()
    slices: tuple[SliceStatistics, ...] = ()

    @property
    def saturated(self) -> tuple[str, ...]:
        """What was busy at least 90 % of the time, in words: it determines the rate, and messages wait for it."""
        loads = [operator_load(each.name, each.busy) for each in self.operators if each.count >= FEW]
        loads += [gpu_load(each.name, each.gpu_busy) for each in self.operators if each.count >= FEW]
        if loads:
            loads += [workers_load(each.name, each.count, each.busy, each.operators) for each in self.workers]
            loads += [slice_load(each.name, each.busy, each.operators) for each in self.slices]
            loads += [queue_load(each.name, each.busy) for each in self.queues if each.received >= FEW]
        return tuple(saturated(loads))

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
        return json.dumps({**asdict(self), "saturated": self.saturated}, indent=indent)

    def to_prometheus(self) -> str:
        """Return all figures in the text format of Prometheus; durations are in seconds."""
        from headrace.observe.figures.statistics_text import prometheus_text

        return prometheus_text(self)

    def __str__(self) -> str:
        from headrace.observe.figures.statistics_text import table_text

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
            # By device and name of the slice: when work was on it.
            self._coverage: dict[tuple[int, str], Coverage] = {}

    def computed(self, computes: Computes) -> None:
        """Add computes."""
        with self._lock:
            self._operators[computes.operator].add(computes)
            for work in computes.gpu:
                place = (work.stream.device, computes.operator.slice)
                if place not in self._coverage:
                    self._coverage[place] = Coverage()
                self._coverage[place].add(work.started, work.ended)
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
            computed = [counts for counts in self._operators.values() if counts.count]
            first = min((counts.first for counts in computed), default=0)
            span = max((counts.done for counts in computed), default=0) - first
            operators = tuple(
                counts.statistics(operator, span) for operator, counts in self._operators.items()
            )
            ends = [counts.last for counts in self._operators.values()]
            return Statistics(
                run.application,
                max(max(ends, default=0) - run.started, 0) / 1e9,
                operators,
                tuple(counts.statistics(queue, span) for queue, counts in self._queues.items()),
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
                self._workers(run, span),
                self._slices(run, span),
            )

    def _workers(self, run: RunInfo, span: int) -> tuple[WorkersStatistics, ...]:
        return tuple(
            WorkersStatistics(
                workers.name,
                workers.count,
                _share(
                    sum(self._operators[operator].host.total for operator in workers.operators),
                    span * workers.count,
                ),
                tuple(operator.name for operator in workers.operators),
            )
            for workers in run.workers
        )

    def _slices(self, run: RunInfo, span: int) -> tuple[SliceStatistics, ...]:
        found = []
        for (device, name), coverage in self._coverage.items():
            operators = [
                operator
                for operator in run.operators
                if operator.slice == name and any(stream.device == device for stream in operator.streams)
            ]
            timed = sum(self._operators[operator].gpu.total for operator in operators)
            estimated = sum(self._operators[operator].gpu_total for operator in operators)
            sm_count = operators[0].sm_count if name else run.device_sm_counts.get(device, 0)
            found.append(
                SliceStatistics(
                    f"GPU {device}, {f'slice {name}' if name else 'all SMs'}",
                    sm_count,
                    _share(coverage.total * estimated / timed if timed else 0, span),
                    tuple(operator.name for operator in operators),
                )
            )
        return tuple(found)

    def _sinks(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for queue, counts in self._queues.items():
            if queue.operator.is_leaf:
                found[queue.name] = found.get(queue.name, 0) + counts.wait.count
        return found


def _share(part: float, whole: int) -> float:
    return min(part / whole, 1.0) if whole > 0 else 0.0


def _rate(count: int, first: int, last: int) -> float:
    return count * 1e9 / (last - first) if last > first else 0.0


class _OperatorCounts:
    __slots__ = ("count", "done", "first", "gpu", "gpu_total", "host", "last")

    def __init__(self) -> None:
        self.count = 0
        # When its last work was complete, on the host and on the device.
        self.done = 0
        # The time on the device of all computes; those that were timed stand for the others.
        self.gpu_total = 0.0
        self.first = self.last = 0
        self.host = Distribution()
        self.gpu = Distribution()

    def add(self, computes: Computes) -> None:
        if not self.count:
            self.first = int(computes.started[0])
        self.count += len(computes.started)
        self.last = int(computes.ended[-1])
        self.done = max(self.done, self.last)
        self.host.add(computes.ended - computes.started)
        if computes.gpu:
            times = computes.gpu_time
            self.gpu.add(times[computes.uses_gpu])
            self.gpu_total += int(times.sum()) * len(times) / max(int(computes.is_timed.sum()), 1)
            self.done = max(self.done, *(int(work.ended.max()) for work in computes.gpu))

    def statistics(self, operator: OperatorInfo, span: int) -> OperatorStatistics:
        return OperatorStatistics(
            operator.name,
            self.count,
            _rate(self.count, self.first, self.last),
            self.host.summary(),
            self.gpu.summary(),
            operator.slice,
            operator.sm_count,
            _share(self.host.total, span),
            _share(self.gpu_total, span),
            operator.skipped_errors,
            operator.restarts,
        )


class _QueueCounts:
    __slots__ = ("wait",)

    def __init__(self) -> None:
        self.wait = Distribution()

    def add(self, arrivals: Arrivals) -> None:
        if len(arrivals.compute):
            self.wait.add(arrivals.wait)

    def statistics(self, queue: QueueInfo, span: int) -> QueueStatistics:
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
            _share(self.wait.total, span * queue.limit),
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
