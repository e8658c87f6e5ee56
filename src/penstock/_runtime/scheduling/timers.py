"""Timers: the nodes that wait for a time, earliest first.

A node waits for one time at most, kept in `wake_at`. Disarming a node, or arming it for another time, leaves its
old entry in the heap. The entry is stale, which shows because `wake_at` says something else, and is dropped when
its turn comes; searching for it would cost more. Where stale entries outnumber the others they are swept out, so
the heap is never more than twice as long as there are nodes that wait, plus `_FEW`.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._runtime.scheduling.node import Node

__all__ = ["Timers"]

_FEW = 32


class Timers:
    """A heap of nodes by the time they wait for; nodes that wait for the same time keep their order."""

    __slots__ = ("_heap", "_sequence", "_stale")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._sequence = 0
        self._stale = 0

    def __len__(self) -> int:
        """Return the number of entries, stale ones included."""
        return len(self._heap)

    def arm(self, node: Node, until: int) -> None:
        """Have a node wait for a time, and for no other."""
        if node.wake_at == until:
            return
        if node.wake_at is not None:
            self.disarm(node)
        node.wake_at = until
        self._sequence += 1
        heapq.heappush(self._heap, (until, self._sequence, node))

    def disarm(self, node: Node) -> None:
        """Have a node wait for no time."""
        if node.wake_at is None:
            return
        node.wake_at = None
        self._stale += 1
        if self._stale > _FEW and 2 * self._stale > len(self._heap):
            # At most one entry of a node matches its `wake_at`: arming for the time of a stale entry adds a second
            # one, of which the older is kept.
            kept: dict[Node, tuple[int, int, Node]] = {}
            for entry in sorted(self._heap):
                if entry[2].wake_at == entry[0]:
                    kept.setdefault(entry[2], entry)
            self._heap = list(kept.values())  # sorted, so a heap
            self._stale = 0

    def due(self, now: int) -> list[Node]:
        """Disarm the nodes whose time has come, and return them."""
        found = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            until, _, node = heapq.heappop(heap)
            if node.wake_at == until:
                node.wake_at = None
                found.append(node)
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
