"""RecentFigures: what a run did in the last seconds, for a page that is updated a few times a second.

Rates and percentiles are those of the last `WINDOW`: those of the whole run would hide what happens now. Intervals
of the time line are sent as they are while there are few. An operator that computes hundreds of times a second has
them summed up in cells of `CELL`, each with the part of it in which the operator computed: a page has no more
pixels than that.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.observe.figures.coverage import Coverage
from headrace.observe.figures.saturation import FEW, SATURATED, saturated

if TYPE_CHECKING:
    from headrace.observe.events.records import (
        Computes,
        Flows,
        GpuWork,
        OperatorInfo,
        Path,
        QueueInfo,
        RunInfo,
        Times,
        WorkersInfo,
    )

WINDOW = 5_000_000_000  # nanoseconds of rates and percentiles
CELL = 2_500_000  # nanoseconds that are summed up in a busy time line
_FEW = 100  # intervals of one batch that are sent as they are
_RECENT = 1_500_000_000  # nanoseconds in which a compute is known here
_KEPT = 8_000_000_000  # nanoseconds of the time line for a page that has just connected


@dataclass(slots=True)
class _Piece:
    """Intervals of one operator, on the host or on the device; `number` counts all pieces.

    Attributes
    ----------
    entry
        The position of the operator, whether it is the device, and the intervals: start, length, fill,
        worker.
    """

    number: int
    ended: int
    entry: list[Any]


class RecentFigures:
    """The figures of the last seconds; not locked, so its user serializes the calls."""

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._operators = {operator: _Series() for operator in run.operators}
        self._gpu = {operator: _Series() for operator in run.operators}
        # The time for which the device certainly worked; and whether the time above is a bound.
        self._gpu_load = {operator: _Series() for operator in run.operators}
        self._gpu_is_bound = dict.fromkeys(run.operators, False)
        self._waits = {queue: _Series() for queue in run.queues}
        self._slices: dict[str, _SliceWork] = {}
        self._paths: defaultdict[Path, _Series] = defaultdict(_Series)
        self._pieces: deque[_Piece] = deque()
        self._count = 0
        self._counts = dict.fromkeys(run.operators, 0)
        self._threads: dict[int, int] = {}
        self._workers: defaultdict[int, _Series] = defaultdict(_Series)
        self.newest = run.started
        """The end of the newest compute, and of its work on the device."""

    # Adding events.

    def add_computes(self, computes: Computes) -> None:
        """Add computes of one operator."""
        operator, started, ended = computes.operator, computes.started, computes.ended
        self.newest = max(
            self.newest, int(ended[-1]), *(int(work.ended[-1]) for work in computes.gpu if len(work.ended))
        )
        self._counts[operator] += len(started)
        self._operators[operator].add(ended, ended - started)
        workers = self._workers_of(computes.threads)
        self._add_to_workers(workers, started, ended)
        self._add_piece(operator, False, started, ended, workers)
        if computes.gpu:
            # Not every compute is timed; those that are stand for the others.
            weight = len(started) / max(int(computes.is_timed.sum()), 1)
            for work in computes.gpu:
                self._add_piece(operator, True, work.certain, work.ended, workers[:1], weight)
                self._slices.setdefault(
                    f"{work.stream.device}:{operator.slice or '*'}",
                    _SliceWork(work.stream.device, operator.slice),
                ).add(operator, work)
            uses_gpu, times = computes.uses_gpu, computes.gpu_time
            is_exact = uses_gpu & computes.gpu_is_exact
            self._gpu_is_bound[operator] = bool(is_exact.sum() * 10 < uses_gpu.sum())
            self._gpu[operator].add(ended, times[uses_gpu if self._gpu_is_bound[operator] else is_exact])
            self._gpu_load[operator].add(ended, computes.certain_gpu_time[uses_gpu], weight=weight)
        for arrivals in computes.arrivals:
            if len(arrivals.received):
                self._waits[arrivals.queue].add(arrivals.received, arrivals.wait)
        self.forget(self.newest)  # nobody may ask for figures for hours

    def add_flows(self, flows: list[Flows]) -> None:
        """Add messages that reached the end of their paths."""
        for each in flows:
            self._paths[each.path].add(each.done[each.is_timed], each.latency[each.is_timed], len(each.done))

    # Figures, in microseconds and per second.

    def operator(self, operator: OperatorInfo, now: int) -> dict[str, Any]:
        """Return the figures of an operator."""
        host, device = self._operators[operator], self._gpu[operator]
        found: dict[str, Any] = {
            "count": self._counts[operator],
            "rate": host.rate(now),
            "busy": host.busy(now),
            "host": host.percentiles(now),
        }
        if device.is_used:
            found["gpu"] = device.percentiles(now)
            found["gpu_is_bound"] = self._gpu_is_bound[operator]
            found["gpu_busy"] = self._gpu_load[operator].busy(now)
        share = max(found["busy"], found.get("gpu_busy", 0))
        found["is_saturated"] = self._counts[operator] >= FEW and share >= SATURATED
        return found

    def wait(self, queue: QueueInfo, now: int) -> list[float] | None:
        """Return the median and the 99th percentile of the time in a queue."""
        return self._waits[queue].percentiles(now)

    def queue_busy(self, queue: QueueInfo, now: int) -> float:
        """Return the share of a queue's places that were taken, on average, by messages received later."""
        return round(min(self._waits[queue].load(now) / max(queue.limit, 1), 1.0), 3)

    def workers(self, now: int) -> list[float]:
        """Return the share of the time in which each worker computed, in the order in which they appeared."""
        return [self._workers[number].busy(now) for number in range(len(self._threads))]

    def slices(self, now: int) -> dict[str, float]:
        """Return the share of the time in which each slice has work, by its key: ``device:name``."""
        return {key: self._slice_busy(each, now) for key, each in self._slices.items()}

    def _slice_busy(self, work: _SliceWork, now: int) -> float:
        load = sum(self._gpu_load[operator].load(now) for operator in work.operators)
        return round(min(load * work.overlap(now), 1.0), 3)

    def saturated(self, now: int) -> list[str]:
        """Return what is busy at least 90 % of the time, in words."""
        often = [operator for operator, count in self._counts.items() if count >= FEW]
        found = saturated(
            [(each.name, self._operators[each].busy(now)) for each in often],
            [(each.name, self._gpu_load[each].busy(now)) for each in often],
            [
                (each.name, each.count, self._load_of(each, now), _names(each.operators))
                for each in self._run.workers
            ],
            [
                (each.name, self._slice_busy(each, now), _names(each.operators))
                for each in self._slices.values()
            ],
            [
                (queue.name, self.queue_busy(queue, now))
                for queue, waits in self._waits.items()
                if waits.count >= FEW
            ],
        )
        return list(found)

    def _load_of(self, workers: WorkersInfo, now: int) -> float:
        return min(sum(self._operators[each].load(now) for each in workers.operators) / workers.count, 1.0)

    def paths(self, now: int) -> list[dict[str, Any]]:
        """Return the figures of every path that a message has taken."""
        return [
            {
                "names": _names(path.operators),
                "count": series.count,
                "rate": series.rate(now),
                "latency": series.percentiles(now),
            }
            for path, series in self._paths.items()
        ]

    # The time line.

    @property
    def last_piece(self) -> int:
        """The number of the newest piece."""
        return self._count

    def pieces_after(self, number: int) -> Iterator[list[Any]]:
        """Yield the intervals that came after a piece; at most those of the last seconds."""
        for piece in self._pieces:
            if piece.number > number:
                yield piece.entry

    def forget(self, now: int) -> None:
        """Forget what is older than the time line."""
        while self._pieces and self._pieces[0].ended < now - _KEPT:
            self._pieces.popleft()

    def _add_piece(
        self,
        operator: OperatorInfo,
        is_gpu: bool,
        started: Times,
        ended: Times,
        workers: Times,
        weight: float = 1.0,
    ) -> None:
        if not len(started):
            return
        if len(started) <= _FEW:
            worker = np.broadcast_to(workers, started.shape) if len(workers) == 1 else workers
            fill = np.full(len(started), 100)
        else:
            # One interval for each cell: of cells in which computes began, the part that they took.
            cells, first = np.unique(started // CELL, return_index=True)
            took = np.add.reduceat(np.minimum(ended - started, CELL), first) * weight
            fill = np.clip(took * 100 // CELL, 2, 100).astype(np.int64)
            worker = np.broadcast_to(workers, cells.shape) if len(workers) == 1 else workers[first]
            started, ended = cells * CELL, (cells + 1) * CELL
        origin = self._run.started
        self._count += 1
        rows = np.stack(
            [(started - origin) // 1000, np.maximum((ended - started) // 1000, 1), fill, worker], axis=1
        )
        entry = [operator.index, int(is_gpu), rows.ravel().tolist()]
        self._pieces.append(_Piece(self._count, int(ended[-1]), entry))

    def _add_to_workers(self, workers: Times, started: Times, ended: Times) -> None:
        """Add computes to the figures of the threads that computed them."""
        for number in np.unique(workers).tolist():
            chosen = slice(None) if len(workers) == 1 else workers == number
            self._workers[number].add(ended[chosen], (ended - started)[chosen])

    def _workers_of(self, threads: Times) -> Times:
        """Return the number of each thread, in the order in which they appeared."""
        known = self._threads
        first = int(threads[0])
        if (threads == first).all():
            return np.array([known.setdefault(first, len(known))])
        return np.array([known.setdefault(thread, len(known)) for thread in threads.tolist()])


def _names(operators: Iterable[OperatorInfo]) -> list[str]:
    return [operator.name for operator in operators]


class _SliceWork:
    """The work of the last seconds on one slice of a device."""

    __slots__ = ("_work", "name", "operators")

    def __init__(self, device: int, name: str) -> None:
        self.name = f"GPU {device}, {f'slice {name}' if name else 'all SMs'}"
        self.operators: dict[OperatorInfo, None] = {}
        self._work: deque[GpuWork] = deque()

    def add(self, operator: OperatorInfo, work: GpuWork) -> None:
        """Add work of one operator."""
        if len(work.ended):
            self.operators[operator] = None
            self._work.append(work)
            self._forget(int(work.ended[-1]))

    def overlap(self, now: int) -> float:
        """Return how long there was any work, as a part of all its durations together: 1 if none overlap."""
        self._forget(now)
        coverage, durations = Coverage(), 0
        for work in self._work:
            coverage.add(work.certain, work.ended)
            durations += int((work.ended - work.certain).sum())
        return coverage.total / durations if durations else 1.0

    def _forget(self, now: int) -> None:
        while self._work and self._work[0].ended[-1] < now - WINDOW:
            self._work.popleft()


class _Series:
    """Durations of the last seconds, with the time of each."""

    __slots__ = ("_batches", "count", "is_used")

    def __init__(self) -> None:
        # The first and the last time of a batch, its number of events, its durations, and how many each stands for.
        self._batches: deque[tuple[int, int, int, Times, float]] = deque()
        self.count = 0
        self.is_used = False

    def add(self, times: Times, durations: Times, count: int | None = None, weight: float = 1.0) -> None:
        """Add a batch; `count` counts events without a duration, too."""
        events = len(durations) if count is None else count
        self.count += events
        if not len(times):
            return
        self.is_used = True
        self._batches.append((int(times[0]), int(times[-1]), events, durations, weight))
        self._forget(int(times[-1]))

    def rate(self, now: int) -> float:
        """Return the events per second."""
        self._forget(now)
        return round(sum(batch[2] for batch in self._batches) * 1e9 / self._span(now), 2)

    def busy(self, now: int) -> float:
        """Return the part of the time that the durations fill."""
        return round(min(self.load(now), 1.0), 3)

    def load(self, now: int) -> float:
        """Return the sum of the durations, as a part of the time; more than 1 if they overlap."""
        self._forget(now)
        total = sum(int(durations.sum()) * weight for *_, durations, weight in self._batches)
        return total / self._span(now)

    def percentiles(self, now: int) -> list[float] | None:
        """Return the median and the 99th percentile, in microseconds; None without any."""
        self._forget(now)
        if not self._batches:
            return None
        values = np.concatenate([batch[3] for batch in self._batches])
        if not len(values):
            return None
        ranks = [(len(values) - 1) // 2, -(-len(values) * 99 // 100) - 1]
        values.partition(ranks)
        return [round(int(values[rank]) / 1e3, 1) for rank in ranks]

    def _span(self, now: int) -> int:
        """Return the time in which the batches happened; up to now, if nothing has come for a while."""
        if not self._batches:
            return WINDOW
        last = self._batches[-1][1]
        return max((last if now - last < _RECENT else now) - self._batches[0][0], 100_000_000)

    def _forget(self, now: int) -> None:
        while self._batches and self._batches[0][1] < now - WINDOW:
            self._batches.popleft()
