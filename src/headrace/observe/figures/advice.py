"""Advice about streams: which operators would gain by sharing one, and which share one that is full.

It follows from the figures of a run, speaks only of operators whose work on the device was timed, and changes
nothing: the layout of streams is what the program declares. Computes are launch-bound if the device needs less than
half of the time of the host, even where its time is an upper bound. A stream is full if the work that is certain
takes nearly all of the time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from headrace.observe.figures.statistics import FEW, SATURATED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.observe.figures.statistics import OperatorStatistics, Statistics

# What an event and a wait for it take of the host, in nanoseconds (`Composition.share_stream`), and the longest
# computes of which they are a part to speak of.
_SAVED: Final = 3_000
_LONGEST: Final = 20 * _SAVED
# The share of the time in which the device works for an operator that has something to overlap.
_SOME: Final = 0.1


def advice(statistics: Statistics) -> Iterator[str]:
    """Yield what could be gained by other streams, in words."""
    operators = {each.name: each for each in statistics.operators}
    stream_of = {name: number for number, names in enumerate(statistics.streams) for name in names}
    for group in _launch_bound(statistics, operators, stream_of):
        listed = ", ".join(group)
        yield (
            f"computes of {listed} are launch-bound: share_stream({listed}) would save an event and a wait, about "
            f"{_SAVED // 1000} µs, for each message between them, and capture the launches"
        )
    for names in statistics.streams:
        working = [name for name in names if operators[name].gpu_busy >= _SOME]
        busy = min(sum(operators[name].gpu_busy for name in names), 1.0)
        if busy >= SATURATED and len(working) > 1 and all(operators[name].count >= FEW for name in working):
            yield (
                f"{', '.join(working)} share a stream that works {busy:.0%} of the time: on streams of their own "
                "they could overlap, if their kernels leave SMs free"
            )


def _launch_bound(
    statistics: Statistics, operators: dict[str, OperatorStatistics], stream_of: dict[str, int]
) -> list[tuple[str, ...]]:
    """Return the launch-bound operators that send each other messages and have several streams."""
    captured = {name for segment in statistics.segments for name in segment.operators}
    bound = {name for name in stream_of if name not in captured and _is_launch_bound(operators[name])}
    together = {name: {name} for name in bound}
    for path in statistics.paths:
        for source, target in pairwise(path.operators):
            if (
                source in bound
                and target in bound
                and operators[source].slice == operators[target].slice
                and statistics.fragments.get(source) == statistics.fragments.get(target)
            ):
                together[source] |= together[target]
                together.update(dict.fromkeys(together[source], together[source]))
    groups = dict.fromkeys(
        tuple(name for name in operators if name in together[each]) for each in operators if each in together
    )
    return [names for names in groups if len({stream_of[name] for name in names}) > 1]


def _is_launch_bound(operator: OperatorStatistics) -> bool:
    """Return whether the host takes at least twice as long as the device, and not long."""
    return (
        operator.count >= FEW
        and operator.gpu.count > 0
        and 2 * operator.gpu.mean <= operator.host.mean <= _LONGEST
    )
