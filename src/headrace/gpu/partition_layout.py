"""The choice of SM resources for the partitions of a device.

Drivers split SMs differently. From 13.1 on, each group of a split has its own count. Before that, all groups have
one size and cannot be split again. A context may be built from several groups, however: distributing the smallest
groups gives unequal partitions on every driver since 12.4. If all counts are equal, the driver's own split is tried
as well, because it wastes fewer SMs.

No group is used twice: the driver does not detect that two contexts are built from the same group, and they would
share its SMs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.gpu.sim import SMResource


@dataclass(slots=True)
class Layout:
    """The SM resources of each partition, and the remaining ones."""

    groups: list[list[SMResource]]
    leftover: list[SMResource]

    def excess(self, counts: list[int]) -> int:
        """Return the number of SMs beyond the requested counts."""
        return sum(total_sms(groups) - count for groups, count in zip(self.groups, counts, strict=True))


def lay_out(sm: SMResource, names: Any, counts: list[int], *, dry_run: bool) -> Layout | None:
    """Return the layout that wastes the fewest SMs, or None if there is none.

    ``sm`` is the device's SM resource, and ``names`` the module of its options and errors.
    """
    if sum(counts) > sm.sm_count:
        return None
    least = sm.min_partition_size
    aligned = [group_size(sm, count) for count in counts]
    even = [max(_round_up(count, 2), least) for count in counts]
    found = [
        _split_by_driver(sm, names, aligned, dry_run=dry_run),
        # From 13.1 on, SMs that are not scheduled together may complete a group.
        _split_by_driver(sm, names, even, dry_run=dry_run, backfill=True),
        _split_into_smallest(sm, names, counts, dry_run=dry_run),
    ]
    layouts = [layout for layout in found if layout is not None]
    return min(layouts, key=lambda layout: layout.excess(counts)) if layouts else None


def group_size(sm: SMResource, count: int) -> int:
    """Return the size of the smallest group of co-scheduled SMs with at least that many."""
    return max(_round_up(count, sm.coscheduled_alignment), sm.min_partition_size)


def total_sms(groups: list[SMResource]) -> int:
    """Return the number of SMs in `groups`."""
    return sum(group.sm_count for group in groups)


def _split_by_driver(
    sm: SMResource, names: Any, sizes: list[int], *, dry_run: bool, backfill: bool = False
) -> Layout | None:
    """Return the driver's split into groups of these sizes, or None if it cannot provide them."""
    groups, rest = _split(sm, names, sizes, dry_run, backfill)
    if len(groups) < len(sizes):  # drivers before 13.1 provide fewer groups instead of raising an error
        return None
    return Layout([[group] for group in groups], rest)


def _split_into_smallest(sm: SMResource, names: Any, counts: list[int], *, dry_run: bool) -> Layout | None:
    """Return a split into the smallest groups, distributed over the partitions, or None if they do not suffice."""
    size = sm.min_partition_size
    groups, rest = _split(sm, names, [size] * max(sm.sm_count // size, 1), dry_run)
    best: Layout | None = None
    # The remaining SMs form another group, of a different size; one of the partitions may use it.
    for served in [None, *range(len(counts))] if rest else [None]:
        dealt: list[list[SMResource]] = []
        unused = list(groups)
        for number, count in enumerate(counts):
            part = rest if number == served else []
            needed = -(-max(count - total_sms(part), 0) // size)
            if needed > len(unused):
                break
            dealt.append(part + unused[:needed])
            unused = unused[needed:]
        else:
            layout = Layout(dealt, unused + (rest if served is None else []))
            if best is None or layout.excess(counts) < best.excess(counts):
                best = layout
    return best


def _split(
    sm: SMResource, names: Any, counts: list[int], dry_run: bool, backfill: bool = False
) -> tuple[list[SMResource], list[SMResource]]:
    """Return the groups that the driver provides, none if it cannot provide them, and the remaining SMs."""
    try:
        options = names.SMResourceOptions(count=tuple(counts), backfill=backfill)
        groups, rest = sm.split(options, dry_run=dry_run)
    except (names.CUDAError, RuntimeError) as error:
        # Before 13.1 the driver provides no groups of different sizes. Any other error is raised.
        is_too_old = isinstance(error, RuntimeError) and "13.1" in str(error)
        if not is_too_old and "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" not in str(error):
            raise
        return [], []
    return groups, [rest] if rest.sm_count else []


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
