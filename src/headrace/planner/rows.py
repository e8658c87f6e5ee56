"""Rows: chains of operators that are launch-bound share a stream, or become a captured segment.

Between operators on one stream there is neither an event nor a wait, and a segment is one launch. Operators whose
work on the device takes longer than its launch keep streams of their own, on which they overlap.
"""

from __future__ import annotations

from headrace.planner.measured import Measured
from headrace.planner.model import Layout, latency


def launch_bound_rows(measured: Measured, layout: Layout) -> list[list[str]]:
    """Return the chains of two or more launch-bound operators on one slice, in the order of the graph.

    Operators of segments are in none of them, nor are those of which the program itself says how they are launched.
    """
    taken = {name for chain in layout.segments for name in chain}.union(measured.declared)
    rows: list[list[str]] = []
    for name, one in measured.operators.items():
        if name in taken or not one.is_launch_bound(layout.sms_of(name)):
            continue
        before = measured.before(name)
        row = next((row for row in rows if before == [row[-1]]), None)
        if row is not None and measured.behind(row[-1]) == [name] and _are_together(layout, (row[-1], name)):
            row.append(name)
        else:
            rows.append([name])
    return [row for row in rows if len(row) > 1]


def worth_capturing(measured: Measured, layout: Layout) -> tuple[tuple[str, ...], ...]:
    """Return the chains of a layout that are on one slice, launch-bound, and faster as a segment, as measured."""
    found = []
    for chain, whole in measured.segments.items():
        if not _are_together(layout, chain):
            continue
        sms = layout.sms_of(chain[0])
        parts = [measured.operators[name] for name in chain]
        is_bound = sum(one.host.p50 for one in parts) >= sum(one.device(sms).p50 for one in parts)
        if is_bound and latency([whole], sms) < latency(parts, sms):
            found.append(chain)
    return tuple(found)


def _are_together(layout: Layout, names: tuple[str, ...]) -> bool:
    return len({layout.slice_of(name) for name in names}) == 1
