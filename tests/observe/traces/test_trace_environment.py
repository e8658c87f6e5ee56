"""Traces that a variable asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import run, sink, source
from tests.observe.traces.traces import load


def test_a_variable_asks_for_a_trace_of_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TRACE", str(tmp_path / "out.json"))
    for _ in range(2):
        run(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out-2.json", "out.json"]
    for file in tmp_path.iterdir():
        assert len(load(file).of("X")) == 2


def test_each_run_has_its_own_file_of_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TRACK", str(tmp_path / "statistics.json"))
    for count in (1, 2):
        run(lambda app, count=count: app.add_flow(source(app, range(count)), sink(app, [])))
    for name, count in {"statistics.json": 1, "statistics-2.json": 2}.items():
        found = json.loads((tmp_path / name).read_text())
        assert {each["name"]: each["count"] for each in found["operators"]}["sink"] == count


@pytest.mark.parametrize(("given", "is_on"), [("1", True), ("yes", True), ("0", False), ("off", False)])
def test_tracking_is_switched_by_words(
    given: str, is_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_TRACK", given)
    run(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    assert ("source" in capsys.readouterr().err) == is_on


def test_statistics_that_cannot_be_written_are_an_error_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TRACK", str(tmp_path / "missing" / "statistics.json"))
    taken: list[int] = []
    with pytest.raises(FileNotFoundError, match=r"statistics\.json"):
        run(lambda app: app.add_flow(source(app, [1]), sink(app, taken)))
    assert taken == []


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_NVTX", "perhaps")
    with pytest.raises(ValueError, match="HEADRACE_NVTX=perhaps: must be one of"):
        run(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
