"""OtelSpans: the messages of a run as spans of OpenTelemetry.

Every message that reaches the end of its path is a trace: a span from its origin to the end of the last operator's
work, and in it a span for each queue in which it waited and for each operator that had it. The program configures
where spans go, with OpenTelemetry's SDK or its environment variables. This needs the package ``opentelemetry-api``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.lazy import import_or_explain
from headrace.observe.events.watchers import Watcher

if TYPE_CHECKING:
    from headrace.observe.events.records import Flows, RunInfo

_SECOND = 1_000_000_000


class OtelSpans(Watcher):
    """Makes spans of the messages of a run.

    Parameters
    ----------
    most
        The most messages in a second of which spans are made, for each path; the others are left out, evenly.
    tracer
        A tracer of OpenTelemetry; the global one's ``"headrace"`` unless given.
    """

    spans_parts = True

    def __init__(self, most: int = 100, tracer: Any = None) -> None:
        if most < 1:
            raise ValueError(f"OtelSpans: most must be at least 1, not {most}")
        self._interval = _SECOND // most
        self._trace = import_or_explain(
            "opentelemetry.trace",
            "otel",
            "for spans, with an SDK and an exporter, such as opentelemetry-sdk and opentelemetry-exporter-otlp",
        )
        self._tracer = self._trace.get_tracer("headrace") if tracer is None else tracer

    def begin(self, run: RunInfo) -> None:
        """Begin with a run."""
        self._run = run
        # When the next message of a path is due.
        self._due: dict[str, int] = {}

    def flowed(self, flows: list[Flows]) -> None:
        """Make spans of messages that reached the end of their paths."""
        for each in flows:
            name = each.path.name
            for row in range(len(each.origin)):
                done = int(each.done[row])
                if done >= self._due.get(name, done):
                    self._due[name] = max(self._due.get(name, done), done - _SECOND) + self._interval
                    self._make_spans(each, row)

    def _make_spans(self, flows: Flows, row: int) -> None:
        times = flows.times[row].tolist()
        whole = self._span(
            flows.path.name,
            int(flows.origin[row]),
            # A trace of its own, whatever span the program is in.
            self._trace.INVALID_SPAN,
            {"application": self._run.application, "gpu_timed": bool(flows.is_timed[row])},
        )
        for place, operator in enumerate(flows.path.operators):
            if place:
                queue = flows.queues[place - 1].name
                span = self._span(f"queue {queue}", times[2 * place - 1], whole, {"queue": queue})
                span.end(end_time=times[2 * place] + self._run.epoch)
            attributes = {"operator": operator.name, "compute": int(flows.computes[row, place])}
            if operator.slice:
                attributes |= {"slice": operator.slice, "sm_count": operator.sm_count}
            span = self._span(operator.name, times[2 * place], whole, attributes)
            span.end(end_time=times[2 * place + 1] + self._run.epoch)
        whole.end(end_time=int(flows.done[row]) + self._run.epoch)

    def _span(self, name: str, time: int, inside: Any, attributes: dict[str, Any]) -> Any:
        """Begin a span inside another one."""
        return self._tracer.start_span(
            name,
            context=self._trace.set_span_in_context(inside),
            start_time=time + self._run.epoch,
            attributes={f"headrace.{key}": value for key, value in attributes.items()},
        )
