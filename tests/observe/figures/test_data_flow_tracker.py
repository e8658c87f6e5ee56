"""DataFlowTracker: which runs it tracks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from headrace.conditions import CountCondition
from headrace.observe import DataFlowMetric, DataFlowTracker, Flows, OperatorInfo, RunInfo, Tracker
from headrace.observe import Path as FlowPath
from tests.harness.application import App, greedy
from tests.harness.operators import Step, sink


def counted(counts: list[int]) -> App:
    """Return an application whose runs emit so many messages each."""
    left = iter(counts)

    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, next(left)),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        app.add_flow(source, sink(app, []))

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


def test_the_least_and_the_largest_latency_are_those_of_all_messages() -> None:
    tracker = DataFlowTracker(0, 0)
    operators = [OperatorInfo("source", 0), OperatorInfo("sink", 1)]
    tracker.begin(RunInfo("test", operators, started=0, epoch=0, is_virtual=True))
    for latencies in ([5, 7], [6, 3], [9, 4]):
        times = np.zeros((2, 4), np.int64)
        times[:, 3] = np.array(latencies) * 1_000_000
        timed = np.ones(2, np.bool_)
        tracker.flowed(
            [Flows(FlowPath(tuple(operators)), (), np.zeros((2, 2), np.int64), times, times[:, 1], timed)]
        )
    metrics = [DataFlowMetric.MIN_E2E_LATENCY, DataFlowMetric.MIN_MESSAGE_ID]
    metrics += [
        DataFlowMetric.MAX_E2E_LATENCY,
        DataFlowMetric.MAX_MESSAGE_ID,
        DataFlowMetric.NUM_DST_MESSAGES,
    ]
    assert [tracker.get_metric("source,sink", metric) for metric in metrics] == [3, 4, 9, 5, 6]
    assert tracker.get_metric("source,sink", DataFlowMetric.AVG_E2E_LATENCY) == 34 / 6


def test_tracker_tracks_and_logs_the_runs_of_its_block(tmp_path: Path) -> None:
    app = counted([2, 3])
    with Tracker(app, filename=tmp_path / "flow.log", num_start_messages_to_skip=0) as tracker:
        app.run()
    content = (tmp_path / "flow.log").read_text()
    assert content
    app.run()
    assert tracker.statistics.operator("source").count == 2
    assert (tmp_path / "flow.log").read_text() == content


def test_what_counts_is_set_after_a_tracker_was_made() -> None:
    """Of latencies of 1 to 5 ms, the first, the last and those of less than 3 ms are left out."""

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            app.scheduler().clock.sleep_for(self.ticks * 1_000_000)

        source = Step(
            app,
            CountCondition(app, 5),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        middle = Step(
            app,
            inputs=["in"],
            outputs=["out"],
            body=lambda self, i, o: o.emit(i.receive("in"), "out"),
            name="middle",
        )
        app.add_flow(source, middle)
        app.add_flow(middle, Step(app, inputs=["in"], body=take, name="sink"))

    app = App(compose, greedy)
    tracker = app.track(0, 0)
    tracker.set_skip_starting_messages(1)
    tracker.set_discard_last_messages(1)
    tracker.set_skip_latencies(3)
    tracker.add_probe_operator("middle")
    app.run()
    assert set(tracker.get_path_strings()) == {"source,middle", "source,middle,sink"}
    path = "source,middle,sink"
    assert tracker.get_metric(path, DataFlowMetric.NUM_DST_MESSAGES) == 2
    assert tracker.get_metric(path, DataFlowMetric.MIN_E2E_LATENCY) == 3
    assert tracker.get_metric(path, DataFlowMetric.MAX_E2E_LATENCY) == 4
