"""Statistics as text: a table for people, and the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.observe.figures.saturation import percent

if TYPE_CHECKING:
    from headrace.observe.figures.distribution import Summary
    from headrace.observe.figures.statistics import Statistics

__all__ = ["milliseconds", "prometheus_text", "table", "table_text"]


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


def prometheus_text(statistics: Statistics) -> str:
    """Return the statistics in the text format of Prometheus, version 0.0.4."""
    lines: list[str] = []

    def family(name: str, kind: str, description: str, samples: Iterator[tuple[str, str, float]]) -> None:
        found = list(samples)
        if found:
            lines.append(f"# HELP headrace_{name} {description}")
            lines.append(f"# TYPE headrace_{name} {kind}")
            lines.extend(f"headrace_{name}{suffix}{{{labels}}} {value!r}" for suffix, labels, value in found)

    application = _label("application", statistics.application)

    def summaries(pairs: Iterable[tuple[str, Summary]]) -> Iterator[tuple[str, str, float]]:
        for labels, summary in pairs:
            if summary.count:
                for quantile, value in (("0.5", summary.p50), ("0.95", summary.p95), ("0.99", summary.p99)):
                    yield "", f'{labels},quantile="{quantile}"', value / 1e9
                yield "_sum", labels, summary.mean * summary.count / 1e9
                yield "_count", labels, summary.count

    def labelled(kind: str, name: str) -> str:
        return f"{application},{_label(kind, name)}"

    operators = [(labelled("operator", each.name), each) for each in statistics.operators]
    queues = [(labelled("queue", each.name), each) for each in statistics.queues]
    paths = [(labelled("path", each.name), each) for each in statistics.paths]
    segments = [(labelled("segment", each.name), each) for each in statistics.segments]
    workers = [(labelled("threads", each.name), each) for each in statistics.workers]
    slices = [(labelled("slice", each.name), each) for each in statistics.slices]
    family(
        "computes_total", "counter", "Finished computes.", (("", at, each.count) for at, each in operators)
    )
    family(
        "compute_seconds",
        "summary",
        "Time in compute on the host.",
        summaries((at, each.host) for at, each in operators),
    )
    family(
        "gpu_seconds",
        "summary",
        "Time of computes on the device.",
        summaries((at, each.gpu) for at, each in operators),
    )
    family(
        "skipped_errors_total",
        "counter",
        "Errors of computes that were skipped.",
        (("", at, each.skipped_errors) for at, each in operators),
    )
    family(
        "restarts_total",
        "counter",
        "Restarts after errors.",
        (("", at, each.restarts) for at, each in operators),
    )
    family(
        "operator_busy_ratio",
        "gauge",
        "Share of the time in compute on the host.",
        (("", at, each.busy) for at, each in operators),
    )
    family(
        "operator_gpu_busy_ratio",
        "gauge",
        "Share of the time in which the device worked for an operator.",
        (("", at, each.gpu_busy) for at, each in operators if each.gpu.count),
    )
    family(
        "queue_busy_ratio",
        "gauge",
        "Share of the places of a queue that were taken, on average.",
        (("", at, each.busy) for at, each in queues),
    )
    family(
        "threads_busy_ratio",
        "gauge",
        "Share of the time in which worker threads computed.",
        (("", at, each.busy) for at, each in workers),
    )
    family(
        "slice_busy_ratio",
        "gauge",
        "Share of the time in which a slice of a device worked.",
        (("", at, each.busy) for at, each in slices),
    )
    family(
        "queue_received_total",
        "counter",
        "Received messages.",
        (("", at, each.received) for at, each in queues),
    )
    family(
        "queue_dropped_total", "counter", "Dropped messages.", (("", at, each.dropped) for at, each in queues)
    )
    family(
        "queue_discarded_total",
        "counter",
        "Messages discarded after an error.",
        (("", at, each.discarded) for at, each in queues),
    )
    family("queue_depth", "gauge", "Waiting messages.", (("", at, each.depth) for at, each in queues))
    family(
        "queue_wait_seconds",
        "summary",
        "Time of messages in queues.",
        summaries((at, each.wait) for at, each in queues),
    )
    family(
        "path_latency_seconds",
        "summary",
        "Time from the source to the end of the last operator's work.",
        summaries((at, each.latency) for at, each in paths),
    )
    family(
        "segment_frames_total",
        "counter",
        "Frames of captured segments.",
        (("", at, each.frames) for at, each in segments),
    )
    family(
        "segment_replayed_total",
        "counter",
        "Frames of captured segments that were replayed.",
        (("", at, each.replayed) for at, each in segments),
    )
    family(
        "segment_state",
        "gauge",
        "1 for the state of each captured segment.",
        (("", f"{at},{_label('state', each.state)}", 1) for at, each in segments),
    )
    return "\n".join(lines) + "\n"


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{escaped}"'
