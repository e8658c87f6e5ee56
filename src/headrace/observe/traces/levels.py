"""Levels: numbers that change with time, such as the messages that wait in a queue.

Changes are learned out of order: the computes of one operator are shown after those of another. So a level is told
up to a time before which nothing new can be learned, and the rest waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headrace.observe.events.records import Computes, OperatorInfo, QueueInfo, Times

END = 1 << 62
"""A time after everything."""
_MOST = 20_000  # changes that wait at most: of a queue, if its consumer computes for very long


class Level:
    """A number that changes by known amounts at known times."""

    __slots__ = ("_amounts", "_horizon", "_times", "_value")

    def __init__(self) -> None:
        self._value = 0
        self._times: Times = np.zeros(0, np.int64)
        self._amounts = self._times
        self._horizon = -END

    def change(self, times: Sequence[int] | Times, amount: int) -> None:
        """Note a change by an amount at each of some times; at the last time that was told, if that is later."""
        self._times = np.concatenate((self._times, np.maximum(times, self._horizon)))
        self._amounts = np.concatenate((self._amounts, np.full(len(times), amount)))

    def tell(self, horizon: int) -> list[tuple[int, int]]:
        """Return times up to the horizon, or later if too many wait, and the number from each on."""
        order = np.argsort(self._times, kind="stable")
        times, amounts = self._times[order], self._amounts[order]
        count = max(int(times.searchsorted(horizon, "right")), len(times) - _MOST)
        values = self._value + np.cumsum(amounts[:count])
        # The last one of several changes at a time counts.
        is_last = np.diff(times[:count], append=END) > 0
        self._times, self._amounts = times[count:], amounts[count:]
        if count:
            self._value, self._horizon = int(values[-1]), int(times[count - 1])
        return list(zip(times[:count][is_last].tolist(), values[is_last].tolist(), strict=True))


class QueueDepth:
    """How many messages waited in a queue at each time, and when messages were dropped."""

    def __init__(self, queue: QueueInfo) -> None:
        self._depth = Level()
        self._drops: list[int] = []
        # When the computes that are known ended, by operator.
        self._known: dict[OperatorInfo, int] = dict.fromkeys(
            (queue.operator, *(output.operator for output in queue.outputs)), -END
        )
        self._queue = queue

    def add(self, computes: Computes) -> None:
        """Note what computes emitted into the queue, and what they received from it."""
        for emissions in computes.emissions:
            if emissions.queue is self._queue:
                self._depth.change(emissions.emitted, 1)
                self._depth.change(emissions.dropped, -1)
                self._drops += [*emissions.rejected.tolist(), *emissions.dropped.tolist()]
        for arrivals in computes.arrivals:
            if arrivals.queue is self._queue:
                self._depth.change(arrivals.received, -1)
        for discards in computes.discards:
            if discards.queue is self._queue:
                self._depth.change(discards.discarded, -1)
        self._known[computes.operator] = int(computes.ended[-1])

    def tell(self, is_last: bool = False) -> tuple[list[tuple[int, int]], list[int]]:
        """Return what is now known: pairs of a time and the depth from then on, and the times of drops."""
        drops, self._drops = sorted(self._drops), []
        return self._depth.tell(END if is_last else min(self._known.values())), drops
