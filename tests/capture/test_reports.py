"""What a run says about its captured segments when it has ended."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace.capture import CaptureRefused
from headrace.core import EndedBy, SegmentOutcome
from tests.harness import App
from tests.harness.segments import Work, branches, chain

pytestmark = pytest.mark.usefixtures("machine")


def test_the_outcome_tells_what_was_captured() -> None:
    app = App(chain)
    outcome = app.run()
    (segment,) = outcome.segments
    assert (segment.name, segment.operators) == ("middle", ("one", "two", "three"))
    assert (segment.state, segment.reason) == ("captured", "")
    assert (segment.frames, segment.replayed, segment.recordings) == (20, 19, 1)
    assert segment == app.segment.outcome()  # type: ignore[attr-defined]
    assert str(segment) == app.segment.report()  # type: ignore[attr-defined]
    assert "19 of 20 frames replayed" in str(segment)
    assert str(outcome).endswith("100 computes, 1 of 1 segment captured")


def test_the_outcome_tells_what_was_not_captured_and_why() -> None:
    def compose(app: Any) -> None:
        chain(app)
        app.stages[1].on_error = "skip"

    app = App(compose)
    with pytest.warns(CaptureRefused):
        outcome = app.run()
    (segment,) = outcome.segments
    assert segment.state == "eager"
    assert "operator 'two'" in segment.reason
    assert f"eager, because {segment.reason}" in str(segment)
    assert segment.frames == segment.replayed == 0
    assert "0 of 1 segment captured" in str(outcome)


def test_a_segment_that_is_switched_off_is_in_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CAPTURE", "off")
    (segment,) = App(chain).run().segments
    assert (segment.state, segment.replayed) == ("off", 0)
    assert str(segment) == "segment 'middle' (one, two, three): off"


def test_what_was_saved_follows_from_both_times() -> None:
    segment = SegmentOutcome(
        "s",
        ("a", "b"),
        "captured",
        frames=1000,
        replayed=900,
        recordings=1,
        eager_ns=50_000,
        replay_ns=10_000,
    )
    assert segment.saved == pytest.approx(0.036)
    assert str(segment) == (
        "segment 's' (a, b): captured; 900 of 1000 frames replayed in 10.0 µs of the host's time each instead of "
        "50.0, which saved 0.036 s"
    )
    slower = SegmentOutcome("s", ("a",), "captured", replayed=9, eager_ns=1.0, replay_ns=2.0)
    assert slower.saved == 0


def test_the_log_of_a_run_has_a_line_for_each_segment(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        app = App(chain)
        app.run()
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.capture"]
    assert lines == [app.segment.report()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_watched", [False, True])
def test_counts_of_messages_are_those_of_a_run_without_capture(
    monkeypatch: pytest.MonkeyPatch, is_watched: bool
) -> None:
    def compose(app: Any) -> None:
        branches(app)
        app.count_messages = True

    def run() -> Any:
        app = App(compose)
        if is_watched:
            app.track()
        outcome = app.run()
        return outcome, outcome.operators

    outcome, captured = run()
    assert outcome.segments[0].replayed == 19
    assert captured["d"].received == {"left": 20, "right": 20, "extra": 20}
    assert captured["b"].sent == {"out": 20}
    monkeypatch.setenv("HEADRACE_CAPTURE", "off")
    assert captured == run()[1]


@pytest.mark.parametrize("counts", [False, True])
def test_messages_at_an_output_that_leads_nowhere_are_dropped_in_replays_too(
    monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    def compose(app: Any) -> None:
        app.count_messages = counts
        chain(app, extra="unused")

    outcome = App(compose).run()
    assert outcome.segments[0].replayed == 19
    assert outcome.dropped == {"two.unused": 20}
    if counts:
        assert outcome.operators["two"].sent == {"out": 20, "unused": 20}


def test_a_run_that_ends_while_it_warms_up_says_so() -> None:
    outcome = App(lambda app: chain(app, 1)).run()
    assert outcome.ended_by is EndedBy.FINISHED
    assert [segment.state for segment in outcome.segments] == ["warming up"]


def test_operators_of_segments_are_ordinary_ones() -> None:
    app = App(chain)
    outcome = app.run()
    assert all(type(stage) is Work for stage in app.stages)  # type: ignore[attr-defined]
    assert {name: each.computes for name, each in outcome.operators.items()} == dict.fromkeys(
        ("source", "one", "two", "three", "sink"), 20
    )
