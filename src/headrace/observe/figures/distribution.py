"""Distribution: how a duration is distributed, in bounded memory.

The first few thousand values are kept, and percentiles of them are exact. If there are more, only a histogram is
kept, whose buckets are at most 0.8 % wide; percentiles are then off by at most half of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.records import Times

_KEPT = 4096  # values of which percentiles are exact
_SPLIT = 7  # each doubling has 2**7 buckets


@dataclass(frozen=True, slots=True)
class Summary:
    """A distribution of durations in a few figures, in nanoseconds."""

    count: int = 0
    mean: float = 0.0
    min: int = 0
    p50: int = 0
    p95: int = 0
    p99: int = 0
    max: int = 0


class Distribution:
    """Counts durations, in nanoseconds; values below 0 count as 0."""

    __slots__ = ("_buckets", "_kept", "count", "max", "min", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.min = 0
        self.max = 0
        self._kept: list[Times] = []
        self._buckets: NDArray[np.int64] | None = None

    def add(self, values: Times) -> None:
        """Add durations."""
        if not len(values):
            return
        values = np.maximum(values, 0)
        least, most = int(values.min()), int(values.max())
        self.min = least if not self.count else min(self.min, least)
        self.max = max(self.max, most)
        self.count += len(values)
        self.total += int(values.sum())
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

    def summary(self) -> Summary:
        """Return the distribution in a few figures."""
        if not self.count:
            return Summary()
        p50, p95, p99 = (self.percentile(percent) for percent in (50, 95, 99))
        return Summary(self.count, self.total / self.count, self.min, p50, p95, p99, self.max)


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
