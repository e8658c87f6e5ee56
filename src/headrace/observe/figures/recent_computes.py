"""RecentComputes: the last computes of each operator, and what it waited for before each of them.

What follows from the times of computes alone is worked out once, when they come: when the device worked for each,
when its messages had come, when the compute before had ended. The division of a message's time
(`critical_path`) and the waiting of each operator both read it here.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from headrace.observe.events.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.records import Arrivals, Computes, OperatorInfo, Times

_MOST = 1 << 14


class Column(IntEnum):
    """What is known of a compute: a time, a duration, or `NO_TIMESTAMP`."""

    ENDED = 0
    GPU_BEGAN = 1
    GPU_ENDED = 2
    GPU_TIME = 3
    """How long the device certainly worked for it."""
    LAST_BEGAN = 4
    """When the last piece of its work on the device began."""
    DELAY = 5
    """By how much the host may have delayed that."""
    CAME = 6
    """When the last of its messages had come."""
    BEFORE = 7
    """When the compute before had ended."""
    WORK = 8
    """When the work on the device was complete that it launched, or else that its messages carried."""


class RecentComputes:
    """The last computes of each operator; what happened longer ago is not known any more."""

    def __init__(self) -> None:
        self._rows: defaultdict[OperatorInfo, RecentRows] = defaultdict(lambda: RecentRows(len(Column)))
        self._ended: dict[OperatorInfo, int] = {}
        self._has_work = False

    def find(self, operator: OperatorInfo, numbers: Times) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the rows of some computes of an operator, and which of these rows are known."""
        return self._rows[operator].find(numbers)

    def add(self, batch: Computes) -> dict[str, tuple[Times, Times]]:
        """Add computes, and return what their operator waited for before each: for how long, and until when.

        The keys are those of `OperatorStatistics.waiting`, with ``"turn"`` for all that is left when its messages,
        its clock, and the work that a `CudaStreamCondition` waits for, were there (`OperatorInfo.waits_for`).
        """
        rows = np.full((len(batch.started), len(Column)), NO_TIMESTAMP)
        began_at = self._ended.get(batch.operator, NO_TIMESTAMP)
        rows[:, Column.ENDED] = batch.ended
        rows[0, Column.BEFORE], rows[1:, Column.BEFORE] = began_at, batch.ended[:-1]
        rows[:, Column.GPU_TIME : Column.DELAY + 1] = 0, NO_TIMESTAMP, 0
        came = rows[:, Column.CAME]
        for arrivals in batch.arrivals:
            np.maximum.at(came, arrivals.compute - batch.first, arrivals.emitted)
        self._has_work |= bool(batch.gpu)
        if self._has_work:
            for arrivals in batch.arrivals:
                self._carry_work(arrivals, batch.first, rows[:, Column.WORK])
        found = {} if batch.operator.is_link else _waiting(batch, rows)
        if batch.gpu:
            _add_work(batch, rows)
        self._ended[batch.operator] = int(batch.ended[-1])
        self._rows[batch.operator].extend(rows)
        return found

    def _carry_work(self, arrivals: Arrivals, first: int, work: Times) -> None:
        """Note when the work was complete that messages carried to the computes that received them."""
        for position, output in enumerate(arrivals.queue.outputs):
            chosen = arrivals.output == position
            rows, is_known = self.find(output.operator, arrivals.producer[chosen])
            ended = np.where(is_known, rows[:, Column.WORK], NO_TIMESTAMP)
            np.maximum.at(work, arrivals.compute[chosen] - first, ended)


def _add_work(batch: Computes, rows: NDArray[np.int64]) -> None:
    """Note the work of computes on the device."""
    began, ended = np.full(len(rows), -NO_TIMESTAMP), rows[:, Column.GPU_ENDED]
    for work in batch.gpu:
        places = work.compute - batch.first
        np.minimum.at(began, places, work.certain)
        np.maximum.at(ended, places, work.ended)
    has_work = ended != NO_TIMESTAMP
    rows[has_work, Column.GPU_BEGAN] = rows[has_work, Column.LAST_BEGAN] = began[has_work]
    rows[has_work, Column.WORK] = ended[has_work]
    rows[:, Column.GPU_TIME] = batch.certain_gpu_time
    for work in batch.gpu:
        is_last = work.ended == ended[work.compute - batch.first]
        places, certain = work.compute[is_last] - batch.first, work.certain[is_last]
        np.maximum.at(rows[:, Column.LAST_BEGAN], places, certain)
        np.maximum.at(rows[:, Column.DELAY], places, certain - work.started[is_last])


def _waiting(batch: Computes, rows: NDArray[np.int64]) -> dict[str, tuple[Times, Times]]:
    """Return what the operator waited for between its computes, each thing from when the one before was there."""
    time, found = np.minimum(rows[:, Column.BEFORE], batch.started), {}
    if rows[0, Column.BEFORE] == NO_TIMESTAMP:  # nobody knows since when it waited for the first
        time[0] = batch.started[0]
    is_due = {"message": rows[:, Column.CAME], "clock": batch.due}
    if batch.operator.waits_for_work:
        is_due["gpu"] = rows[:, Column.WORK]
    for what, there in is_due.items():
        until = np.clip(there, time, batch.started)
        found[what] = until - time, until
        time = until
    found["turn"] = batch.started - time, batch.started
    return found


class RecentRows:
    """Rows of ints, numbered from 0, of which at least the last 16,384 are kept, and all that were added last."""

    __slots__ = ("_count", "_rows")

    def __init__(self, columns: int) -> None:
        # A ring: the row of a number is at its remainder. It grows until it is as long as it may be.
        self._rows: NDArray[np.int64] = np.zeros((64, columns), np.int64)
        self._count = 0

    def extend(self, rows: NDArray[np.int64]) -> None:
        """Add rows, and forget the oldest."""
        needed = max(len(rows), min(self._count + len(rows), _MOST))
        if needed > len(self._rows):
            kept = np.arange(max(self._count - len(self._rows), 0), self._count)
            ring = np.zeros((2 * needed, self._rows.shape[1]), np.int64)
            ring[kept % len(ring)] = self._rows[kept % len(self._rows)]
            self._rows = ring
        self._rows[np.arange(self._count, self._count + len(rows)) % len(self._rows)] = rows
        self._count += len(rows)

    def find(self, numbers: Times) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the rows of some numbers, and which of these rows are known."""
        is_known = (numbers >= max(self._count - len(self._rows), 0)) & (numbers < self._count)
        return self._rows[numbers % len(self._rows)], is_known
