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

    from headrace.observe.events.records import Arrivals, Computes, OperatorInfo, QueueInfo, Times

_MOST = 1 << 14  # rows that are kept to tell where the time of messages went
_FEW = 1 << 9  # and where only the waiting of operators is told


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
    STARTED = 9
    TURN = 10
    """When all that it waited for was there but a worker, or what else may hold it; or room, until there was."""


class RecentComputes:
    """The last computes of each operator, and many if it `explains`; those of longer ago are not known any more."""

    def __init__(self, explains: bool = True) -> None:
        most = _MOST if explains else _FEW
        self._rows: defaultdict[OperatorInfo, RecentRows] = defaultdict(lambda: RecentRows(len(Column), most))
        self._ended: dict[OperatorInfo, int] = {}
        self._has_work = False
        # By queue: the numbers of the last messages that left it, as many as it holds, and when they did.
        self._left: dict[QueueInfo, tuple[Times, Times]] = {}

    def find(self, operator: OperatorInfo, numbers: Times) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the columns of some computes of an operator, and which of the computes are known."""
        return self._rows[operator].find(numbers)

    def add(self, batch: Computes) -> dict[str, tuple[Times, Times]]:
        """Add computes, and return what their operator waited for before each: for how long, and until when.

        The keys are those of `OperatorStatistics.waiting`, with ``"turn"`` for all that is left when its messages,
        its clock, and the work that a `CudaStreamCondition` waits for, were there (`OperatorInfo.waits_for`).
        """
        columns = np.full((len(Column), len(batch.started)), NO_TIMESTAMP)
        columns[Column.ENDED], columns[Column.BEFORE, 1:] = batch.ended, batch.ended[:-1]
        columns[Column.BEFORE, 0] = self._ended.get(batch.operator, NO_TIMESTAMP)
        columns[Column.GPU_TIME] = columns[Column.DELAY] = 0
        self._has_work |= bool(batch.gpu)
        for arrivals in batch.arrivals:
            np.maximum.at(columns[Column.CAME], arrivals.compute - batch.first, arrivals.emitted)
            if self._has_work:
                self._carry_work(arrivals, batch.first, columns[Column.WORK])
        found = {} if batch.operator.is_link else _waiting(batch, columns)
        columns[Column.STARTED] = columns[Column.TURN] = batch.started
        if found:
            columns[Column.TURN] -= found["turn"][0]
        if batch.gpu:
            _add_work(batch, columns)
        self._ended[batch.operator] = int(batch.ended[-1])
        self._rows[batch.operator].extend(columns)
        return found

    def waits_for_room(self, arrivals: Arrivals) -> tuple[Times, Times] | None:
        """Return how long the computes that emitted messages waited for room in their queue, and until when.

        It was there as soon as the message had left that was as many before as the queue holds. None if that is not
        known of the queue.
        """
        queue = arrivals.queue
        if not queue.room_is_known:
            return None
        known = self._left.get(queue, (arrivals.number[:0], arrivals.received[:0]))
        numbers, left = (
            np.concatenate((known[0], arrivals.number)),
            np.concatenate((known[1], arrivals.received)),
        )
        self._left[queue] = numbers[-queue.size :], left[-queue.size :]
        before = arrivals.number - queue.size
        places = numbers.searchsorted(before)
        has_left = numbers[places] == before
        emitter = queue.outputs[0].operator
        columns, is_known = self.find(emitter, arrivals.producer)
        turn, started = columns[Column.TURN], columns[Column.STARTED]
        until = np.minimum(left[places], started)
        chosen = has_left & is_known & (until > turn)
        # Room in another queue may come later.
        self._rows[emitter].raise_to(Column.TURN, arrivals.producer[chosen], until[chosen])
        return (until - turn)[chosen], until[chosen]

    def _carry_work(self, arrivals: Arrivals, first: int, work: Times) -> None:
        """Note when the work was complete that messages carried to the computes that received them."""
        for position, output in enumerate(arrivals.queue.outputs):
            chosen = arrivals.output == position
            columns, is_known = self.find(output.operator, arrivals.producer[chosen])
            ended = np.where(is_known, columns[Column.WORK], NO_TIMESTAMP)
            np.maximum.at(work, arrivals.compute[chosen] - first, ended)


def _add_work(batch: Computes, columns: NDArray[np.int64]) -> None:
    """Note the work of computes on the device."""
    began, ended = np.full(len(batch.started), -NO_TIMESTAMP), columns[Column.GPU_ENDED]
    for work in batch.gpu:
        places = work.compute - batch.first
        np.minimum.at(began, places, work.certain)
        np.maximum.at(ended, places, work.ended)
    has_work = ended != NO_TIMESTAMP
    for column, times in ((Column.GPU_BEGAN, began), (Column.LAST_BEGAN, began), (Column.WORK, ended)):
        columns[column, has_work] = times[has_work]
    columns[Column.GPU_TIME] = batch.certain_gpu_time
    for work in batch.gpu:
        is_last = work.ended == ended[work.compute - batch.first]
        places, certain = work.compute[is_last] - batch.first, work.certain[is_last]
        np.maximum.at(columns[Column.LAST_BEGAN], places, certain)
        np.maximum.at(columns[Column.DELAY], places, certain - work.started[is_last])


def _waiting(batch: Computes, columns: NDArray[np.int64]) -> dict[str, tuple[Times, Times]]:
    """Return what the operator waited for between its computes, each thing from when the one before was there."""
    time = np.minimum(columns[Column.BEFORE], batch.started)
    if columns[Column.BEFORE, 0] == NO_TIMESTAMP:  # nobody knows since when it waited for the first
        time[0] = batch.started[0]
    there = {"message": columns[Column.CAME]} if batch.arrivals else {}
    if batch.ticks.any():
        there["clock"] = batch.due
    if batch.operator.waits_for_work:
        there["gpu"] = columns[Column.WORK]
    found = {}
    for what, since in there.items():
        until = np.minimum(np.maximum(since, time), batch.started)
        found[what] = until - time, until
        time = until
    found["turn"] = batch.started - time, batch.started
    return found


class RecentRows:
    """Rows of ints, numbered from 0: at least the last ones are kept, `most` of them, and all that were added last.

    They are given and returned as columns, which are copied as they lie.
    """

    __slots__ = ("_columns", "_end", "_first", "_most")

    def __init__(self, columns: int, most: int | None = None) -> None:
        self._most = _MOST if most is None else most
        self._columns: NDArray[np.int64] = np.zeros((columns, 64), np.int64)
        # The number of the first row that is there, and how many are.
        self._first = self._end = 0

    def extend(self, columns: NDArray[np.int64]) -> None:
        """Add rows; where there is no room for them, move to another place and forget the oldest."""
        added = columns.shape[1]
        if self._end + added > self._columns.shape[1]:
            kept = self._columns[:, max(self._end - self._most, 0) : self._end]
            self._first += self._end - kept.shape[1]
            self._end = kept.shape[1]
            self._columns = np.zeros((len(columns), 2 * (self._end + added)), np.int64)
            self._columns[:, : self._end] = kept
        self._columns[:, self._end : self._end + added] = columns
        self._end += added

    def raise_to(self, column: int, numbers: Times, values: Times) -> None:
        """Raise a column of some rows, which are known, to these values."""
        places = numbers - self._first
        self._columns[column, places] = np.maximum(self._columns[column, places], values)

    def find(self, numbers: Times) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the columns of the rows of some numbers, and which of these rows are known."""
        places = numbers - self._first
        is_known = (places >= 0) & (places < self._end)
        return self._columns[:, np.where(is_known, places, 0)], is_known
