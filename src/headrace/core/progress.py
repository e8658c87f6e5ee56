"""Progress: what a run has done so far, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    fraction: float | None = None
    """The part of the run that is done, from 0 to 1, if its end is known: by its duration, or by the number
    of computes of every source."""


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
        _fraction(fragment),
    )


def _fraction(fragment: Composition) -> float | None:
    engine: Any = fragment._engine
    if engine is None:
        return None
    found = []
    limit, duration = engine.limit, engine.scheduler.max_duration_ms * 1_000_000
    if limit is not None and duration > 0:
        found.append(1 - (limit - engine.clock.timestamp()) / duration)
    sources = [operator._node for operator in fragment.graph if not operator._incoming]
    limits = [None if node is None else node.count_limit for node in sources]
    if sources and None not in limits:
        done = sum(
            min(node.computes, limit or 0) for node, limit in zip(sources, limits, strict=True) if node
        )
        found.append(done / max(sum(limit or 0 for limit in limits), 1))
    return min(max(found), 1.0) if found else None


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
    connected = {flow.output for flow in operator._outgoing}
    counts: dict[str, int] = {}
    for ports in (operator._node.input_queues, operator._node.output_queues):
        for name, queues in ports.items():
            total = (
                0 if ports is operator._node.output_queues and name in connected else sum(map(count, queues))
            )
            if total:
                counts[name] = counts.get(name, 0) + total
    return counts
