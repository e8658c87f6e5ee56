"""Statistics of a run: what each operator, queue and path did, and how long it took."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.coverage import Coverage
from headrace.observe.figures.distribution import Distribution, Summary
from headrace.observe.figures.saturation import FEW, saturated

if TYPE_CHECKING:
    from headrace.observe.events.records import (
        Computes,
        Flows,
        OperatorInfo,
        Path,
        QueueInfo,
        RunInfo,
    )


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """The statistics of one operator.

    Attributes
    ----------
    count
        The number of computes.
    rate
        The computes per second, from the first start to the last end.
    host
        The time in `compute` on the host.
    gpu
        The time on the device, of the computes that submitted work to it: from where the first kernel begins to
        where the last one ends. If the beginning is known of at least a tenth of them, only these count.
    gpu_is_bound
        Whether `gpu` is a bound: the device had nothing to do before, and may have waited for the host to launch.
    busy
        The share of the time in which it computed on the host.
    gpu_busy
        The share of the time in which the device certainly worked for it.
    skipped_errors
        The number of errors of its computes that were skipped (`Operator.on_error`).
    restarts
        The number of its restarts after errors.
    """

    name: str
    count: int
    rate: float
    host: Summary
    gpu: Summary
    slice: str
    sm_count: int
    busy: float = 0.0
    gpu_busy: float = 0.0
    gpu_is_bound: bool = False
    skipped_errors: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The statistics of one queue.

    Attributes
    ----------
    name
        The operator and the port; with a number if the port has several queues.
    depth
        The number of messages that waited at the end, or wait now.
    most
        The largest number of messages that waited at once.
    dropped
        The number of messages that the full queue dropped.
    discarded
        The number of messages that were discarded, because the compute that they waited for had failed.
    busy
        The share of its places that were taken, on average, by messages that were received later.
    """

    name: str
    received: int
    depth: int
    most: int
    dropped: int
    discarded: int
    wait: Summary
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkersStatistics:
    """How busy the worker threads were that share some operators.

    Attributes
    ----------
    name
        ``"workers"`` for those of the scheduler, else the name of the thread pool.
    busy
        The share of their time in which they computed.
    """

    name: str
    count: int
    busy: float
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SliceStatistics:
    """How busy a slice of a device was.

    Attributes
    ----------
    name
        The device and the name of the slice; ``"all SMs"`` for operators without one.
    busy
        The share of the time in which at least one operator's work was on it. If some computes were not
        timed on the device, those that were stand for them.
    """

    name: str
    sm_count: int
    busy: float
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PathStatistics:
    """How long messages took on one path.

    Attributes
    ----------
    name
        The names of its operators, joined by ``","``.
    latency
        From the acquisition or the emission at the source to the end of the last operator's work on the
        device, of the messages for which that end was timed.
    """

    name: str
    count: int
    rate: float
    latency: Summary


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """The statistics of one captured segment.

    Attributes
    ----------
    state
        As in :class:`headrace.core.SegmentOutcome`.
    reason
        Why it is eager; empty otherwise.
    replayed
        The number of frames that were replayed; they count as computes of its operators.
    """

    name: str
    operators: tuple[str, ...]
    state: str
    reason: str
    frames: int
    replayed: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of a run, so far or in all.

    Attributes
    ----------
    sources
        The number of messages that each output of a source emitted, by ``"operator.port"``.
    sinks
        The number of messages that each input of a sink received, by ``"operator.port"``.
    """

    application: str
    seconds: float
    operators: tuple[OperatorStatistics, ...]
    queues: tuple[QueueStatistics, ...]
    paths: tuple[PathStatistics, ...]
    sources: dict[str, int]
    sinks: dict[str, int]
    segments: tuple[SegmentStatistics, ...] = ()
    workers: tuple[WorkersStatistics, ...] = ()
    slices: tuple[SliceStatistics, ...] = ()

    @property
    def saturated(self) -> tuple[str, ...]:
        """The operators, threads, slices and queues that were busy at least 90 % of the time, in words.

        They determine the rate, and messages wait for them.
        """
        often = [each for each in self.operators if each.count >= FEW]
        found = saturated(
            [(each.name, each.busy) for each in often],
            [(each.name, each.gpu_busy) for each in often],
            [(each.name, each.count, each.busy, each.operators) for each in self.workers],
            [(each.name, each.busy, each.operators) for each in self.slices],
            [(each.name, each.busy) for each in self.queues if each.received >= FEW],
        )
        return tuple(found)

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
        from headrace.observe.figures.prometheus import prometheus_text

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

    The reader's thread adds to them under a lock; `snapshot` may be called from any thread.
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
            self._waits = {queue: Distribution() for queue in run.queues}
            self._paths: defaultdict[Path, _PathCounts] = defaultdict(_PathCounts)
            # By device and name of the slice: when work was on it.
            self._coverage: defaultdict[tuple[int, str], Coverage] = defaultdict(Coverage)

    def computed(self, computes: Computes) -> None:
        """Add computes."""
        with self._lock:
            self._operators[computes.operator].add(computes)
            for work in computes.gpu:
                place = (work.stream.device, computes.operator.slice)
                self._coverage[place].add(work.certain, work.ended)
            for arrivals in computes.arrivals:
                self._waits[arrivals.queue].add(arrivals.wait)

    def flowed(self, flows: list[Flows]) -> None:
        """Add messages that reached the end of their paths."""
        with self._lock:
            for each in flows:
                self._paths[each.path].add(each)

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
                tuple(_queue_statistics(queue, wait, span) for queue, wait in self._waits.items()),
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
            timed = sum(self._operators[operator].gpu_certain for operator in operators)
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
        for queue, wait in self._waits.items():
            if queue.operator.is_leaf:
                found[queue.name] = found.get(queue.name, 0) + wait.count
        return found


def _share(part: float, whole: int) -> float:
    return min(part / whole, 1.0) if whole > 0 else 0.0


def _rate(count: int, first: int, last: int) -> float:
    return count * 1e9 / (last - first) if last > first else 0.0


class _OperatorCounts:
    __slots__ = (
        *("count", "done", "first", "gpu", "gpu_certain", "gpu_exact", "gpu_total", "host", "last"),
    )

    def __init__(self) -> None:
        self.count = 0
        # When its last work was complete, on the host and on the device.
        self.done = 0
        # The time for which the device certainly worked: for the computes that were timed, which stand for the others,
        # and for all.
        self.gpu_certain = 0
        self.gpu_total = 0.0
        self.first = self.last = 0
        self.host = Distribution()
        # Of all computes that were timed, and of those whose beginning is known.
        self.gpu = Distribution()
        self.gpu_exact = Distribution()

    def add(self, computes: Computes) -> None:
        if not self.count:
            self.first = int(computes.started[0])
        self.count += len(computes.started)
        self.last = int(computes.ended[-1])
        self.done = max(self.done, self.last)
        self.host.add(computes.ended - computes.started)
        if computes.gpu:
            times, uses_gpu = computes.gpu_time, computes.uses_gpu
            self.gpu.add(times[uses_gpu])
            self.gpu_exact.add(times[uses_gpu & computes.gpu_is_exact])
            certain = int(computes.certain_gpu_time.sum())
            self.gpu_certain += certain
            self.gpu_total += certain * len(times) / max(int(computes.is_timed.sum()), 1)
            self.done = max(self.done, *(int(work.ended.max()) for work in computes.gpu))

    def statistics(self, operator: OperatorInfo, span: int) -> OperatorStatistics:
        is_bound = self.gpu_exact.count * 10 < self.gpu.count
        return OperatorStatistics(
            operator.name,
            self.count,
            _rate(self.count, self.first, self.last),
            self.host.summary(),
            (self.gpu if is_bound else self.gpu_exact).summary(),
            operator.slice,
            operator.sm_count,
            _share(self.host.total, span),
            _share(self.gpu_total, span),
            is_bound,
            operator.skipped_errors,
            operator.restarts,
        )


def _queue_statistics(queue: QueueInfo, wait: Distribution, span: int) -> QueueStatistics:
    same = [other for other in queue.operator.inputs if other.port == queue.port]
    return QueueStatistics(
        queue.name if len(same) == 1 else f"{queue.name}:{same.index(queue)}",
        wait.count,
        queue.waiting,
        queue.most,
        queue.dropped,
        queue.discarded,
        wait.summary(),
        _share(wait.total, span * queue.limit),
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
