"""Polling: user-written conditions that returned WAIT, without an event or a time.

No event announces that such a condition has become ready. It is evaluated again after every compute, and after
`check_recession_period_ms` if nothing runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node


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
