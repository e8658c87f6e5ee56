"""Messages of captured segments: what data loggers, recordings and traces see of them, and segments in a replay."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.observe import PortRecorder, Recording, TraceWriter, Watcher, replay, watch
from tests.harness import App
from tests.harness.segments import branches, chain, fork
from tests.observe.traces.traces import load

pytestmark = pytest.mark.usefixtures("machine")


class Counts(Watcher):
    """Counts the messages of each port."""

    wants_data = True

    def __init__(self, ports: str = "") -> None:
        self.ports = ports.split()
        self.emissions: Counter[str] = Counter()
        self.receptions: Counter[str] = Counter()

    def watches(self, port: Any) -> bool:
        return not self.ports or port.name in self.ports

    def emitted(self, output: Any, item: Any, time: int) -> None:
        self.emissions[output.name] += 1

    def received(self, queue: Any, item: Any, time: int) -> None:
        self.receptions[queue.name] += 1


def watched(compose: Any, watcher: Watcher) -> App:
    app = App(compose)
    watch(app, watcher)
    app.run()
    assert app.segment.state == "captured"  # type: ignore[attr-defined]
    return app


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_messages_at_the_border_are_seen_in_every_frame_and_others_in_ordinary_ones() -> None:
    counts = Counts()
    watched(branches, counts)
    # In the replays, what b sends to d is not there, and what it sends to the monitor is.
    assert counts.emissions == {
        "camera.out": 20,
        "aside.out": 20,
        "a.out": 1,
        "b.out": 20,
        "c.out": 1,
        "d.out": 20,
    }
    assert counts.receptions == {
        "a.in": 20,
        "b.in": 1,
        "c.in": 1,
        "d.left": 1,
        "d.right": 1,
        "d.extra": 20,
        "sink.in": 20,
        "monitor.in": 20,
    }


def test_the_log_says_once_that_messages_inside_are_not_seen(caplog: pytest.LogCaptureFixture) -> None:
    watched(branches, Counts())
    (text,) = warnings_of(caplog)
    assert text == (
        "segment 'body': messages at 'a.out', 'b.in', 'c.out', 'c.in', 'd.left', 'd.right' are seen only in frames "
        "that are not replayed; to see them all, leave one of the operators out of the segment, or set "
        "HEADRACE_CAPTURE=off"
    )


# Recordings.


def test_a_recording_has_all_messages_at_the_border(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "frames.mcap"
    app: Any = watched(branches, PortRecorder(file))
    recording = Recording(file)
    counts = Counter(port.name for port, _ in recording.outline())
    assert counts == {"camera.out": 20, "aside.out": 20, "b.out": 20, "d.out": 20}
    for port, end in (("d.out", app.sink), ("b.out", app.monitor)):
        assert [int(np.asarray(each.data)[0]) for each in recording.messages(port)] == end.seen
    assert warnings_of(caplog) == []


def test_ports_inside_are_recorded_where_they_are_named_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "frames.mcap"
    watched(branches, PortRecorder(file, ["a.out"]))
    assert len(Recording(file)) == 1
    assert len(warnings_of(caplog)) == 1


def test_a_segment_is_captured_when_its_sources_are_played(tmp_path: Path) -> None:
    file = tmp_path / "frames.mcap"
    recorded = watched(chain, PortRecorder(file, ["source.out"]))
    app = App(chain)
    replay(app, file, "fast")
    outcome = app.run()
    assert app.sink.seen == recorded.sink.seen  # type: ignore[attr-defined]
    assert [(each.state, each.replayed) for each in outcome.segments] == [("captured", 19)]


def test_operators_that_are_played_are_no_part_of_their_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "frames.mcap"
    with monkeypatch.context() as patch:
        patch.setenv("HEADRACE_CAPTURE", "off")
        recorded = App(chain)
        watch(recorded, PortRecorder(file, ["one.out"]))
        recorded.run()
    app = App(chain)
    replay(app, file, "fast")
    outcome = app.run()
    assert app.sink.seen == recorded.sink.seen  # type: ignore[attr-defined]
    (segment,) = outcome.segments
    assert segment.operators == ("two", "three")
    assert (segment.state, segment.replayed) == ("captured", 19)


def test_a_segment_that_is_played_altogether_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "frames.mcap"
    recorded = watched(chain, PortRecorder(file))
    app = App(chain)
    replay(app, file, "fast")
    outcome = app.run()
    assert app.sink.seen == recorded.sink.seen  # type: ignore[attr-defined]
    assert outcome.segments == ()
    assert app.segment.state == "off"  # type: ignore[attr-defined]
    assert "played" in app.segment.reason  # type: ignore[attr-defined]


def test_a_segment_of_which_two_pieces_are_left_is_not_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compose(app: Any) -> None:
        fork(app)

    file = tmp_path / "frames.mcap"
    with monkeypatch.context() as patch:
        patch.setenv("HEADRACE_CAPTURE", "off")
        recorded = App(compose)
        watch(recorded, PortRecorder(file, ["a.out"]))
        recorded.run()
    app = App(compose)
    replay(app, file, "fast")
    assert app.run().segments == ()
    assert app.segment.state == "off"  # type: ignore[attr-defined]
    assert [sink.seen for sink in app.sinks] == [  # type: ignore[attr-defined]
        sink.seen
        for sink in recorded.sinks  # type: ignore[attr-defined]
    ]


# Metadata in traces.


def test_a_trace_shows_metadata_with_the_right_computes(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"

    def compose(app: Any) -> None:
        chain(app, 30, large=5, shapes=1, metadata="number")

    app = App(compose)
    watch(app, TraceWriter(file, metadata=True))
    app.run()
    trace = load(file)
    for name in ("one", "two", "sink"):
        computes = trace.of("X", cat="compute", name=name)
        assert len(computes) == 30
        shown = [event["args"].get("metadata", {}).get("number") for event in computes]
        is_replayed = [event["args"].get("replayed", False) for event in computes]
        assert sum(is_replayed) == (0 if name == "sink" else 23), name
        for number, (told, flag) in enumerate(zip(shown, is_replayed, strict=True)):
            assert told == number if name != "two" or not flag else told is None
