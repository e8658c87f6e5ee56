"""Tracker: which runs it tracks."""

from __future__ import annotations

import threading
from typing import Any

from headrace.conditions import CountCondition
from tests.harness.application import App
from tests.harness.operators import Step, sink, source


def counted(counts: list[int]) -> App:
    """Return an application whose runs emit so many messages each."""
    left = iter(counts)

    def compose(app: Any) -> None:
        app.add_flow(source(app, range(next(left))), sink(app, []))

    return App(compose)


def test_a_block_tracks_its_runs_and_no_later_ones() -> None:
    app = counted([2, 3, 5])
    with app.track() as tracker:
        assert app.data_flow_tracker() is tracker
        app.run()
        app.run()
    assert app.data_flow_tracker() is None
    app.run()
    assert tracker.statistics.operator("source").count == 3


def test_a_second_block_tracks_again() -> None:
    app = counted([2, 3, 5])
    tracker = app.track()
    with tracker:
        app.run()
    app.run()
    with tracker:
        assert tracker.statistics.operator("source").count == 2
        app.run()
    assert tracker.statistics.operator("source").count == 5


def test_a_run_that_has_begun_in_the_block_is_tracked_to_its_end() -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any) -> None:
            has_begun.set()
            may_end.wait()
            op_output.emit(1, "out")

        source = Step(app, CountCondition(app, 3), outputs=["out"], body=body, name="source")
        app.add_flow(source, sink(app, []))

    app = App(compose)
    with app.track() as tracker:
        future = app.run_async()
        has_begun.wait()
    may_end.set()
    future.result()
    assert tracker.statistics.operator("source").count == 3
