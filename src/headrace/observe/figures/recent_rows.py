"""RecentRows: a table that keeps its last rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.records import Times

_MOST = 1 << 14


class RecentRows:
    """Rows of ints, numbered from 0, of which the last ones are kept: 16,384, or as many as were added last.

    Attributes
    ----------
    first
        The number of the first row that is kept.
    """

    __slots__ = ("_count", "_rows", "_start", "first")

    def __init__(self, columns: int) -> None:
        self._rows: NDArray[np.int64] = np.zeros((64, columns), np.int64)
        self._start = 0
        self._count = 0
        self.first = 0

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows that are kept."""
        return self._rows[self._start : self._start + self._count]

    def extend(self, rows: NDArray[np.int64]) -> None:
        """Add rows, and forget the oldest."""
        most = max(_MOST, len(rows))
        excess = self._count + len(rows) - most
        if excess > 0:
            self._start += excess
            self._count -= excess
            self.first += excess
        if self._start + self._count + len(rows) > len(self._rows):
            # Twice the room that is needed: rows are moved once in as many additions.
            moved = np.zeros((2 * (self._count + len(rows)), self._rows.shape[1]), np.int64)
            moved[: self._count] = self.rows
            self._rows, self._start = moved, 0
        end = self._start + self._count
        self._rows[end : end + len(rows)] = rows
        self._count += len(rows)

    def find(self, numbers: Times) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the rows of some numbers, and which of these rows are known."""
        places = numbers - self.first
        is_known = (places >= 0) & (places < self._count)
        if not self._count:
            return np.zeros((len(numbers), self._rows.shape[1]), np.int64), is_known
        return self.rows[np.where(is_known, places, 0)], is_known
