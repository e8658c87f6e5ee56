"""Timers: the nodes that wait for a time, earliest first.

A node waits for one time at most, kept in `wake_at`. Waiting for another, or no longer, leaves the old
entry in the heap; it is known to be stale because `wake_at` says something else, and is dropped when its
turn comes. Taking it out at once would cost a search.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.node import Node

__all__ = ["Timers"]


class Timers:
    """A heap of nodes by the time they wait for; nodes that wait for the same time keep their order."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._sequence = itertools.count()

    def arm(self, node: Node, until: int) -> None:
        """Have a node wait for a time."""
        if node.wake_at != until:
            node.wake_at = until
            heapq.heappush(self._heap, (until, next(self._sequence), node))

    def due(self, now: int) -> list[Node]:
        """Take out the nodes whose time has come."""
        found = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            until, _, node = heapq.heappop(heap)
            if node.wake_at == until:
                node.wake_at = None
                found.append(node)
        return found

    def next(self) -> int | None:
        """Give the next time that a node waits for, or None."""
        heap = self._heap
        while heap and (heap[0][2].wake_at != heap[0][0] or heap[0][2].retired):
            heapq.heappop(heap)
        return heap[0][0] if heap else None
