"""The environment records and replays a program that knows nothing of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from headrace.core.run_files import PART_RESTARTS
from headrace.observe import PortRecorder, Recording, environment, watch
from tests.harness import App, sink, source


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_runs", defaultdict(lambda: itertools.count(1)))


def test_a_program_is_recorded_and_replayed_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[list[Any]] = []

    def compose(app: Any) -> None:
        runs.append([])
        app.camera = source(app, ["a", "b"], name="camera")
        app.add_flow(app.camera, sink(app, runs[-1]))

    path = tmp_path / "a.mcap"
    monkeypatch.setenv("HEADRACE_RECORD", str(path))
    monkeypatch.setenv("HEADRACE_RECORD_PORTS", "camera.out")
    App(compose).run()
    monkeypatch.delenv("HEADRACE_RECORD")
    with Recording(path) as recording:
        assert [port.name for port in recording.ports] == ["camera.out"]
        assert [one.data for one in recording] == ["a", "b"]
    monkeypatch.setenv("HEADRACE_REPLAY", str(path))
    app = App(compose)
    app.run()
    assert app.camera.ticks == 0
    assert runs == [["a", "b"]] * 2


def test_every_output_is_recorded_unless_ports_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [1], name="camera"), sink(app, []))

    monkeypatch.setenv("HEADRACE_RECORD", str(tmp_path / "a.mcap"))
    App(compose).run()
    App(compose).run()
    assert [port.name for port in Recording(tmp_path / "a.mcap").ports] == ["camera.out"]
    assert [one.data for one in Recording(tmp_path / "a-2.mcap")] == [1]


def test_a_part_that_is_started_again_records_to_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [len(list(tmp_path.iterdir()))], name="camera"), sink(app, []))

    path = tmp_path / "a.mcap"
    watch(first := App(compose), PortRecorder(path))
    first.run()
    monkeypatch.setenv(PART_RESTARTS, "1")
    watch(again := App(compose), PortRecorder(path))
    again.run()
    assert [one.data for one in Recording(path)] == [0]
    assert [one.data for one in Recording(tmp_path / "a-2.mcap")] == [1]


def test_a_wrong_pace_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [1], name="camera"), sink(app, []))

    monkeypatch.setenv("HEADRACE_REPLAY", str(tmp_path / "a.mcap"))
    monkeypatch.setenv("HEADRACE_REPLAY_PACE", "slow")
    with pytest.raises(ValueError, match="'recorded', 'fast', not 'slow'"):
        App(compose).run()
