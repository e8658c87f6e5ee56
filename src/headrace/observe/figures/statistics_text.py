"""Statistics as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.observe.figures.saturation import percent

if TYPE_CHECKING:
    from headrace.observe.figures.distribution import Summary
    from headrace.observe.figures.statistics import Statistics


def milliseconds(nanoseconds: float) -> str:
    """Return a duration in milliseconds with as many digits as are of use."""
    value = nanoseconds / 1e6
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"


def table_text(statistics: Statistics) -> str:
    """Return the statistics as tables."""
    title = f"{statistics.application}: {statistics.seconds:.3f} s, times in ms"
    parts = [title, *(f"saturated: {text}" for text in statistics.saturated)]
    operators, queues = statistics.operators, statistics.queues
    name, busy = ("", attrgetter("name")), ("busy", lambda each: percent(each.busy))
    rate = ("per s", lambda each: f"{each.rate:.1f}")
    of_operators: _Columns = [name, _count("count"), rate, busy, *_times("host", attrgetter("host"))]
    if any(each.gpu.count for each in operators):
        of_operators.append(("GPU busy", lambda each: percent(each.gpu_busy) if each.gpu.count else "host only"))
        of_operators += _times("GPU span", attrgetter("gpu"), attrgetter("gpu_is_bound"))
    if any(each.slice for each in operators):
        of_operators.append(("SMs", lambda each: f"{each.sm_count} ({each.slice})" if each.slice else ""))
    if any(each.skipped_errors or each.restarts for each in operators):
        of_operators += [("errors skipped", _text("skipped_errors")), _count("restarts")]
    of_queues: _Columns = [name, _count("received"), ("waits", _text("depth")), _count("most"), busy]
    of_queues.append(_count("dropped"))
    if any(each.discarded for each in queues):
        of_queues.append(_count("discarded"))
    of_queues += _times("wait", attrgetter("wait"))
    path = ("", lambda each: each.name.replace(",", " → "))
    latencies = [
        (name, _duration(attrgetter(f"latency.{name}"))) for name in ("mean", "p50", "p95", "p99", "max")
    ]
    segment = ("", lambda each: f"{each.name} ({', '.join(each.operators)})")
    tables: list[tuple[str, Sequence[Any], _Columns]] = [
        ("operator", operators, of_operators),
        ("queue", queues, of_queues),
        ("path", statistics.paths, [path, _count("count"), rate, *latencies]),
        ("threads", statistics.workers, [name, _count("count"), busy]),
        ("slice", statistics.slices, [name, ("SMs", _text("sm_count")), busy]),
        ("segment", statistics.segments, [segment, _count("state"), _count("frames"), _count("replayed")]),
    ]
    for what, items, columns in tables:
        if items or what == "operator":
            header = [what, *(title for title, _ in columns[1:])]
            parts += ["", *table(header, [[cell(each) for _, cell in columns] for each in items])]
    parts += [f"{each.name} is eager: {each.reason}" for each in statistics.segments if each.reason]
    return "\n".join(parts)


_Columns: TypeAlias = "list[tuple[str, Callable[[Any], str]]]"
"""The title of each column, and the text of a cell."""


def _text(field: str) -> Callable[[Any], str]:
    return lambda each: str(getattr(each, field))


def _count(field: str) -> tuple[str, Callable[[Any], str]]:
    return field, _text(field)


def _duration(value: Callable[[Any], float]) -> Callable[[Any], str]:
    return lambda each: milliseconds(value(each))


def _times(
    what: str, summary: Callable[[Any], Summary], is_bound: Callable[[Any], bool] | None = None
) -> _Columns:
    """Return the columns of a summary; if figures may be bounds, cells are empty where nothing was timed."""

    def cell(figure: str) -> Callable[[Any], str]:
        def text(each: Any) -> str:
            found = summary(each)
            value = milliseconds(getattr(found, figure))
            if is_bound is None:
                return value
            return "" if not found.count else f"≤ {value}" if is_bound(each) else value

        return text

    titles = {"mean": f"{what} mean", "p50": "p50", "p99": "p99", "max": "max"}
    return [(title, cell(figure)) for figure, title in titles.items()]


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
