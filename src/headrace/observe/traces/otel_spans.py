"""OtelSpans: the messages of a run as spans of OpenTelemetry.

Every message that reaches the end of its path is a trace: a span from its origin to the end of the last operator's
work, and in it a span for each queue in which it waited and for each operator that had it. The program configures
where spans go, with OpenTelemetry's SDK or its environment variables. This needs the package ``opentelemetry-api``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.extras import installing
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

    def __init__(self, most: int = 100, tracer: Any = None) -> None:
        if most < 1:
            raise ValueError(f"OtelSpans: most must be at least 1, not {most}")
        self._interval = _SECOND // most
        self._trace = _opentelemetry()
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
        epoch, tracer = self._run.epoch, self._tracer
        times = (flows.times[row] + epoch).tolist()
        whole = tracer.start_span(
            flows.path.name,
            # A trace of its own, whatever span the program is in.
            context=self._trace.set_span_in_context(self._trace.INVALID_SPAN),
            start_time=int(flows.origin[row]) + epoch,
            attributes={
                "headrace.application": self._run.application,
                "headrace.gpu_timed": bool(flows.is_timed[row]),
            },
        )
        inside = self._trace.set_span_in_context(whole)
        for place, operator in enumerate(flows.path.operators):
            if place:
                queue = flows.queues[place - 1].name
                waits = tracer.start_span(
                    f"queue {queue}",
                    context=inside,
                    start_time=times[2 * place - 1],
                    attributes={"headrace.queue": queue},
                )
                waits.end(end_time=times[2 * place])
            attributes = {
                "headrace.operator": operator.name,
                "headrace.compute": int(flows.computes[row, place]),
            }
            if operator.slice:
                attributes |= {"headrace.slice": operator.slice, "headrace.sm_count": operator.sm_count}
            span = tracer.start_span(
                operator.name, context=inside, start_time=times[2 * place], attributes=attributes
            )
            span.end(end_time=times[2 * place + 1])
        whole.end(end_time=int(flows.done[row]) + epoch)


def _opentelemetry() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        raise ImportError(
            f"spans need the package opentelemetry-api: {installing('otel')}, and an SDK with an exporter, as "
            "opentelemetry-sdk and opentelemetry-exporter-otlp"
        ) from None
    return trace
