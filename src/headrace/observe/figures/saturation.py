"""Saturation: which operators, workers, slices and queues have no time left.

What is busy nearly all of the time determines the rate of a pipeline, and messages wait for it or are lost, however
even the latencies of those look that arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "FEW",
    "SATURATED",
    "Load",
    "gpu_load",
    "operator_load",
    "percent",
    "queue_load",
    "saturated",
    "slice_load",
    "workers_load",
]

SATURATED = 0.9
"""The share of the time from which on something is called saturated."""
FEW = 10
"""The number of computes below which nothing is called saturated: what runs once is busy all of its time."""


@dataclass(frozen=True, slots=True)
class Load:
    """How busy something is.

    Attributes
    ----------
    text
        What it does, with ``{}`` for the share of the time.
    busy
        The share of the time.
    operators
        The operators whose work it is. If one of them is saturated, this is no news.
    is_operator
        Whether it is an operator itself.
    """

    text: str
    busy: float
    operators: tuple[str, ...]
    is_operator: bool = False


def saturated(loads: Iterable[Load]) -> dict[str, tuple[str, ...]]:
    """Return what is saturated, in words, with the operators whose work it is; the busiest first."""
    found: dict[str, tuple[str, ...]] = {}
    named: set[str] = set()
    for load in sorted(loads, key=lambda load: (not load.is_operator, -load.busy)):
        if load.busy >= SATURATED and (load.is_operator or named.isdisjoint(load.operators)):
            found[load.text.format(percent(load.busy))] = load.operators
            named.update(load.operators)
    return found


def operator_load(name: str, busy: float) -> Load:
    """Return the load of an operator on the host."""
    return Load(_literal(name) + " computes {} of the time", busy, (name,), is_operator=True)


def gpu_load(name: str, busy: float) -> Load:
    """Return the load that an operator is on the device."""
    return Load("the GPU works for " + _literal(name) + " {} of the time", busy, (name,), is_operator=True)


def workers_load(name: str, count: int, busy: float, operators: Iterable[str]) -> Load:
    """Return the load of workers that share operators."""
    what = f"{_literal(name)}: " + (
        "the only worker computes" if count == 1 else f"the {count} workers compute"
    )
    return Load(what + " {} of the time", busy, tuple(operators))


def slice_load(name: str, busy: float, operators: Iterable[str]) -> Load:
    """Return the load of a slice of a device."""
    return Load(_literal(name) + " works {} of the time", busy, tuple(operators))


def queue_load(name: str, busy: float) -> Load:
    """Return the load of a queue."""
    return Load("the queue " + _literal(name) + " is {} full on average", busy, (name.rpartition(".")[0],))


def _literal(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{share:.0%}"
