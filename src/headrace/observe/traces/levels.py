"""Level: a number that changes with time, such as the messages that wait in a queue.

Changes are learned out of order: the computes of one operator are shown after those of another. So a level is told
up to a time before which nothing new can be learned, and the rest waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headrace.observe.events.records import Times

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
