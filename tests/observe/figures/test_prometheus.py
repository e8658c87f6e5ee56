"""Figures for Prometheus: a collector for its library, and the text that the library makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.observe import prometheus_collector
from tests.harness import App
from tests.observe.figures.test_statistics import chain

prometheus_client = pytest.importorskip("prometheus_client")


def test_a_registry_of_the_program_has_the_figures_of_every_run() -> None:
    app = App(chain(1, 2, count=3))
    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus_collector(app))
    labels = {"application": "App", "operator": "b"}
    assert registry.get_sample_value("headrace_computes_total", labels) is None  # nothing ran yet
    for _ in range(2):
        app.run()
        assert registry.get_sample_value("headrace_computes_total", labels) == 3
    assert registry.get_sample_value("headrace_compute_seconds_count", labels) == 3
    buckets = [
        registry.get_sample_value("headrace_compute_seconds_bucket", {**labels, "le": bound})
        for bound in ("0.001", "0.0025", "10.0", "+Inf")
    ]
    assert buckets == [0, 3, 3, 3]
    assert registry.get_sample_value("headrace_compute_seconds_sum", labels) == pytest.approx(0.006)
    assert registry.get_sample_value("headrace_operator_gpu_busy_ratio", labels) is None


def test_what_a_run_writes_is_read_by_the_library(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    file = tmp_path / "statistics.prom"
    monkeypatch.setenv("HEADRACE_TRACK", str(file))
    App(chain(1, 2, count=3)).run()
    families = {each.name: each for each in text_string_to_metric_families(file.read_text())}
    assert families["headrace_computes"].type == "counter"
    assert {sample.value for sample in families["headrace_computes"].samples} == {3}
    assert families["headrace_path_latency_seconds"].type == "histogram"


def test_without_the_library_an_error_names_the_extra(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    monkeypatch.setenv("HEADRACE_TRACK", str(tmp_path / "statistics.prom"))
    ran: list[int] = []
    app = App(lambda app: chain(1, 2, count=3)(app) or ran.append(1))
    with pytest.raises(ImportError, match=r"prometheus_client is needed .*'(\.|headrace)\[view\]'"):
        app.run()
