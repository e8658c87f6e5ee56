"""Timers: the nodes whose conditions wait for a time, earliest first.

A node waits for at most one time, `EvaluatedConditions.wake_at`. Disarming it, or arming it for another time,
leaves its old entry in the heap. Such an entry is stale, because it differs from `wake_at`, and is dropped when its
turn comes; searching for it would cost more. If stale entries outnumber the others, they are removed. So the heap
is never longer than twice the number of waiting nodes, plus `_FEW`.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.scheduling.evaluated_conditions import EvaluatedConditions

__all__ = ["Timers"]

_FEW = 32


class Timers:
    """A heap of conditions by the time they wait for; conditions with the same time keep their order.

    All fields are changed under the engine's lock, if there is one.
    """

    __slots__ = ("_heap", "_sequence", "_stale")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, EvaluatedConditions]] = []
        self._sequence = 0
        self._stale = 0

    def __len__(self) -> int:
        """Return the number of entries, including stale ones."""
        return len(self._heap)

    def arm(self, conditions: EvaluatedConditions, until: int) -> None:
        """Wait for a time, and for no other time."""
        if conditions.wake_at == until:
            return
        if conditions.wake_at is not None:
            self.disarm(conditions)
        conditions.wake_at = until
        self._sequence += 1
        heapq.heappush(self._heap, (until, self._sequence, conditions))

    def disarm(self, conditions: EvaluatedConditions) -> None:
        """Stop waiting for a time."""
        if conditions.wake_at is None:
            return
        conditions.wake_at = None
        self._stale += 1
        if self._stale > _FEW and 2 * self._stale > len(self._heap):
            # Keep one entry per node: arming for the time of a stale entry adds a second one that also matches
            # `wake_at`. The older one is kept.
            kept: dict[EvaluatedConditions, tuple[int, int, EvaluatedConditions]] = {}
            for entry in sorted(self._heap):
                if entry[2].wake_at == entry[0]:
                    kept.setdefault(entry[2], entry)
            self._heap = list(kept.values())  # sorted, so a heap
            self._stale = 0

    def due(self, now: int) -> list[EvaluatedConditions]:
        """Disarm the conditions whose time has come, and return them."""
        found = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            until, _, conditions = heapq.heappop(heap)
            if conditions.wake_at == until:
                conditions.wake_at = None
                found.append(conditions)
            elif self._stale:
                self._stale -= 1
        return found

    def next(self) -> int | None:
        """Return the next time that a node waits for, or None."""
        heap = self._heap
        while heap and heap[0][2].wake_at != heap[0][0]:
            heapq.heappop(heap)
            if self._stale:
                self._stale -= 1
        return heap[0][0] if heap else None
