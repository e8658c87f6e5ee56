"""Progress: what a run has done so far, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.core.graph import is_source

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.error_policy import FaultCounts
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
    computing: dict[str, float | None] = field(default_factory=dict)
    """The operators that compute now, and for how many seconds of the run's clock each of them has; None for an
    operator without a deadline, whose computes are not timed. A captured segment counts as one operator."""
    faults: dict[str, FaultCounts] = field(default_factory=dict)
    """How often computes of each operator failed or were stuck, if any did."""
    fraction: float | None = None
    """The part of the run that is done, from 0 to 1, if its end is known: by its duration, or by the number
    of computes of every source."""
    drop_reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many of them a join dropped, by reason, by ``"operator.port"``."""


def progress_of(fragment: Composition) -> Progress:
    """Return the progress of the run of a fragment, or of its last run.

    It takes no lock. Every number was right at some moment of the call, but they may differ by the computes that
    finished meanwhile.
    """
    if fragment._headrace.progress_elsewhere is not None:
        elsewhere: Progress = fragment._headrace.progress_elsewhere()
        return elsewhere
    graph, engine = fragment.graph, fragment._headrace.engine
    nodes = [operator._headrace.node for operator in graph if operator._headrace.node is not None]
    computes = {node.name: node.computes for node in nodes}
    return Progress(
        fragment.name,
        engine is not None,
        computes,
        tuple(operator.name for operator in _sources(graph)),
        count_by_port(graph, lambda queue: len(queue) + queue.held),
        count_by_port(graph, lambda queue: queue.dropped),
        {} if engine is None else engine.computing_for(),
        {node.name: replace(node.counts) for node in nodes if node.counts},
        fraction_of(time_fraction(engine), {} if engine is None else count_limits(graph), computes),
        {
            f"{operator.name}.{port}": reasons
            for operator in graph
            for port, reasons in drop_reasons_of(operator).items()
        },
    )


def stuck_operators(fragment: Composition) -> list[str]:
    """Return the operators whose computes take longer than their deadlines, in words."""
    limits = {each.name: each.spec.time_limit for each in fragment.graph if each.spec.time_limit}
    computing = progress_of(fragment).computing if limits else {}
    return [
        f"operator {name!r} has computed for {seconds:.1f} s; its deadline is {limits[name] / 1e9:g} s"
        for name, seconds in computing.items()
        if name in limits and seconds is not None and seconds * 1e9 > limits[name]
    ]


def drop_reasons_of(operator: Operator) -> dict[str, dict[str, int]]:
    """Return how many messages a join dropped, by input and reason."""
    if operator._headrace.node is None:
        return {}
    return {queue.port: dict(queue.reasons) for queue in operator._headrace.node.inputs if queue.reasons}


def time_fraction(engine: Any) -> float | None:
    """Return the part of the duration of a run that is over, if it has one."""
    limit = None if engine is None else engine.limit
    duration = 0 if engine is None else engine.scheduler.max_duration_ms * 1_000_000
    return 1 - (limit - engine.clock.timestamp()) / duration if limit is not None and duration > 0 else None


def count_limits(graph: Graph) -> dict[str, int | None]:
    """Return the number of computes after which each source ends; None for one without a limit."""
    return {
        operator.name: None if operator._headrace.node is None else operator._headrace.node.count_limit
        for operator in _sources(graph)
    }


def fraction_of(
    of_time: float | None, limits: Mapping[str, int | None], computes: Mapping[str, int]
) -> float | None:
    """Return the part of a run that is done, if its end is known."""
    found = [] if of_time is None else [of_time]
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if limits and len(known) == len(limits):
        done = sum(min(computes.get(name, 0), limit) for name, limit in known.items())
        found.append(done / max(sum(known.values()), 1))
    return min(max(found), 1.0) if found else None


def _sources(graph: Graph) -> list[Operator]:
    return [operator for operator in graph if is_source(operator)]


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
    if operator._headrace.node is None:
        return {}
    counts: dict[str, int] = {}
    unconnected = {
        name: tuple(queue for queue in queues if queue.consumer is None)
        for name, queues in operator._headrace.node.output_queues.items()
    }
    for ports in (operator._headrace.node.counted_queues, unconnected):
        for name, queues in ports.items():
            total = sum(map(count, queues))
            if total:
                counts[name] = counts.get(name, 0) + total
    return counts
