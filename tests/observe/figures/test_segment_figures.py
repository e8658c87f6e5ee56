"""Figures of captured segments: in statistics, for Prometheus, and on the live page."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.capture import CaptureRefused
from headrace.observe import Dashboard, OperatorInfo, SegmentInfo, SegmentStatistics
from tests.harness import App
from tests.harness.segments import chain

pytestmark = pytest.mark.usefixtures("machine")


def tracked(compose: Callable[[Any], None]) -> Any:
    app = App(compose)
    tracker = app.track()
    app.run()
    return tracker.statistics


def refused(app: Any) -> None:
    chain(app)
    app.stages[1].on_error = "skip"


class Told(Dashboard):
    """Keeps what a page is told at the end of a run."""

    def end(self, outcome: Any) -> None:
        self.graph, self.last = self._page.graph(), self._page.figures()
        super().end(outcome)


def test_statistics_have_the_segments() -> None:
    statistics = tracked(chain)
    assert statistics.segments == (
        SegmentStatistics("middle", ("one", "two", "three"), "captured", "", 20, 19),
    )
    assert statistics.segment("middle").replayed == 19
    with pytest.raises(KeyError, match="no segment 'other'; there are 'middle'"):
        statistics.segment("other")
    assert json.loads(statistics.to_json())["segments"] == [
        {
            "name": "middle",
            "operators": ["one", "two", "three"],
            "state": "captured",
            "reason": "",
            "frames": 20,
            "replayed": 19,
        }
    ]


def test_the_tables_say_why_a_segment_is_eager() -> None:
    with pytest.warns(CaptureRefused):
        lines = str(tracked(refused)).splitlines()
    assert lines[-1].startswith("middle is eager: operator 'two'")


def test_the_live_page_is_told_the_state_of_segments() -> None:
    app = App(chain)
    dashboard = Told(app, announce=lambda url: None)
    app.run()
    assert dashboard.graph["segments"] == [{"name": "middle", "operators": [1, 2, 3]}]
    (segment,) = dashboard.last["segments"]
    assert segment.items() >= {"state": "captured", "reason": "", "frames": 20, "replayed": 19}.items()
    assert [operator["count"] for operator in dashboard.last["operators"]] == [20] * 5
    assert [round(operator["gpu"][0] / 1e3) for operator in dashboard.last["operators"][1:4]] == [1, 2, 3]


def test_frames_kept_for_replays_count_at_the_first_operator() -> None:
    def node(frames: int) -> SimpleNamespace:
        return SimpleNamespace(lifetimes=SimpleNamespace(frames_in_flight=frames))

    first, second = OperatorInfo("a", 0, node=node(2)), OperatorInfo("b", 1, node=node(1))
    alone = OperatorInfo("c", 2, node=SimpleNamespace(lifetimes=None))
    segment = SegmentInfo("s", [first, second], None, captured=SimpleNamespace(node=node(4)))
    first.segment = second.segment = segment
    assert [operator.frames_kept for operator in (first, second, alone)] == [6, 1, 0]
