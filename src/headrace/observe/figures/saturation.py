"""Saturation: which operators, workers, slices and queues have no time left.

Something that is busy nearly all of the time determines the rate of a pipeline. Messages wait for it or are lost,
however even the latencies of those look that arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SATURATED = 0.9
"""The share of the time from which on something is called saturated."""
FEW = 10
"""The number of computes below which nothing is called saturated: what runs once is busy all of its time."""


class _Load(NamedTuple):
    """How busy something is: in words, as a share of the time, and the operators whose work it is."""

    text: str
    busy: float
    operators: tuple[str, ...]
    is_operator: bool = False


def saturated(
    operators: Iterable[tuple[str, float]],
    gpu: Iterable[tuple[str, float]],
    workers: Iterable[tuple[str, int, float, Iterable[str]]],
    slices: Iterable[tuple[str, float, Iterable[str]]],
    queues: Iterable[tuple[str, float]],
) -> dict[str, tuple[str, ...]]:
    """Return what is saturated, in words, with the operators whose work it is; the busiest first.

    If one of these operators is saturated itself, then workers, slices and queues are no news.

    Parameters
    ----------
    operators, gpu
        The operators that computed often enough, with the share of the time on the host, and on the device.
    workers
        The name and number of workers, their share, and the operators that they share.
    slices
        The name of each slice, its share, and its operators.
    queues
        The name of each queue, and the share of its places that were taken.
    """
    loads = [
        _Load(f"{name} computes {percent(busy)} of the time", busy, (name,), True) for name, busy in operators
    ]
    loads += [
        _Load(f"the GPU works for {name} {percent(busy)} of the time", busy, (name,), True)
        for name, busy in gpu
    ]
    if not loads:
        return {}
    for name, count, busy, sharing in workers:
        who = "the only worker computes" if count == 1 else f"the {count} workers compute"
        loads.append(_Load(f"{name}: {who} {percent(busy)} of the time", busy, tuple(sharing)))
    loads += [
        _Load(f"{name} works {percent(busy)} of the time", busy, tuple(sharing))
        for name, busy, sharing in slices
    ]
    loads += [
        _Load(f"the queue {name} is {percent(busy)} full on average", busy, (name.rpartition(".")[0],))
        for name, busy in queues
    ]
    found: dict[str, tuple[str, ...]] = {}
    named: set[str] = set()
    for load in sorted(loads, key=lambda load: (not load.is_operator, -load.busy)):
        if load.busy >= SATURATED and (load.is_operator or named.isdisjoint(load.operators)):
            found[load.text] = load.operators
            named.update(load.operators)
    return found


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{share:.0%}"
