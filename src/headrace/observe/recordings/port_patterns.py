"""Ports chosen by patterns, such as ``camera.out``, ``camera.*`` or ``camera``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.observe.events.records import OutputInfo, QueueInfo, RunInfo

__all__ = ["index_of", "matches", "parse_patterns", "ports_of"]


def matches(pattern: str, operator: str, port: str) -> bool:
    """Return whether a pattern names a port: ``operator.port``, or ``operator`` for all its ports.

    ``*`` stands for any text, ``?`` for any character and ``[...]`` for one of several.
    """
    return fnmatchcase(f"{operator}.{port}", pattern) or fnmatchcase(operator, pattern)


def parse_patterns(text: str) -> list[str]:
    """Return the patterns of a text, which commas separate."""
    return [pattern.strip() for pattern in text.split(",") if pattern.strip()]


def ports_of(run: RunInfo) -> Iterator[OutputInfo | QueueInfo]:
    """Yield the ports of a run: the outputs and then the queues of the inputs of each operator."""
    for operator in run.operators:
        yield from operator.outputs
        yield from operator.inputs


def index_of(queue: QueueInfo) -> int | None:
    """Return the position of a connection at an input for any number of them; None at another input."""
    if not queue.operator.node.operator.spec.inputs[queue.port].is_receivers:
        return None
    return [other for other in queue.operator.inputs if other.port == queue.port].index(queue)


def unmatched(patterns: Iterable[str], run: RunInfo) -> list[str]:
    """Return the patterns that name no port of a run."""
    ports = [(port.operator.name, port.port) for port in ports_of(run)]
    return [pattern for pattern in patterns if not any(matches(pattern, *port) for port in ports)]
