"""Durations in bounded memory: their distribution, in the whole run and in its last seconds, and their union.

The first few thousand values of a distribution are kept, and percentiles of them are exact. If there are more, only
a histogram is kept, whose buckets are at most 0.8 % wide; percentiles are then off by at most half of that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.records import Times

_KEPT = 4096  # values of which percentiles are exact
_SPLIT = 7  # each doubling has 2**7 buckets
ALWAYS = -(1 << 62)
"""A time before everything."""
_MOST_WAITING = 16_384  # intervals that wait to be joined
_KEPT_APART = 16_384  # joined intervals that later ones may still overlap
BOUNDS = (*(int(step * 10**power) for power in range(4, 10) for step in (1, 2.5, 5)), 10**10)
"""The upper bounds of the buckets of histograms for Prometheus, in nanoseconds: from 10 µs to 10 s."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A distribution of durations in a few figures, in nanoseconds; they are upper bounds if it `is_bound`."""

    count: int = 0
    mean: float = 0.0
    min: int = 0
    p50: int = 0
    p95: int = 0
    p99: int = 0
    max: int = 0
    is_bound: bool = False
    cumulative: tuple[int, ...] = field(default=(), repr=False)
    """The number of durations that are at most each of `BOUNDS`."""


class Occurrences:
    """Counts durations, in nanoseconds; values below 0 count as 0.

    Attributes
    ----------
    total
        The sum of the durations.
    load
        The sum of the durations, with those for which others stand.
    first, first_ended, last
        When the first one began and ended, and when the last one ended.
    """

    __slots__ = ("count", "first", "first_ended", "last", "load", "total")

    def __init__(self) -> None:
        self.count = self.total = self.first = self.first_ended = self.last = 0
        self.load = 0.0

    def add(self, values: Times, ended: Times, weight: float = 1.0) -> None:
        """Add durations that ended at these times, each of which stands for so many."""
        if not len(values):
            return
        total = int(values.sum())
        if not self.count:
            self.first, self.first_ended = int(ended[0] - values[0]), int(ended[0])
        self.last = int(ended[-1])
        self.count += len(values)
        self.total += total
        self.load += total * weight

    @property
    def rate(self) -> float:
        """How many there are in a second, from the end of the first to that of the last: n have n - 1 intervals."""
        return per_second(self.count - 1, self.last - self.first_ended)

    def rate_until(self, since: int, until: int, least: int) -> float:
        """Return the rate in a window, which decreases when the next one is overdue.

        Until that is due, it is the rate between the first and the last. After that, it is their number in the time
        since the first one. The two are the same when it is due, and the lesser of them holds.

        Parameters
        ----------
        since, until
            Where the window begins and ends.
        least
            The shortest time, so that two in a row are no rate of thousands.
        """
        if self.count < 2:
            return per_second(self.count, max(until - since, least))
        overdue = per_second(self.count, max(until - self.first_ended, least))
        return min(self.rate or overdue, overdue)

    def summary(self, is_bound: bool = False) -> Summary:
        """Return what is known of them in a few figures."""
        return Summary(self.count, self.total / self.count if self.count else 0.0, is_bound=is_bound)


