"""Messages as spans of OpenTelemetry."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from headrace.observe import OtelSpans, watch
from tests.harness.application import App
from tests.observe.figures.test_statistics import MS, chain


@pytest.fixture
def exported() -> Any:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider.get_tracer("test")


def spans_of(exported: Any, compose: Any, **options: Any) -> list[Any]:
    exporter, tracer = exported
    app = App(compose)
    watch(app, OtelSpans(tracer=tracer, **options))
    app.run()
    return list(exporter.get_finished_spans())


def test_each_message_is_a_trace_with_its_queues_and_operators(exported: Any) -> None:
    spans = spans_of(exported, chain(1, 2, 3, count=3))
    whole = [span for span in spans if span.parent is None]
    assert [span.name for span in whole] == ["a,b,c"] * 3
    assert [span.end_time - span.start_time for span in whole] == [6 * MS] * 3
    assert len({span.context.trace_id for span in whole}) == 3
    first = [span for span in spans if span.context.trace_id == whole[0].context.trace_id and span.parent]
    assert [span.name for span in first] == ["a", "queue b.in", "b", "queue c.in", "c"]
    assert {span.parent.span_id for span in first} == {whole[0].context.span_id}
    took = {span.name: span.end_time - span.start_time for span in first}
    assert took == {"a": 1 * MS, "queue b.in": 0, "b": 2 * MS, "queue c.in": 0, "c": 3 * MS}


def test_of_many_messages_only_some_are_shown(exported: Any) -> None:
    spans = spans_of(exported, chain(0, 0, count=1000, period=1), most=10)
    whole = [span for span in spans if span.parent is None]
    # A burst of a second's worth, and then one every 100 ms.
    assert 10 <= len(whole) <= 25


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ImportError, match=r"pip install '(?:\.|headrace)\[otel\]'"):
        OtelSpans()


def test_the_environment_asks_for_spans(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import trace

    exporter, tracer = exported
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    monkeypatch.setenv("HEADRACE_OTEL", "1")
    App(chain(1, 2)).run()
    assert len([span for span in exporter.get_finished_spans() if span.parent is None]) == 5
