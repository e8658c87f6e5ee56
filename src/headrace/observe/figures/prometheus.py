"""Statistics for Prometheus, through its own library `prometheus_client`, which knows the formats.

It is pure Python without dependencies, and belongs to the extra ``view``, whose dashboard serves these figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.lazy import import_or_explain
from headrace.observe.figures.distribution import BOUNDS
from headrace.observe.figures.run_figures import ShowsFigures
from headrace.observe.figures.tables import label_of

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.observe.figures.statistics import Statistics

# The group of statistics, the field, and the kind, name and description of the metric.
_METRICS = (
    ("operators", "count", "counter", "computes", "Finished computes."),
    ("operators", "host", "histogram", "compute_seconds", "Time in compute on the host."),
    ("operators", "gpu", "histogram", "gpu_seconds", "Time of computes on the device, at most."),
    ("operators", "kernels", "histogram", "kernels_seconds", "Time of the kernels and copies of computes."),
    ("operators", "skipped_errors", "counter", "skipped_errors", "Errors of computes that were skipped."),
    ("operators", "restarts", "counter", "restarts", "Restarts after errors."),
    ("operators", "retries", "counter", "retries", "Retries after errors."),
    ("operators", "dead_letters", "counter", "dead_letters", "Failed computes whose messages were sent on."),
    ("operators", "stuck", "counter", "stuck_computes", "Computes that took longer than their deadline."),
    ("operators", "lateness", "histogram", "lateness_seconds", "How long after they were due ticks began."),
    ("operators", "late_ticks", "counter", "late_ticks", "Ticks that began when the next one was due."),
    ("operators", "skipped_ticks", "counter", "skipped_ticks", "Ticks that were skipped."),
    (
        "operators",
        "cut_off",
        "counter",
        "cut_off_retries",
        "Errors that the end of the run left without a retry.",
    ),
    ("operators", "busy", "gauge", "operator_busy_ratio", "Share of the time in compute on the host."),
    ("operators", "gpu_busy", "gauge", "operator_gpu_busy_ratio", "Share of the time on the device."),
    ("operators", "waits", "gauge", "operator_waits_ratio", "Share of compute without the processor."),
    (
        "operators",
        "interpreter",
        "gauge",
        "operator_interpreter_ratio",
        "Share of compute, at most, in which it waited for the lock of the interpreter.",
    ),
    (
        "operators",
        "waiting",
        "gauge",
        "operator_waiting_ratio",
        "Share of the time between computes, by what it waited for.",
    ),
    ("queues", "busy", "gauge", "queue_busy_ratio", "Share of the places that were taken, on average."),
    ("workers", "busy", "gauge", "threads_busy_ratio", "Share of the time in which worker threads computed."),
    ("slices", "busy", "gauge", "slice_busy_ratio", "Share of the time in which a slice of a device worked."),
    ("queues", "received", "counter", "queue_received", "Received messages."),
    ("queues", "dropped", "counter", "queue_dropped", "Dropped messages."),
    ("queues", "discarded", "counter", "queue_discarded", "Messages discarded after an error."),
    ("queues", "depth", "gauge", "queue_depth", "Waiting messages."),
    ("queues", "wait", "histogram", "queue_wait_seconds", "Time of messages in queues."),
    (
        "paths",
        "latency",
        "histogram",
        "path_latency_seconds",
        "Time from the source to the end of the last work.",
    ),
    ("segments", "frames", "counter", "segment_frames", "Frames of captured segments."),
    ("segments", "replayed", "counter", "segment_replayed", "Replayed frames of captured segments."),
    ("segments", "state", "gauge", "segment_state", "1 for the state of each captured segment."),
    ("links", "count", "counter", "link_messages", "Messages that were sent to another process and taken."),
    ("links", "time", "histogram", "link_seconds", "Time of messages from one process to another."),
    ("goals", "sent", "counter", "goal_sent", "Messages that were sent on the path of a goal."),
    ("goals", "arrived", "counter", "goal_arrived", "Messages that arrived in time."),
    ("goals", "late", "counter", "goal_late", "Messages that took longer than a goal allows."),
    ("goals", "failed", "counter", "goal_failed", "Messages that failed computes took with them."),
    ("goals", "dropped", "counter", "goal_dropped", "Messages that were dropped on purpose."),
    (
        "goals",
        "lost",
        "counter",
        "goal_lost",
        "Messages that were lost with a process; ticks that were skipped.",
    ),
    ("goals", "is_met", "gauge", "goal_met", "1 if a goal is met so far, 0 if not; absent if not known."),
)


class StatisticsCollector:
    """A collector of `prometheus_client`: its registry asks for the figures whenever they are scraped.

    Parameters
    ----------
    snapshots
        Returns the statistics so far, of one application or of several.
    """

    def __init__(self, snapshots: Callable[[], Iterable[Statistics]]) -> None:
        self._library = import_or_explain("prometheus_client", "view", "to show figures to Prometheus")
        self._snapshots = snapshots

    def describe(self) -> list[Any]:
        """Return nothing: which figures there are depends on the run."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the figures."""
        found = list(self._snapshots())
        for group, field, kind, name, description in _METRICS:
            metric = self._library.Metric(f"headrace_{name}", description, kind)
            for statistics, each in ((one, each) for one in found for each in getattr(one, group)):
                if field == "gpu_busy" and not each.gpu.count:  # an operator that does not use the device
                    continue
                labels = {"application": statistics.application, label_of(group): each.name}
                labels |= _fragment(statistics, group, each)
                _add(metric, labels, getattr(each, field))
            if metric.samples:
                yield metric

    def text(self) -> bytes:
        """Return the figures in the text format of Prometheus."""
        registry = self._library.CollectorRegistry()
        registry.register(self)
        text: bytes = self._library.generate_latest(registry)
        return text


