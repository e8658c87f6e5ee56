"""NVTX ranges around computes, with a stand-in for the package nvtx."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.observe import NvtxRanges, Watcher, watch
from tests.harness import App, Step, run, sink, source


class Domain:
    """Notes ranges as (message, payload) when they end, with their thread."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, int]] = []
        self.open: list[tuple[str, int]] = []
        self.threads: set[int] = set()

    def get_event_attributes(self, message: str, payload: int) -> Any:
        return SimpleNamespace(message=message, payload=payload)

    def push_range(self, attributes: Any) -> None:
        self.threads.add(threading.get_ident())
        self.open.append((attributes.message, attributes.payload))

    def pop_range(self) -> None:
        self.ranges.append(self.open.pop())


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Domain:
    domain = Domain()
    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(get_domain={"headrace": domain}.__getitem__))
    return domain


def test_each_compute_is_a_range_with_the_operator_and_the_number(domain: Domain) -> None:
    def look(self: Step, i: Any, o: Any) -> None:
        i.receive("in")
        seen.append(list(domain.open))

    seen: list[Any] = []
    app = App(lambda app: app.add_flow(source(app, [1, 2]), Step(app, inputs=["in"], body=look, name="look")))
    watch(app, NvtxRanges())
    app.run()
    assert sorted(domain.ranges) == [("look", 0), ("look", 1), ("source", 0), ("source", 1)]
    assert seen == [[("look", 0)], [("look", 1)]]
    assert domain.threads == {threading.get_ident()}


def test_a_range_ends_if_the_compute_raises(domain: Domain) -> None:
    app = App(lambda app: app.add_operator(Step(app, body=lambda self, i, o: 1 / 0, name="wrong")))
    watch(app, NvtxRanges())
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert (domain.ranges, domain.open) == ([("wrong", 0)], [])


def test_a_variable_asks_for_ranges(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_NVTX", "1")
    run(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    assert sorted(domain.ranges) == [("sink", 0), ("source", 0)]
    monkeypatch.setenv("HEADRACE_NVTX", "0")
    run(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    assert len(domain.ranges) == 2


def test_without_a_tool_computes_run_as_they_are(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package returns no attributes then."""
    monkeypatch.setattr(domain, "get_event_attributes", lambda **arguments: None)
    ranges = NvtxRanges()
    ranges.begin(None)  # type: ignore[arg-type]
    compute = object()
    assert ranges.around(SimpleNamespace(name="op"), compute) is compute  # type: ignore[arg-type, comparison-overlap]


def test_without_the_package_there_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    taken: list[int] = []
    app = App(lambda app: app.add_flow(source(app, [1]), sink(app, taken)))
    watch(app, NvtxRanges())
    app.run()
    assert taken == [1]
    assert "the package nvtx is not installed" in caplog.text


def test_a_watcher_that_wraps_nothing_costs_nothing() -> None:
    compute = object()
    assert Watcher().around(SimpleNamespace(), compute) is compute  # type: ignore[arg-type, comparison-overlap]
