"""StatisticsWatcher: collects the statistics of a run, or of its last seconds."""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.condition import ticks_of
from headrace.observe.events.cupti_activity import SHOWN
from headrace.observe.events.records import NO_TIMESTAMP, RunInfo
from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.coverage import ALWAYS, Coverage
from headrace.observe.figures.distribution import Distribution, Occurrences, RecentDurations
from headrace.observe.figures.rates import rate_between, rate_until
from headrace.observe.figures.statistics import (
    FEW,
    GoalStatistics,
    LinkStatistics,
    OperatorStatistics,
    PathStatistics,
    QueueStatistics,
    SegmentStatistics,
    SliceStatistics,
    Statistics,
    WorkersStatistics,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.observe.events.records import Computes, Flows, OperatorInfo, Path, QueueInfo, Times

_UNDELIVERED = 8  # computes of whose kernels CUPTI may not have delivered all
_SHORTEST = 100_000_000  # nanoseconds to which the rates of a window refer


class StatisticsWatcher(Watcher):
    """Collects the statistics of a run.

    The reader's thread adds to them under a lock; `snapshot` may be called from any thread.

    Parameters
    ----------
    window
        The nanoseconds up to now of which rates, durations and shares are; of the whole run unless given.
    """

    period = 1.0  # `snapshot` catches up with the run
    wants_cpu_times = True

    def __init__(self, window: int = 0) -> None:
        self.window = window
        # Reentrant: a signal handler may ask for figures while its thread holds it.
        self._lock = threading.RLock()
        StatisticsWatcher.begin(self, RunInfo("", [], 0, 0, is_virtual=True))  # until there is one

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        with self._lock:
            self._run = run
            # By their kind, and the operator, queue or path.
            self._durations: defaultdict[tuple[str, Any], Distribution | RecentDurations] = defaultdict(
                partial(RecentDurations, self.window) if self.window else Distribution
            )
            # By operator and compute: when its kernels known so far began and ended, and how long they took.
            self._running: list[dict[int, tuple[int, int, int]]] = [{} for _ in run.operators]
            # By operator: the ticks that were late, and those that were skipped.
            self._ticks: defaultdict[OperatorInfo, tuple[int, int]] = defaultdict(lambda: (0, 0))
            # By operator: of some computes, how long their thread did not have the processor, how much of that it
            # may have waited for the interpreter, how long they took, and their number.
            self._cpu_times: defaultdict[OperatorInfo, Times] = defaultdict(lambda: np.zeros(4, np.int64))
            # By device and name of the slice: when work was on it.
            self._coverage: defaultdict[tuple[int, str], Coverage] = defaultdict(Coverage)
            # In the order in which messages first came on them.
            self._paths: dict[Path, None] = {}
            # The end of the newest compute, and of its work on the device.
            self.newest = run.started

    def changed(self, run: RunInfo) -> None:
        """Make room for the figures of new operators."""
        with self._lock:
            self._running += [{} for _ in run.operators[len(self._running) :]]

    def computed(self, computes: Computes) -> None:
        """Add computes."""
        operator, ended = computes.operator, computes.ended
        with self._lock:
            self.newest = max(self.newest, int(ended[-1]))
            self._durations["host", operator].add(ended - computes.started, ended)
            if computes.gpu:
                # Not every compute is timed; those that are stand for the others.
                weight = len(ended) / max(int(computes.is_timed.sum()), 1)
                used, times = computes.uses_gpu, computes.gpu_time
                exact = used & computes.gpu_is_exact
                if self.wants_kernels and self._run.kernels == SHOWN:
                    exact &= computes.is_replayed  # `ran` adds the others
                certain = computes.certain_gpu_time[used]
                self._durations["span", operator].add(times[used], ended[used])
                self._durations["exact span", operator].add(times[exact], ended[exact])
                self._durations["gpu", operator].add(certain, ended[used], weight)
            has_threads = self.wants_threads and not operator.is_link
            threads = np.unique(computes.threads).tolist() if has_threads else ()
            for thread in threads:
                chosen = computes.threads == thread
                self._durations["thread", thread].add((ended - computes.started)[chosen], ended[chosen])
            for work in computes.gpu:
                self._coverage[work.stream.device, operator.slice].add(work.certain, work.ended)
                self.newest = max(self.newest, int(work.ended.max(initial=0)))
            sampled = computes.cpu_time != NO_TIMESTAMP
            if sampled.any():
                took = (ended - computes.started)[sampled]
                waited = np.maximum(took - computes.cpu_time[sampled], 0)
                # Whoever waits for the lock of the interpreter waits for another thread that runs.
                for_lock = np.minimum(waited, computes.others_cpu_time[sampled])
                self._cpu_times[operator] += (waited.sum(), for_lock.sum(), took.sum(), len(took))
            if computes.ticks.any():
                self._add_ticks(computes)
            for arrivals in computes.arrivals:
                self._durations["wait", arrivals.queue].add(arrivals.wait, arrivals.received)

    def _add_ticks(self, computes: Computes) -> None:
        operator, started = computes.operator, computes.started
        lateness = started - computes.due
        # The first tick comes at once: it is not due before.
        is_tick = computes.ticks & (np.arange(len(started)) + computes.first > 0)
        self._durations["lateness", operator].add(lateness[is_tick], started[is_tick])
        clock = ticks_of(operator.node.operator.conditions.values())
        late, skipped = self._ticks[operator]
        if clock is not None and clock.period:
            late += int((lateness[is_tick] >= clock.period).sum())
        self._ticks[operator] = late, skipped + int(computes.skipped.sum())

    def ran(self, kernels: list[Activity]) -> None:
        """Add kernels and copies."""
        with self._lock:
            for each in kernels if self.wants_kernels else ():
                if each.operator is not None and each.operator < len(self._running):
                    running = self._running[each.operator]
                    began, ended, took = running.get(each.compute, (each.started, each.started, 0))
                    took += max(each.ended - max(each.started, ended), 0)
                    running[each.compute] = min(began, each.started), max(ended, each.ended), took
            self._add_kernels(_UNDELIVERED)

    def _add_kernels(self, kept: int) -> None:
        """Add the kernels of all computes but the last ones, of which more may follow."""
        for operator, running in zip(self._run.operators, self._running, strict=False):
            known = sorted(running)[: max(len(running) - kept, 0)]
            if known:
                began, ended, took = np.array([running.pop(compute) for compute in known], np.int64).T
                self._durations["exact span", operator].add(ended - began, ended)
                self._durations["kernels", operator].add(took, ended)

    def end(self, outcome: Outcome | None) -> None:
        """End; the figures stay."""
        with self._lock:
            self._add_kernels(0)

    def flowed(self, flows: list[Flows]) -> None:
        """Add messages that reached the end of their paths."""
        with self._lock:
            for each in flows:
                path = each.path.without_links
                if path not in self._paths:
                    self._paths[path] = None
                    if not self.window:
                        self._durations["arrival", path] = Occurrences()
                latency, done = each.latency, each.done
                timed = slice(None) if each.is_timed.all() else each.is_timed
                self._durations["arrival", path].add(latency, done)
                self._durations["latency", path].add(latency[timed], done[timed])

    def snapshot(self, now: int = 0) -> Statistics:
        """Return the statistics so far; those of a window end now, up to which all is known."""
        self.catch_up()
        with self._lock:
            run, time = self._run, _Timespan(self, now)
            sinks: defaultdict[str, int] = defaultdict(int)
            for queue in run.queues:
                if queue.operator.is_sink:
                    sinks[queue.name] += time.count("wait", queue)
            sources = [operator for operator in run.operators if operator.is_source]
            return Statistics(
                run.application,
                max(max((each.last for each in time.host.values()), default=0) - run.started, 0) / 1e9,
                tuple(_operator(operator, time) for operator in run.operators if not operator.is_link),
                tuple(_queue(queue, time) for queue in run.queues),
                tuple(
                    PathStatistics(
                        path.name,
                        time.count("arrival", path),
                        time.rate(time.of("arrival", path)),
                        time.of("latency", path).summary(),
                        _names(path.operators),
                    )
                    for path in self._paths
                ),
                {output.name: output.count for operator in sources for output in operator.outputs},
                dict(sinks),
                tuple(
                    SegmentStatistics(
                        each.name, _names(each.operators), each.state, each.reason, each.frames, each.replayed
                    )
                    for each in run.segments
                ),
                tuple(
                    WorkersStatistics(
                        each.name,
                        each.count,
                        time.share(sum(time.host[operator].load for operator in each.operators), each.count),
                        _names(each.operators),
                    )
                    for each in run.workers
                ),
                tuple(
                    _slice(run, place, coverage.total(time.since), time)
                    for place, coverage in self._coverage.items()
                ),
                run.kernels if self.wants_kernels else "",
                tuple(
                    GoalStatistics(
                        goal.name,
                        goal.sent,
                        goal.arrived,
                        goal.late,
                        goal.failed,
                        goal.dropped,
                        goal.lost,
                        goal.is_met,
                    )
                    for watcher in (self.observation.watchers if self.observation is not None else ())
                    for goal in getattr(watcher, "goals", ())
                ),
                tuple(
                    LinkStatistics(
                        each.name,
                        time.count("host", each),
                        time.rate(time.host[each]),
                        time.host[each].summary(),
                    )
                    for each in run.operators
                    if each.is_link
                ),
                dict(run.clocks),
                dict(run.fragments),
                _streams(run),
            )

    def threads(self, now: int = 0) -> dict[int, float]:
        """Return the share of the time in which each thread computed, in the order in which they appeared."""
        with self._lock:
            time = _Timespan(self, now)
            threads = [key for kind, key in self._durations if kind == "thread"]
            return {thread: time.share(time.of("thread", thread).load) for thread in threads}


class _Timespan:
    """The time to which statistics refer: all of the run, or its window up to now.

    Attributes
    ----------
    host
        The durations of each operator's computes in this time.
    """

    def __init__(self, watcher: StatisticsWatcher, now: int) -> None:
        self._durations, self._window, self._ticks = watcher._durations, watcher.window, watcher._ticks
        self._cpu_times = watcher._cpu_times
        self._run_started = watcher._run.started
        self._until = now if self._window and now else watcher.newest
        self.since = self._until - self._window if self._window else ALWAYS
        self.host = {operator: self.of("host", operator) for operator in watcher._run.operators}
        first = min((each.first for each in self.host.values() if each.count), default=self._until)
        self._span = max(self._until - first, _SHORTEST if self._window else 0)

    def of(self, kind: str, key: Any) -> Distribution:
        """Return the durations of something in this time."""
        return self._durations[kind, key].between(self.since, self._until)

    def count(self, kind: str, key: Any) -> int:
        """Return the number of durations in all of the run."""
        return self._durations[kind, key].count

    def ticks(self, operator: OperatorInfo) -> tuple[int, int]:
        """Return the number of late ticks of an operator, and of those that were skipped, in all of the run."""
        return self._ticks[operator]

    def waits(self, operator: OperatorInfo) -> tuple[float | None, float | None]:
        """Return the shares of sampled computes without the processor, and at most for the interpreter's lock."""
        waited, for_lock, took, count = self._cpu_times[operator].tolist()
        return (waited / took, for_lock / took) if count >= FEW and took else (None, None)

    def rate(self, events: Distribution) -> float:
        """Return how many there were in a second; in the whole run, from the first of them to the last."""
        if not self._window:
            return rate_between(events)
        return rate_until(events, max(self.since, self._run_started), self._until, _SHORTEST)

    def share(self, load: float, places: int = 1) -> float:
        """Return the part of the time of so many places that a load takes."""
        return min(load / (self._span * places), 1.0) if self._span * places > 0 else 0.0


def _operator(operator: OperatorInfo, time: _Timespan) -> OperatorStatistics:
    host, span, exact = time.host[operator], time.of("span", operator), time.of("exact span", operator)
    is_bound = exact.count * 10 < span.count
    late, skipped = time.ticks(operator)
    waits, interpreter = time.waits(operator)
    return OperatorStatistics(
        operator.name,
        time.count("host", operator),
        time.rate(host),
        host.summary(),
        span.summary(is_bound) if is_bound else exact.summary(),
        time.of("kernels", operator).summary(),
        operator.slice,
        operator.sm_count,
        time.share(host.load),
        time.share(time.of("gpu", operator).load),
        skipped_errors=operator.faults.skipped,
        restarts=operator.faults.restarts,
        retries=operator.faults.retries,
        dead_letters=operator.faults.dead_letters,
        stuck=operator.faults.stuck,
        cut_off=operator.faults.cut_off,
        lateness=time.of("lateness", operator).summary(),
        late_ticks=late,
        skipped_ticks=skipped,
        waits=waits,
        interpreter=interpreter,
        is_parallel=operator.is_parallel,
    )


def _queue(queue: QueueInfo, time: _Timespan) -> QueueStatistics:
    same = [other for other in queue.operator.inputs if other.port == queue.port]
    wait = time.of("wait", queue)
    return QueueStatistics(
        queue.name if len(same) == 1 else f"{queue.name}:{same.index(queue)}",
        time.count("wait", queue),
        queue.waiting,
        queue.most,
        queue.dropped,
        queue.discarded,
        wait.summary(),
        time.share(wait.load, queue.size),
    )


def _slice(run: RunInfo, place: tuple[int, str], covered: int, time: _Timespan) -> SliceStatistics:
    device, name = place
    operators = [
        operator
        for operator in run.operators
        if operator.slice == name and any(stream.device == device for stream in operator.streams)
    ]
    work = [time.of("gpu", operator) for operator in operators]
    timed, estimated = sum(each.total for each in work), sum(each.load for each in work)
    return SliceStatistics(
        f"GPU {device}, {f'slice {name}' if name else 'all SMs'}",
        operators[0].sm_count if name else run.device_sm_counts.get(device, 0),
        time.share(covered * estimated / timed if timed else 0),
        _names(operators),
        f"{device}:{name or '*'}",
    )


def _streams(run: RunInfo) -> tuple[tuple[str, ...], ...]:
    """Return the operators on each stream: those whose first stream it is, in one process."""
    found: dict[tuple[str, int, int], list[str]] = {}
    for operator in run.operators:
        if operator.streams and not operator.is_link and not operator.streams[0].segment:
            first = operator.streams[0]
            place = run.fragments.get(operator.name, ""), first.device, first.handle
            found.setdefault(place, []).append(operator.name)
    return tuple(map(tuple, found.values()))


def _names(operators: Iterable[OperatorInfo]) -> tuple[str, ...]:
    return tuple(operator.name for operator in operators)
