"""TimeLine: when each operator computed in the last seconds, and on which worker, for a page.

Intervals are sent as they are while there are few. An operator that computes hundreds of times a second has them
summed up in cells of `CELL`, each with the part of it in which the operator computed: a page has no more pixels.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from headrace.observe.events.records import Computes, OperatorInfo, Times

CELL = 2_500_000  # nanoseconds that are summed up in a busy time line
_FEW = 100  # intervals of one batch that are sent as they are
_KEPT = 8_000_000_000  # nanoseconds that a page which has just connected is sent


class TimeLine:
    """The intervals of a run's last seconds, which began at `started`.

    Attributes
    ----------
    last_piece
        The number of the newest piece, from 1.
    """

    def __init__(self, started: int) -> None:
        self.last_piece = 0
        self._started = started
        self._lock = threading.Lock()
        # The number of each piece, when it ended, and its entry: the position of the operator, whether it is the
        # device, and for each interval its start, length, fill and worker.
        self._pieces: deque[tuple[int, int, list[Any]]] = deque()
        # The number of each thread, in the order in which they appeared.
        self._workers: dict[int, int] = {}

    def add(self, computes: Computes) -> None:
        """Add computes of one operator."""
        started, ended = computes.started, computes.ended
        threads, places = np.unique(computes.threads, return_inverse=True)
        numbers = [self._workers.setdefault(thread, len(self._workers)) for thread in threads.tolist()]
        workers = np.array(numbers)[places]
        self._add_piece(computes.operator, False, started, ended, workers)
        # Not every compute is timed; those that are stand for the others.
        weight = len(started) / max(int(computes.is_timed.sum()), 1)
        for work in computes.gpu:
            places = workers[work.compute - computes.first]
            self._add_piece(computes.operator, True, work.certain, work.ended, places, weight)

    def pieces_after(self, number: int) -> tuple[int, list[list[Any]]]:
        """Return the number of the newest piece, and the intervals after a piece, at most of the last seconds."""
        with self._lock:
            return self.last_piece, [entry for piece, _, entry in self._pieces if piece > number]

    def forget(self, now: int) -> None:
        """Forget what is older than what a page is sent."""
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
        fill, newest = np.full(len(started), 100), int(ended[-1])
        if len(started) > _FEW:
            # One interval for each cell: of cells in which computes began, the part that they took.
            cells, first = np.unique(started // CELL, return_index=True)
            took = np.add.reduceat(np.minimum(ended - started, CELL), first) * weight
            fill = np.clip(took * 100 // CELL, 2, 100).astype(np.int64)
            started, ended, workers = cells * CELL, (cells + 1) * CELL, workers[first]
        begins, lengths = (started - self._started) // 1000, np.maximum((ended - started) // 1000, 1)
        rows = np.stack([begins, lengths, fill, workers], axis=1).ravel().tolist()
        with self._lock:
            self.last_piece += 1
            self._pieces.append((self.last_piece, newest, [operator.index, int(is_gpu), rows]))
        self.forget(newest)  # nobody may ask for it for hours