def _fragment(statistics: Statistics, group: str, each: Any) -> dict[str, str]:
    """Return the label of the fragment that something belongs to, for a run in several processes."""
    if group == "queues":
        names = [each.name.rpartition(".")[0]]
    elif group in ("workers", "slices", "segments"):
        names = list(each.operators)
    else:
        names = [each.name] if group == "operators" else []
    found = {statistics.fragments.get(name, "") for name in names}
    fragment = found.pop() if len(found) == 1 else ""
    return {"fragment": fragment} if fragment else {}


def _add(metric: Any, labels: dict[str, str], value: Any) -> None:
    """Add the samples of one figure to a metric."""
    if metric.type == "counter":
        metric.add_sample(f"{metric.name}_total", labels, value)
    elif isinstance(value, dict):
        for what, share in value.items():
            metric.add_sample(metric.name, {**labels, "for": what}, share)
    elif isinstance(value, str):
        metric.add_sample(metric.name, {**labels, "state": value}, 1)
    elif metric.type == "gauge":
        if value is not None:
            metric.add_sample(metric.name, labels, float(value))
    elif value.count:
        for bound, count in zip(BOUNDS, value.cumulative, strict=True):
            metric.add_sample(f"{metric.name}_bucket", {**labels, "le": str(bound / 1e9)}, count)
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": "+Inf"}, value.count)
        metric.add_sample(f"{metric.name}_sum", labels, value.mean * value.count / 1e9)
        metric.add_sample(f"{metric.name}_count", labels, value.count)


def prometheus_collector(fragment: Composition) -> StatisticsCollector:
    """Return a collector of a fragment's runs for a registry of `prometheus_client`.

    ``prometheus_client.REGISTRY.register(prometheus_collector(app))`` adds them to the figures of a program that
    serves its own.
    """
    watcher = ShowsFigures()
    collector = StatisticsCollector(lambda: [watcher.snapshot()])
    fragment._headrace.watchers.append(watcher)
    return collector
