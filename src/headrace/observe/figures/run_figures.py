"""RunFigures: the figures of a run, of all of it and of its last seconds, kept once for all who show them.

Trackers, pages, metrics, traces and goals are watchers of their own, and show different parts of the same figures.
So one watcher before them collects what any of them wants, and they ask it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.condition import ticks_of
from headrace.observe.events.cupti_activity import SHOWN
from headrace.observe.events.records import NO_TIMESTAMP, RunInfo
from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.distribution import ALWAYS, Coverage, Distribution, Durations, Occurrences
from headrace.observe.figures.recent_computes import RecentComputes
from headrace.observe.figures.statistics import (
    FAULTS,
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
    from collections.abc import Iterable, Sequence

    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.observe.events.records import Computes, Flows, OperatorInfo, Path, QueueInfo, Times

_UNDELIVERED = 8  # computes of whose kernels CUPTI may not have delivered all
_SHORTEST = 100_000_000  # nanoseconds to which the rates of a window refer
_DISTRIBUTED = frozenset({"host", "span", "exact span", "kernels", "wait", "latency", "lateness"})
_WAITED_FOR = ("message", "clock", "gpu", "room", "turn")


class ShowsFigures(Watcher):
    """The base of watchers that show figures.

    Attributes
    ----------
    window
        The nanoseconds up to now of which it shows figures, besides those of the whole run.
    wants_statistics
        Whether it shows statistics.
    explains
        Whether it tells where the time of messages went, for which more computes are kept.
    figures
        The figures of the run that it watches, or of the last one.
    """

    period = 1.0  # who shows figures catches up with the run
    wants_cpu_times = True
    window = 0
    wants_statistics = True
    explains = False
    _figures: RunFigures | None = None

    @property
    def figures(self) -> RunFigures:
        """The figures of the run that it watches, or of the last one; empty before."""
        if self._figures is None:
            self._figures = RunFigures([self])
        return self._figures

    def snapshot(self) -> Statistics:
        """Return the statistics of the run so far."""
        return self.figures.snapshot()


def with_figures(watchers: Sequence[Watcher]) -> list[Watcher]:
    """Return watchers, and before them the figures that they show, if any of them shows some."""
    shown_by = [watcher for watcher in watchers if isinstance(watcher, ShowsFigures)]
    return [RunFigures(shown_by), *watchers] if shown_by else list(watchers)


class RunFigures(Watcher):
    """Collects the figures of a run.

    The reader's thread adds to them under a lock; `snapshot` may be called from any thread.

    Parameters
    ----------
    shown_by
        Those who show them.

    Attributes
    ----------
    computes
        The last computes of each operator.
    newest
        The end of the newest compute, or of its work on the device.
    """

    period = ShowsFigures.period
    longest_period = float("inf")  # as long as those like who show them
    spans_parts = True

    def __init__(self, shown_by: Sequence[ShowsFigures]) -> None:
        self._shown_by = shown_by
        self._window = max(each.window for each in shown_by)
        self._has_statistics = any(each.wants_statistics for each in shown_by)
        self._has_threads = any(each.wants_threads for each in shown_by)
        # Reentrant: a signal handler may ask for figures while its thread holds it.
        self._lock = threading.RLock()
        self._run = RunInfo("", [], 0, 0, is_virtual=True)  # until there is one
        # By their kind, and the operator, queue, path or thread.
        self._durations: dict[tuple[str, Any], Durations] = {}
        # By operator and compute: when its kernels known so far began and ended, and how long they took.
        self._running: defaultdict[int, dict[int, tuple[int, int, int]]] = defaultdict(dict)
        # By operator: the ticks that were late, and those that were skipped.
        self._ticks: defaultdict[OperatorInfo, tuple[int, int]] = defaultdict(lambda: (0, 0))
        # By operator: of some computes, how long their thread did not have the processor, how much of that it may
        # have waited for the interpreter, how long they took, and their number.
        self._cpu_times: defaultdict[OperatorInfo, Times] = defaultdict(lambda: np.zeros(4, np.int64))
        # By device and name of the slice: when work was on it.
        self._coverage: defaultdict[tuple[int, str], Coverage] = defaultdict(Coverage)
        # In the order in which messages first came on them.
        self._paths: dict[Path, None] = {}
        self.computes = RecentComputes(any(each.explains for each in shown_by))
        self.newest = 0

    def begin(self, run: RunInfo) -> None:
        """Begin, for all who show them."""
        self._run, self.newest = run, run.started
        for each in self._shown_by:
            each._figures = self

    def durations(self, kind: str, key: Any) -> Durations:
        """Return the durations of one kind of an operator, a queue, a path or a thread."""
        found = self._durations.get((kind, key))
        if found is None:
            whole = Distribution() if kind in _DISTRIBUTED else Occurrences()
            found = self._durations[kind, key] = Durations(whole, bool(self._window))
        return found

    def computed(self, computes: Computes) -> None:
        """Add computes."""
        with self._lock:
            ends = [computes.ended[-1], *(work.ended.max(initial=0) for work in computes.gpu)]
            self.newest = max(self.newest, int(max(ends)))
            waiting = self.computes.add(computes)
            if self._has_statistics:
                for what, (waited, until) in waiting.items():
                    self.durations(f"for {what}", computes.operator).add(waited, until)
                for arrivals in computes.arrivals:
                    room = self.computes.waits_for_room(arrivals)
                    if room is not None:
                        self.durations("for room", arrivals.queue.outputs[0].operator).add(*room)
                self._count(computes)

    def _count(self, computes: Computes) -> None:
        operator, ended = computes.operator, computes.ended
        took = ended - computes.started
        self.durations("host", operator).add(took, ended)
        if computes.gpu:
            # Not every compute is timed; those that are stand for the others.
            weight = len(ended) / max(int(computes.is_timed.sum()), 1)
            used, times = computes.uses_gpu, computes.gpu_time
            exact = used & computes.gpu_is_exact
            if self._run.kernels == SHOWN:
                exact &= computes.is_replayed  # `ran` adds the others
            certain = computes.certain_gpu_time[used]
            self.durations("span", operator).add(times[used], ended[used])
            self.durations("exact span", operator).add(times[exact], ended[exact])
            self.durations("gpu", operator).add(certain, ended[used], weight)
        if self._has_threads and not operator.is_link:
            for thread in np.unique(computes.threads).tolist():
                chosen = computes.threads == thread
                self.durations("thread", thread).add(took[chosen], ended[chosen])
        for work in computes.gpu:
            self._coverage[work.stream.device, operator.slice].add(work.certain, work.ended)
        sampled = computes.cpu_time != NO_TIMESTAMP
        if sampled.any():
            waited = np.maximum(took[sampled] - computes.cpu_time[sampled], 0)
            # Whoever waits for the lock of the interpreter waits for another thread that runs.
            for_lock = np.minimum(waited, computes.others_cpu_time[sampled])
            self._cpu_times[operator] += (waited.sum(), for_lock.sum(), took[sampled].sum(), len(waited))
        if computes.ticks.any():
            self._add_ticks(computes)
        for arrivals in computes.arrivals:
            self.durations("wait", arrivals.queue).add(arrivals.wait, arrivals.received)

    def _add_ticks(self, computes: Computes) -> None:
        operator, started = computes.operator, computes.started
        lateness = started - computes.due
        # The first tick comes at once: it is not due before.
        is_tick = computes.ticks & (np.arange(len(started)) + computes.first > 0)
        self.durations("lateness", operator).add(lateness[is_tick], started[is_tick])
        clock = ticks_of(operator.node.operator.conditions.values())
        late, skipped = self._ticks[operator]
        if clock is not None and clock.period:
            late += int((lateness[is_tick] >= clock.period).sum())
        self._ticks[operator] = late, skipped + int(computes.skipped.sum())

    def ran(self, kernels: list[Activity]) -> None:
        """Add kernels and copies."""
        with self._lock:
            for each in kernels:
                if each.operator is not None:
                    running = self._running[each.operator]
                    began, ended, took = running.get(each.compute, (each.started, each.started, 0))
                    took += max(each.ended - max(each.started, ended), 0)
                    running[each.compute] = min(began, each.started), max(ended, each.ended), took
            self._add_kernels(_UNDELIVERED)

    def _add_kernels(self, kept: int) -> None:
        """Add the kernels of all computes but the last ones, of which more may follow."""
        for index, running in self._running.items():
            known = sorted(running)[: max(len(running) - kept, 0)]
            if known:
                operator = self._run.operators[index]
                began, ended, took = np.array([running.pop(compute) for compute in known], np.int64).T
                self.durations("exact span", operator).add(ended - began, ended)
                self.durations("kernels", operator).add(took, ended)

    def end(self, outcome: Outcome | None) -> None:
        """End; the figures stay."""
        with self._lock:
            self._add_kernels(0)

    def flowed(self, flows: list[Flows]) -> None:
        """Add messages that reached the end of their paths."""
        with self._lock:
            for each in flows if self._has_statistics else ():
                path = each.path.without_links
                self._paths[path] = None
                latency, done = each.latency, each.done
                timed = slice(None) if each.is_timed.all() else each.is_timed
                self.durations("arrival", path).add(latency, done)
                self.durations("latency", path).add(latency[timed], done[timed])

    def resolved(self) -> None:
        """Forget what was before the window, which ends where all is known."""
        if self._window:
            with self._lock:
                known = self.newest if self.observation is None else self.observation.known_until
                for durations in self._durations.values():
                    durations.forget(known - self._window)

    def snapshot(self, window: int = 0, now: int = 0) -> Statistics:
        """Return the statistics so far.

        Rates, durations and shares are those of the whole run, or of a window up to `now`, up to which all is
        known; counts are those of the whole run.
        """
        self.catch_up()
        with self._lock:
            run, time = self._run, _Timespan(self, window, now)
            sources = [operator for operator in run.operators if operator.is_source]
            watchers = () if self.observation is None else self.observation.watchers
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
                run.kernels,
                tuple(
                    GoalStatistics.of(goal) for watcher in watchers for goal in getattr(watcher, "goals", ())
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

    def threads(self, window: int = 0, now: int = 0) -> dict[int, float]:
        """Return the share of the time in which each thread computed, in the order in which they appeared."""
        with self._lock:
            time = _Timespan(self, window, now)
            threads = [key for kind, key in self._durations if kind == "thread"]
            return {thread: time.share(time.of("thread", thread).load) for thread in threads}


class _Timespan:
    """The time to which statistics refer: all of the run, or a window up to now.

    Attributes
    ----------
    figures
        The figures of the run.
    host
        The durations of each operator's computes in this time.
    """

    def __init__(self, figures: RunFigures, window: int, now: int) -> None:
        self.figures, self._window = figures, window
        self._until = now if window and now else figures.newest
        self.since = self._until - window if window else ALWAYS
        self.host = {operator: self.of("host", operator) for operator in figures._run.operators}
        whole = [figures.durations("host", operator).whole for operator in self.host]
        first = min((each.first for each in whole if each.count), default=self._until)
        self._span = max(self._until - max(first, self.since), _SHORTEST if window else 0)

    def of(self, kind: str, key: Any) -> Occurrences:
        """Return the durations of something in this time."""
        durations = self.figures.durations(kind, key)
        return durations.between(self.since, self._until) if self._window else durations.whole

    def count(self, kind: str, key: Any) -> int:
        """Return the number of durations in all of the run."""
        return self.figures.durations(kind, key).whole.count

    def waits(self, operator: OperatorInfo) -> tuple[float | None, float | None]:
        """Return the shares of sampled computes without the processor, and at most for the interpreter's lock."""
        waited, for_lock, took, count = self.figures._cpu_times[operator].tolist()
        return (waited / took, for_lock / took) if count >= FEW and took else (None, None)

    def waiting(self, operator: OperatorInfo) -> dict[str, float]:
        """Return the shares of the time in which an operator waited between its computes, by what for."""
        shares = {what: self.share(self.of(f"for {what}", operator).load) for what in _WAITED_FOR}
        turn = max(shares.pop("turn") - shares["room"], 0.0)
        return {what: share for what, share in (*shares.items(), (operator.waits_for(True), turn)) if share}

    def rate(self, events: Occurrences) -> float:
        """Return how many there were in a second; in the whole run, from the first of them to the last."""
        if not self._window:
            return events.rate
        return events.rate_until(max(self.since, self.figures._run.started), self._until, _SHORTEST)

    def share(self, load: float, places: int = 1) -> float:
        """Return the part of the time of so many places that a load takes."""
        return min(load / (self._span * places), 1.0) if self._span * places > 0 else 0.0


def _operator(operator: OperatorInfo, time: _Timespan) -> OperatorStatistics:
    host, span, exact = time.host[operator], time.of("span", operator), time.of("exact span", operator)
    is_bound = exact.count * 10 < span.count
    late, skipped = time.figures._ticks[operator]
    waits, interpreter = time.waits(operator)
    faults: Any = dict(zip(FAULTS, operator.faults.numbers, strict=True))
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
        lateness=time.of("lateness", operator).summary(),
        late_ticks=late,
        skipped_ticks=skipped,
        waits=waits,
        interpreter=interpreter,
        is_parallel=operator.is_parallel,
        waiting=time.waiting(operator),
        **faults,
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
