"""Rows: chains of operators that are launch-bound share a stream, or become a captured segment.

Between operators on one stream there is neither an event nor a wait, and a segment is one launch. Operators whose
work on the device takes longer than its launch keep streams of their own, on which they overlap.
"""

from __future__ import annotations

from headrace.planner.measured import Measured
from headrace.planner.model import Layout


def launch_bound_rows(measured: Measured, layout: Layout) -> list[list[str]]:
    """Return the chains of two or more launch-bound operators on one slice, in the order of the graph."""
    rows: list[list[str]] = []
    for name, one in measured.operators.items():
        if not one.is_launch_bound(layout.sms_of(name)):
            continue
        before = measured.before(name)
        row = next((row for row in rows if before == [row[-1]]), None)
        if row is not None and measured.behind(row[-1]) == [name] and _beside(layout, row[-1], name):
            row.append(name)
        else:
            rows.append([name])
    return [row for row in rows if len(row) > 1]


def is_capturable(measured: Measured, row: list[str]) -> bool:
    """Whether every operator of a row says that it may be captured."""
    return all(measured.operators[name].is_capturable for name in row)


def _beside(layout: Layout, one: str, other: str) -> bool:
    return layout.slice_of(one) == layout.slice_of(other)
