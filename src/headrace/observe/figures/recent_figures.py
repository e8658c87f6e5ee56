"""RecentFigures: what a run did in the last seconds, for a page that is updated a few times a second.

Rates and percentiles are those of the last `WINDOW`: those of the whole run would hide what happens now. Intervals
of the time line are sent as they are while there are few. An operator that computes hundreds of times a second has
them summed up in cells of `CELL`, each with the part of it in which the operator computed: a page has no more
pixels than that.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.observe.figures.statistics_watcher import StatisticsWatcher

if TYPE_CHECKING:
    from headrace.observe.events.records import Computes, OperatorInfo, RunInfo, Times

WINDOW = 5_000_000_000  # nanoseconds of rates and percentiles
CELL = 2_500_000  # nanoseconds that are summed up in a busy time line
_FEW = 100  # intervals of one batch that are sent as they are
_KEPT = 8_000_000_000  # nanoseconds of the time line for a page that has just connected


class RecentFigures(StatisticsWatcher):
    """The statistics of the last seconds, with a time line and the worker threads.

    Attributes
    ----------
    last_piece
        The number of the newest piece of the time line, from 1.
    """

    def __init__(self) -> None:
        super().__init__(WINDOW)

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        super().begin(run)
        # The number of each piece, when it ended, and its entry: the position of the operator, whether it is the
        # device, and for each interval its start, length, fill and worker.
        self._pieces: deque[tuple[int, int, list[Any]]] = deque()
        self.last_piece = 0
        # The number of each thread, in the order in which they appeared.
        self._numbers: defaultdict[int, int] = defaultdict(lambda: len(self._numbers))

    def computed(self, computes: Computes) -> None:
        """Add computes of one operator."""
        super().computed(computes)
        started, ended = computes.started, computes.ended
        with self._lock:
            threads, places = np.unique(computes.threads, return_inverse=True)
            workers = np.array([self._numbers[thread] for thread in threads.tolist()])[places]
            for number in set(workers.tolist()):
                chosen = workers == number
                self._durations["worker", number].add((ended - started)[chosen], ended[chosen])
            self._add_piece(computes.operator, False, started, ended, workers)
            # Not every compute is timed; those that are stand for the others.
            weight = len(started) / max(int(computes.is_timed.sum()), 1)
            for work in computes.gpu:
                places = workers[work.compute - computes.first]
                self._add_piece(computes.operator, True, work.certain, work.ended, places, weight)
            self.forget(self.newest)  # nobody may ask for figures for hours

    def workers(self, now: int) -> list[float]:
        """Return the share of the time in which each worker computed, in the order in which they appeared."""
        shares = self.shares("worker", now)
        return [shares[number] for number in sorted(shares)]

    def pieces_after(self, number: int) -> tuple[int, list[list[Any]]]:
        """Return the number of the newest piece, and the intervals after a piece, at most of the last seconds."""
        with self._lock:
            return self.last_piece, [entry for piece, _, entry in self._pieces if piece > number]

    def forget(self, now: int) -> None:
        """Forget what is older than the time line."""
        with self._lock:
            while self._pieces and self._pieces[0][1] < now - _KEPT:
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
        fill = np.full(len(started), 100)
        if len(started) > _FEW:
            # One interval for each cell: of cells in which computes began, the part that they took.
            cells, first = np.unique(started // CELL, return_index=True)
            took = np.add.reduceat(np.minimum(ended - started, CELL), first) * weight
            fill = np.clip(took * 100 // CELL, 2, 100).astype(np.int64)
            started, ended, workers = cells * CELL, (cells + 1) * CELL, workers[first]
        assert self._run is not None
        begins, lengths = (started - self._run.started) // 1000, np.maximum((ended - started) // 1000, 1)
        entry = [
            operator.index,
            int(is_gpu),
            np.stack([begins, lengths, fill, workers], axis=1).ravel().tolist(),
        ]
        self.last_piece += 1
        self._pieces.append((self.last_piece, int(ended[-1]), entry))