class Distribution(Occurrences):
    """Counts durations, and knows how they are distributed."""

    __slots__ = ("_buckets", "_kept", "max", "min")

    def __init__(self) -> None:
        super().__init__()
        self.min = self.max = 0
        self._kept: list[Times] = []
        self._buckets: NDArray[np.int64] | None = None

    def add(self, values: Times, ended: Times, weight: float = 1.0) -> None:
        """Add durations that ended at these times, each of which stands for so many."""
        if not len(values):
            return
        least = int(values.min())
        if least < 0:
            values, least = np.maximum(values, 0), 0
        self.min = min(self.min, least) if self.count else least
        self.max = max(self.max, int(values.max()))
        super().add(values, ended, weight)
        if self._buckets is None:
            self._kept.append(values)
            if self.count <= _KEPT:
                return
            values = np.concatenate(self._kept)
            self._kept.clear()
            self._buckets = np.zeros((64 - _SPLIT + 1) << _SPLIT, np.int64)
        np.add.at(self._buckets, _bucket_of(values), 1)

    def percentile(self, percent: float) -> int:
        """Return the least value that `percent` of the values do not exceed; 0 if there is none."""
        if not self.count:
            return 0
        rank = max(int(np.ceil(self.count * percent / 100)), 1)
        if self._buckets is None:
            values = np.concatenate(self._kept)
            self._kept = [values]
            return int(np.partition(values, rank - 1)[rank - 1])
        bucket = int(np.searchsorted(np.cumsum(self._buckets), rank))
        return min(max(_middle_of(bucket), self.min), self.max)

    def summary(self, is_bound: bool = False) -> Summary:
        """Return the distribution in a few figures; `is_bound` if durations are at most those that were added."""
        if not self.count:
            return Summary()
        p50, p95, p99 = (self.percentile(percent) for percent in (50, 95, 99))
        mean, cumulative = self.total / self.count, self._cumulative()
        return Summary(self.count, mean, self.min, p50, p95, p99, self.max, is_bound, cumulative)

    def _cumulative(self) -> tuple[int, ...]:
        bounds = np.array(BOUNDS)
        if self._buckets is None:
            values = np.concatenate(self._kept)
            self._kept = [values]
            found = np.searchsorted(np.sort(values), bounds, side="right")
        else:
            # With all of the bucket of a bound, so that the number does not shrink when the values are forgotten.
            found = np.cumsum(self._buckets)[_bucket_of(bounds)]
        return tuple(found.tolist())


class Durations:
    """Durations of one kind: those of the whole run, and the last of them one by one, until they are forgotten.

    Attributes
    ----------
    whole
        Those of the whole run.
    """

    __slots__ = ("_keeps", "_recent", "whole")

    def __init__(self, whole: Occurrences, keeps: bool) -> None:
        self.whole = whole
        self._keeps = keeps
        # In rows: when each ended, the durations, and the durations with those for which they stand.
        self._recent: deque[NDArray[np.int64]] = deque()

    def add(self, values: Times, ended: Times, weight: float = 1.0) -> None:
        """Add durations that ended at these times, each of which stands for so many."""
        self.whole.add(values, ended, weight)
        if self._keeps and len(values):
            self._recent.append(np.stack((ended, values, (values * weight).astype(np.int64))))

    def forget(self, before: int) -> None:
        """Forget what ended before a time, as far as it is not known together with something later."""
        while self._recent and self._recent[0][0, -1] < before:
            self._recent.popleft()

    def between(self, since: int, until: int) -> Occurrences:
        """Return those that ended after a time, and not after another one; only what lies between is their load."""
        found = type(self.whole)()
        if self._recent:
            batch = self._recent[0] if len(self._recent) == 1 else np.concatenate(self._recent, axis=1)
            ended, values, loads = batch[:, (batch[0] > since) & (batch[0] <= until)]
            found.add(values, ended)
            inside = np.minimum(ended - since, values) / np.maximum(values, 1)
            found.load = float((loads * inside).sum())
        return found


class Coverage:
    """For how long at least one of several things went on: intervals, which may overlap and come in any order.

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
        if sum(len(each) for each, _ in self._waiting) > _MOST_WAITING:
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
        settled = max(len(starts) - _KEPT_APART, 0)
        if settled:
            self._total += int((ends[:settled] - starts[:settled]).sum())
            self._before = int(ends[settled - 1])
        self._starts, self._ends = starts[settled:], ends[settled:]


def per_second(count: float, nanoseconds: float) -> float:
    """Return how many there are in a second of what came so often in a time; 0 if there was no time."""
    return max(count, 0) * 1e9 / nanoseconds if nanoseconds > 0 else 0.0


def _bucket_of(values: Times) -> Times:
    """Return the bucket of each value: the value itself if it is small, else its leading bits and its magnitude."""
    _, exponents = np.frexp(values.astype(np.float64))
    shift = np.maximum(exponents.astype(np.int64) - 1 - _SPLIT, 0)
    return (shift << _SPLIT) + (values >> shift)


def _middle_of(bucket: int) -> int:
    """Return the middle of a bucket."""
    shift = max((bucket >> _SPLIT) - 1, 0)
    leading = bucket - (shift << _SPLIT)
    return (leading << shift) + ((1 << shift) >> 1)
