"""Timers: the nodes whose conditions wait for a time, earliest first; Polling: those whose conditions say nothing.

A node waits for at most one time, `Node.awaited.until`. When that changes, its old entry stays in the heap. Such an
entry is stale, because it differs from what the node waits for, and is dropped when its turn comes; searching for
it would cost more. If stale entries outnumber the others, they are removed. So the heap is never longer than twice
the number of waiting nodes, plus `_FEW`.

A condition of the program that returned WAIT announces neither an event nor a time. It is evaluated again after
every compute, and after `check_recession_period_ms` if nothing runs.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node


_FEW = 32


class Timers:
    """A heap of nodes by the time they wait for; nodes with the same time come in the order of the graph.

    All fields are changed under the engine's lock, if there is one. `Engine.set_awaited` calls `arm` and `disarm`.
    """

    __slots__ = ("_heap", "_sequence", "_stale")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Node]] = []
        self._sequence = 0
        self._stale = 0

    def __len__(self) -> int:
        """Return the number of entries, including stale ones."""
        return len(self._heap)

    def arm(self, node: Node, until: int) -> None:
        """Add the time that a node waits for from now on."""
        self._sequence += 1
        heapq.heappush(self._heap, (until, node.place, self._sequence, node))

    def disarm(self) -> None:
        """Note that a node no longer waits for the time that it was armed with last."""
        self._stale += 1
        if self._stale > _FEW and 2 * self._stale > len(self._heap):
            # Keep one entry per node: arming for the time of a stale entry adds a second one that also matches. The
            # older one is kept.
            kept: dict[Node, tuple[int, int, int, Node]] = {}
            for entry in sorted(self._heap):
                if entry[3].awaited.until == entry[0]:
                    kept.setdefault(entry[3], entry)
            self._heap = list(kept.values())  # sorted, so a heap
            self._stale = 0

    def take_due(self, now: int) -> Node | None:
        """Return a node whose time has come, or None; the caller disarms it by changing what it waits for."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            until, _, _, node = heapq.heappop(heap)
            # In either case there is one stale entry less: that of a node that is due becomes one only now.
            self._stale -= 1
            if node.awaited.until == until:
                return node
        return None

    def next(self) -> int | None:
        """Return the next time that a node waits for, or None."""
        heap = self._heap
        while heap and heap[0][3].awaited.until != heap[0][0]:
            heapq.heappop(heap)
            self._stale -= 1
        return heap[0][0] if heap else None


class Polling:
    """The nodes of a run to be polled; all fields are changed under the engine's lock, if there is one.

    `Engine.set_awaited` calls `add` and `remove`.

    Attributes
    ----------
    nodes
        The nodes to poll (`Awaited.is_polled`). A dict, because its order is deterministic.
    at
        The time at which to evaluate them again, if there are any.
    """

    __slots__ = ("_engine", "at", "nodes")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.nodes: dict[Node, None] = {}
        self.at = 0

    def add(self, node: Node) -> None:
        """Poll a node."""
        if not self.nodes:
            self.at = self._engine.clock.timestamp() + self._period()
        self.nodes[node] = None

    def remove(self, node: Node) -> None:
        """Stop polling a node."""
        del self.nodes[node]

    def poll(self) -> bool:
        """Enqueue the nodes to be evaluated again, and return whether any node is ready now."""
        engine = self._engine
        self.at = engine.clock.timestamp() + self._period()
        for node in self.nodes:
            node.enqueue_if_ready()
        return engine.has_ready()

    def _period(self) -> int:
        return max(round(self._engine.scheduler.check_recession_period_ms * 1e6), 1)
