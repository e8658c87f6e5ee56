"""The counts of the last run's queues, by port."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.graph import Graph
    from headrace.core.node import Queue

__all__ = ["count_by_port"]


def count_by_port(graph: Graph, count: Callable[[Queue], int]) -> dict[str, int]:
    """Return the sum of `count` over the queues of each port, by ``"operator.port"``, if it is not 0."""
    counts: dict[str, int] = {}
    for operator in graph:
        if operator._node is None:
            continue
        # The queues behind a connected output belong to the connected inputs, and count for them.
        ports = list(operator._node.input_queues.items())
        ports += [
            (name, queues)
            for name, queues in operator._node.output_queues.items()
            if not any(flow.output == name for flow in operator._outgoing)
        ]
        for name, queues in ports:
            total = sum(map(count, queues))
            if total:
                key = f"{operator.name}.{name}"
                counts[key] = counts.get(key, 0) + total
    return counts
