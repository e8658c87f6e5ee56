"""Sharing: which arrays share memory.

Of those that enter, it belongs to the signature of a frame: it matters if an operator changes one of them, or
passes them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._runtime.capture.device_arrays import Extent, layout_of
from headrace._runtime.capture.few_buffers import addresses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace._runtime.capture.structure import Leaves

__all__ = ["Shared", "extents_of", "groups_of", "shared_memory", "spans_of", "with_shared"]


class Shared(tuple[tuple[int, int], ...]):
    """Which arrays of a frame share memory: for each, the number of its group, and where in it it begins."""

    __slots__ = ()


def extents_of(leaves: Leaves) -> list[Extent]:
    """Return where the bytes of the arrays of a frame are, seen from their addresses."""
    return [layout.kind.extent(layout) for layout in map(layout_of, leaves)]


def spans_of(leaves: Leaves, extents: Sequence[Extent]) -> list[tuple[int, int]]:
    """Return the addresses of the first byte of each array, and of the first one behind it."""
    return [
        (address - before, address - before + size)
        for address, (before, size) in zip(addresses_of(leaves), extents, strict=True)
    ]


def groups_of(spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the numbers of the arrays that share memory, also by way of others; the first begins first."""
    groups: list[list[int]] = []
    group: list[int] = []
    end = -1
    for number in sorted(range(len(spans)), key=lambda number: spans[number]):
        first, last = spans[number]
        if first == last:
            groups.append([number])  # it has no bytes to share, wherever it is
        elif first < end:
            group.append(number)
        else:
            group = [number]
            groups.append(group)
        end = max(end, last)
    return groups


def with_shared(numbers: Iterable[int], spans: Sequence[tuple[int, int]]) -> set[int]:
    """Return the numbers of some arrays, and of those that share memory with them."""
    some = set(numbers)
    return {number for group in groups_of(spans) if not some.isdisjoint(group) for number in group}


def shared_memory(leaves: Leaves, extents: Sequence[Extent]) -> Shared | None:
    """Return which arrays of a frame share their memory; None if none do."""
    spans = spans_of(leaves, extents)
    groups = groups_of(spans)
    if len(groups) == len(spans):
        return None
    found = [(0, 0)] * len(spans)
    for place, group in enumerate(groups):
        begin = spans[group[0]][0]
        for number in group:
            found[number] = (place if len(group) > 1 else -1, spans[number][0] - begin)
    return Shared(found)
