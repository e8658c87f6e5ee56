"""Statistics as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.observe.figures.saturation import percent

if TYPE_CHECKING:
    from headrace.observe.figures.distribution import Summary
    from headrace.observe.figures.statistics import Statistics

__all__ = ["milliseconds", "table", "table_text"]


def milliseconds(nanoseconds: float) -> str:
    """Return a duration in milliseconds with as many digits as are of use."""
    value = nanoseconds / 1e6
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"


def table_text(statistics: Statistics) -> str:
    """Return the statistics as tables."""
    title = f"{statistics.application}: {statistics.seconds:.3f} s, times in ms"
    head = [title, *(f"saturated: {text}" for text in statistics.saturated), ""]
    has_gpu = any(each.gpu.count for each in statistics.operators)
    has_slices = any(each.slice for each in statistics.operators)
    has_errors = any(each.skipped_errors or each.restarts for each in statistics.operators)
    header = ["operator", "count", "per s", "busy", *_times("host")]
    if has_gpu:
        header += ["GPU busy", *_times("GPU")]
    if has_slices:
        header.append("SMs")
    if has_errors:
        header += ["errors skipped", "restarts"]
    rows = [
        [
            each.name,
            str(each.count),
            f"{each.rate:.1f}",
            percent(each.busy),
            *_figures(each.host),
            *(
                ([percent(each.gpu_busy), *_figures(each.gpu)] if each.gpu.count else [""] * 5)
                if has_gpu
                else []
            ),
            *([f"{each.sm_count} ({each.slice})" if each.slice else ""] if has_slices else []),
            *([str(each.skipped_errors), str(each.restarts)] if has_errors else []),
        ]
        for each in statistics.operators
    ]
    parts = [*head, *table(header, rows)]
    if statistics.queues:
        has_discards = any(each.discarded for each in statistics.queues)
        header = ["queue", "received", "waits", "most", "busy", "dropped"]
        header += ["discarded"] * has_discards + _times("wait")
        rows = [
            [
                each.name,
                str(each.received),
                str(each.depth),
                str(each.most),
                percent(each.busy),
                str(each.dropped),
                *[str(each.discarded)] * has_discards,
                *_figures(each.wait),
            ]
            for each in statistics.queues
        ]
        parts += ["", *table(header, rows)]
    if statistics.paths:
        header = ["path", "count", "per s", "mean", "p50", "p95", "p99", "max"]
        rows = [
            [
                each.name.replace(",", " → "),
                str(each.count),
                f"{each.rate:.1f}",
                *(milliseconds(value) for value in _all_figures(each.latency)),
            ]
            for each in statistics.paths
        ]
        parts += ["", *table(header, rows)]
    if statistics.workers:
        rows = [[each.name, str(each.count), percent(each.busy)] for each in statistics.workers]
        parts += ["", *table(["threads", "count", "busy"], rows)]
    if statistics.slices:
        rows = [[each.name, str(each.sm_count), percent(each.busy)] for each in statistics.slices]
        parts += ["", *table(["slice", "SMs", "busy"], rows)]
    if statistics.segments:
        header = ["segment", "state", "frames", "replayed"]
        rows = [
            [
                f"{each.name} ({', '.join(each.operators)})",
                each.state,
                str(each.frames),
                str(each.replayed),
            ]
            for each in statistics.segments
        ]
        parts += ["", *table(header, rows)]
        parts += [f"{each.name} is eager: {each.reason}" for each in statistics.segments if each.reason]
    return "\n".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; all columns but the first are aligned to the right."""
    rows = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
        ]
        return "  ".join(cells).rstrip()

    return [line(rows[0]), "  ".join("-" * width for width in widths), *map(line, rows[1:])]


def _times(what: str) -> list[str]:
    return [f"{what} mean", "p50", "p99", "max"]


def _figures(summary: Summary) -> list[str]:
    return [milliseconds(value) for value in (summary.mean, summary.p50, summary.p99, summary.max)]


def _all_figures(summary: Summary) -> tuple[float, ...]:
    return (summary.mean, summary.p50, summary.p95, summary.p99, summary.max)
