"""Advice about streams and workers: who would gain by sharing a stream, who shares a full one, who only waits.

It follows from the figures of a run, and changes nothing: the layout of streams, and who computes beside others, is
what the program declares. About streams it speaks only of operators whose work on the device was timed. Computes
are launch-bound if the device needs less than half of the time of the host, even where its time is an upper bound.
A stream is full if the work that is certain takes nearly all of the time. A compute that does not have the
processor for most of its time keeps the others from theirs for nothing, if messages wait for operators that do not
compute all of the time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from headrace.observe.figures.statistics import FEW, SATURATED, WAITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.observe.figures.statistics import OperatorStatistics, Statistics

# The longest computes, in nanoseconds, of which an event and a wait for it are a part to speak of.
_LONGEST: Final = 60_000
# The share of the time in which the device works for an operator that has something to overlap.
_SOME: Final = 0.1


def advice(statistics: Statistics) -> Iterator[str]:
    """Yield what could be gained, in words."""
    yield from _about_workers(statistics)
    operators = {each.name: each for each in statistics.operators}
    stream_of = {name: number for number, names in enumerate(statistics.streams) for name in names}
    for group in _launch_bound(statistics, operators, stream_of):
        listed = ", ".join(group)
        yield (
            f"computes of {listed} are launch-bound: share_stream({listed}) would save an event and a wait for "
            "each message between them, and capture the launches"
        )
    for names in statistics.streams:
        working = [name for name in names if operators[name].gpu_busy >= _SOME]
        busy = min(sum(operators[name].gpu_busy for name in names), 1.0)
        if busy >= SATURATED and len(working) > 1 and all(operators[name].count >= FEW for name in working):
            yield (
                f"{', '.join(working)} share a stream that works {busy:.0%} of the time: on streams of their own "
                "they could overlap, if their kernels leave SMs free"
            )


def _about_workers(statistics: Statistics) -> Iterator[str]:
    """Yield which operators had better compute beside others."""
    if sum(each.count for each in statistics.workers) < 2:
        return
    operators = {each.name: each for each in statistics.operators}
    delayed = {queue.name.rpartition(".")[0] for queue in statistics.queues if queue.busy >= _SOME}
    delayed = {name for name in delayed if name in operators and operators[name].busy < SATURATED}
    for each in statistics.operators:
        is_waiting = each.waits is not None and each.waits >= WAITS and each.busy >= _SOME
        if is_waiting and not each.is_parallel and delayed - {each.name}:
            yield (
                f"{each.name} waited {each.waits:.0%} of its time, while messages waited for "
                f"{', '.join(sorted(delayed - {each.name}))}: with parallel = True it computes beside others"
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
