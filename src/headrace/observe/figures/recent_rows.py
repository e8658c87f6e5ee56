"""RecentRows: a table that keeps its last rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.records import Times

_MOST = 1 << 14


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
