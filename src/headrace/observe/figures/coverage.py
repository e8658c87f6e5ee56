"""Coverage: for how long at least one of several things went on, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headrace.observe.events.records import Times

ALWAYS = -(1 << 62)
"""A time before everything."""
_MOST = 16_384  # intervals that wait to be joined
_KEPT = 16_384  # joined intervals that later ones may still overlap


class Coverage:
    """The union of intervals, which may overlap and come in any order.

    Only the last intervals are kept apart, if there are many. An interval that comes later and lies before them
    does not count.
    """

    __slots__ = ("_before", "_ends", "_starts", "_total", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[Times, Times]] = []
        self._starts = self._ends = np.zeros(0, np.int64)
        self._before = ALWAYS
        self._total = 0

    def add(self, starts: Times, ends: Times) -> None:
        """Add intervals."""
        if len(starts):
            self._waiting.append((starts, ends))
        if sum(len(each) for each, _ in self._waiting) > _MOST:
            self._join()

    def total(self, since: int = ALWAYS) -> int:
        """Return the length of all intervals together, or after a time; what several cover counts once."""
        self._join()
        kept = int((np.maximum(self._ends, since) - np.maximum(self._starts, since)).sum())
        return kept + (self._total if since == ALWAYS else 0)

    def _join(self) -> None:
        if not self._waiting:
            return
        starts = np.concatenate([self._starts, *(each for each, _ in self._waiting)])
        ends = np.concatenate([self._ends, *(each for _, each in self._waiting)])
        self._waiting.clear()
        starts, ends = np.maximum(starts, self._before), np.maximum(ends, self._before)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        # An interval begins where all before it have ended.
        begins = np.flatnonzero(np.concatenate(([True], starts[1:] > ends[:-1])))
        starts, ends = starts[begins], ends[np.concatenate((begins[1:] - 1, [len(ends) - 1]))]
        settled = max(len(starts) - _KEPT, 0)
        if settled:
            self._total += int((ends[:settled] - starts[:settled]).sum())
            self._before = int(ends[settled - 1])
        self._starts, self._ends = starts[settled:], ends[settled:]
