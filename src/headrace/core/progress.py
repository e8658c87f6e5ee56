"""Progress: what a run has done so far, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.graph import Graph
    from headrace.core.node import Queue
    from headrace.core.operator import Operator


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has done so far; see :meth:`Fragment.progress`."""

    application: str
    is_running: bool
    """Whether the run is in progress; if not, the numbers are those of the last run."""
    computes: dict[str, int] = field(default_factory=dict)
    """The number of computes that each operator has finished."""
    sources: tuple[str, ...] = ()
    """The operators that no flow leads to."""
    waiting: dict[str, int] = field(default_factory=dict)
    """The number of messages that wait at each input now, by ``"operator.port"``, if it is not 0."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The number of messages dropped at each port, by ``"operator.port"``, if it is not 0."""


def progress_of(fragment: Composition) -> Progress:
    """Return the progress of the run of a fragment, or of its last run.

    It takes no lock. Every number was right at some moment of the call, but they may differ by the computes that
    finished meanwhile.
    """
    graph = fragment.graph
    return Progress(
        fragment.name,
        fragment._engine is not None,
        {operator.name: operator._node.computes for operator in graph if operator._node is not None},
        tuple(operator.name for operator in graph if not operator._incoming),
        count_by_port(graph, len),
        count_by_port(graph, lambda queue: queue.dropped),
    )


def count_by_port(graph: Graph, count: Callable[[Queue], int]) -> dict[str, int]:
    """Return the sum of `count` over the queues of each port, by ``"operator.port"``, if it is not 0."""
    return {
        f"{operator.name}.{port}": number
        for operator in graph
        for port, number in counts_of(operator, count).items()
    }


def counts_of(operator: Operator, count: Callable[[Queue], int]) -> dict[str, int]:
    """Return the sum of `count` over the queues of each port of an operator, if it is not 0.

    The queues behind a connected output belong to the connected inputs, and count for them.
    """
    if operator._node is None:
        return {}
    counts: dict[str, int] = {}
    unconnected = {
        name: tuple(queue for queue in queues if queue.consumer is None)
        for name, queues in operator._node.output_queues.items()
    }
    for ports in (operator._node.input_queues, unconnected):
        for name, queues in ports.items():
            total = sum(map(count, queues))
            if total:
                counts[name] = counts.get(name, 0) + total
    return counts
