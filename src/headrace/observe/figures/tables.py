"""Tables for people: statistics, and any other rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace import notebook
from headrace.observe.events.clock_offsets import describe_clocks
from headrace.observe.figures.distribution import Summary

if TYPE_CHECKING:
    from headrace.observe.figures.statistics import Statistics

# What each table of the statistics is of, and its fields. A field with "?" is shown if it has a value anywhere.
_TABLES = {
    "operators": "count rate busy waits? interpreter? host gpu_busy? gpu? kernels? slice? sm_count? "
    "skipped_errors? restarts? retries? dead_letters? stuck? cut_off? latest? late_ticks? skipped_ticks?",
    "queues": "received depth most busy dropped discarded? wait",
    "links": "count rate time",
    "paths": "count rate latency",
    "workers": "count busy",
    "slices": "sm_count busy",
    "segments": "state frames replayed",
}
_TITLES = {
    "rate": "per s",
    "interpreter": "for the lock",
    "gpu_busy": "GPU busy",
    "sm_count": "SMs",
    "skipped_errors": "errors skipped",
    "dead_letters": "dead letters",
    "latest": "latest tick by",
    "late_ticks": "late ticks",
    "skipped_ticks": "ticks skipped",
    "cut_off": "retries cut off",
    "depth": "waits",
    "host": "host mean",
    "gpu": "GPU span mean",
    "kernels": "kernels mean",
    "wait": "wait mean",
    "latency": "mean",
    "time": "mean",
}


_WAITED_FOR = {
    "message": "messages",
    "clock": "its clock",
    "gpu": "the GPU",
    "room": "room",
    "worker": "a worker",
    "memory": "≤ memory",
    "held": "≤ anything else",
}
_SHOWN = 0.005  # a share that is shown as more than 0%


def statistics_text(statistics: Statistics) -> str:
    """Return statistics as tables."""
    lines = _introduction(statistics)
    for head, rows in _statistics_tables(statistics):
        lines += ["", *table(head, rows)]
    return "\n".join(lines + _remarks(statistics))


def statistics_html(statistics: Statistics) -> str:
    """Return statistics as tables in HTML."""
    parts = map(notebook.paragraph, _introduction(statistics)), map(notebook.paragraph, _remarks(statistics))
    tables = (notebook.table(head, rows) for head, rows in _statistics_tables(statistics))
    return "".join([*parts[0], *tables, *parts[1]])


def _introduction(statistics: Statistics) -> list[str]:
    saturated = [f"saturated: {text}" for text in statistics.saturated]
    clocks = describe_clocks(statistics.clocks)
    return [f"{statistics.application}: {statistics.seconds:.3f} s, times in ms", *clocks, *saturated]


def _remarks(statistics: Statistics) -> list[str]:
    is_told = statistics.kernels.startswith(("not shown", "shown in part"))
    eager = [f"{each.name} is eager: {each.reason}" for each in statistics.segments if each.reason]
    advice = [f"advice: {text}" for text in statistics.advice]
    return [f"kernels are {statistics.kernels}"] * is_told + eager + advice


def _statistics_tables(statistics: Statistics) -> Iterator[tuple[Sequence[str], list[Sequence[str]]]]:
    """Yield the header and the rows of each table of the statistics."""
    for group, names in _TABLES.items():
        items = getattr(statistics, group)
        if items:
            columns = [[label_of(group), *(_name(group, each) for each in items)]]
            for name in names.split():
                values = [getattr(each, name.removesuffix("?")) for each in items]
                if name == "gpu_busy?":
                    if any(each.gpu.count for each in items):
                        cells = [f"{each.gpu_busy:.0%}" if each.gpu.count else "host only" for each in items]
                        columns.append([_TITLES["gpu_busy"], *cells])
                elif any(map(_is_known, values)) or not name.endswith("?"):
                    columns += _columns(name, values)
            head, *rows = zip(*columns, strict=True)
            yield head, list(rows)
        if group == "operators":
            yield from _waiting_table(statistics)


def _waiting_table(statistics: Statistics) -> Iterator[tuple[Sequence[str], list[Sequence[str]]]]:
    """Yield the shares of the time in which operators computed, and waited between their computes."""
    shown = [
        kind
        for kind in _WAITED_FOR
        if any(each.waiting.get(kind, 0) >= _SHOWN for each in statistics.operators)
    ]
    if shown:
        rows: list[Sequence[str]] = [
            [each.name, f"{each.busy:.0%}", *(f"{each.waiting.get(kind, 0):.0%}" for kind in shown)]
            for each in statistics.operators
        ]
        yield ["waits for", "(computes)", *(_WAITED_FOR[kind] for kind in shown)], rows


def label_of(group: str) -> str:
    """Return what one of a group of the statistics is called, as in ``"operator"``."""
    return "threads" if group == "workers" else group.removesuffix("s")


def _name(group: str, item: Any) -> str:
    if group == "segments":
        return f"{item.name} ({', '.join(item.operators)})"
    return " → ".join(item.operators) if group == "paths" else str(item.name)


def _is_known(value: Any) -> bool:
    if isinstance(value, float):
        return value >= _SHOWN
    return bool(value.count if isinstance(value, Summary) else value)


def _columns(name: str, values: list[Any]) -> list[list[str]]:
    """Return the columns of a field, with their titles: several if it is a summary of durations."""
    field = name.removesuffix("?")
    title = _TITLES.get(field, field)
    if not isinstance(values[0], Summary):
        if field == "latest":
            return [[title, *(milliseconds(value) if value else "" for value in values)]]
        if field in ("waits", "interpreter"):  # the wait for the lock is a bound
            sign = "≤ " if field == "interpreter" else ""
            return [[title, *("" if value is None else f"{sign}{value:.0%}" for value in values)]]
        form = "{:.0%}" if field.endswith("busy") else "{:.1f}" if field == "rate" else "{}"
        is_blank = field == "sm_count"
        return [[title, *("" if is_blank and not value else form.format(value) for value in values)]]
    figures = [
        figure for figure in ("mean", "p50", "p95", "p99", "max") if figure != "p95" or field == "latency"
    ]
    return [
        [
            title if figure == "mean" else figure,
            *(_duration(value, figure) for value in values),
        ]
        for figure in figures
    ]


def _duration(summary: Summary, figure: str) -> str:
    text = milliseconds(getattr(summary, figure))
    return "" if not summary.count else f"≤ {text}" if summary.is_bound else text


def milliseconds(nanoseconds: float) -> str:
    """Return a duration in milliseconds with as many digits as are of use."""
    value = nanoseconds / 1e6
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Return the lines of a table; the first columns are aligned to the left, and all others to the right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, ["-" * width for width in widths], *rows)
    ]
