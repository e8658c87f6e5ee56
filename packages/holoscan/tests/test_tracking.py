"""The tracker with the calls and the log file of the SDK, and the variables that ask for them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace.observe import Flows, OperatorInfo, RunInfo
from headrace.observe import Path as FlowPath
from headrace_holoscan import conditions, core, resources, schedulers
from headrace_holoscan.core import DataFlowMetric, DataFlowTracker, Tracker
from headrace_holoscan.core.data_flow_tracker import FlowLog

MS = 1_000_000


class Tx(core.Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(1, "out")


class Through(Tx):
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


class Rx(core.Operator):
    """Takes one millisecond more for each message."""

    ticks = 0

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        self.ticks += 1
        self.fragment.scheduler().clock.sleep_for(self.ticks * MS)


class App(core.Application):
    """Sends five messages through three operators."""

    def compose(self) -> None:
        self.scheduler(schedulers.GreedyScheduler(self, clock=resources.ManualClock(self)))
        tx = Tx(self, conditions.CountCondition(self, 5), name="source")
        middle = Through(self, name="middle")
        self.add_flow(tx, middle)
        self.add_flow(middle, Rx(self, name="sink"))


def flow_to(sink: str, done: int) -> Flows:
    way = FlowPath((OperatorInfo("source", 0), OperatorInfo(sink, 1)))
    times = np.array([[0, 1, 2, done]]) * MS
    return Flows(way, (), np.zeros((1, 2), np.int64), times, times[:, 1], np.ones(1, np.bool_))


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


def test_messages_after_the_end_of_the_log_file_are_left_out(tmp_path: Path) -> None:
    log = FlowLog(tmp_path / "flow.log", 1)
    log.add(flow_to("sink", 5), epoch=0)
    log.close()
    written = (tmp_path / "flow.log").read_text()
    log.add(flow_to("sink", 9), epoch=0)
    log.write()
    log.close()
    assert (tmp_path / "flow.log").read_text() == written


def test_the_log_file_is_in_the_order_in_which_sinks_finished(tmp_path: Path) -> None:
    log = FlowLog(tmp_path / "flow.log", 100)
    for sink, done in (("slow", 9), ("quick", 5)):
        log.add(flow_to(sink, done), epoch=0)
    log.close()
    assert (tmp_path / "flow.log").read_text() == (
        "1:\n(source,0,1000) -> (quick,2000,5000) \n\n2:\n(source,0,1000) -> (slow,2000,9000) \n\n"
    )


def test_a_tracker_logs_the_runs_of_its_block(tmp_path: Path) -> None:
    app = App()
    with Tracker(app, filename=str(tmp_path / "flow.log"), num_start_messages_to_skip=0) as tracker:
        app.run()
    content = (tmp_path / "flow.log").read_text()
    assert content
    app.run()
    assert tracker.statistics.operator("source").count == 5
    assert (tmp_path / "flow.log").read_text() == content


def test_what_counts_is_set_after_a_tracker_was_made() -> None:
    """Of latencies of 1 to 5 ms, the first, the last and those of less than 3 ms are left out."""
    app = App()
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


def test_variables_ask_for_files_of_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLOSCAN_FLOW_TRACKING_LOG_FILE", str(tmp_path / "flow.log"))
    monkeypatch.setenv("HOLOSCAN_ENABLE_GXF_JOB_STATISTICS", "1")
    monkeypatch.setenv("HOLOSCAN_GXF_JOB_STATISTICS_PATH", str(tmp_path / "jobs.json"))
    app = App()
    app.run()
    app.run()
    for name in ("", "-2"):
        groups = [
            group for group in (tmp_path / f"flow{name}.log").read_text().split("\n\n") if group.strip()
        ]
        names = [
            [entry.split(",")[0].strip("( ") for entry in group.split("\n")[1].split("->")]
            for group in groups
        ]
        assert names == [["source", "middle", "sink"]] * 5
        figures = json.loads((tmp_path / f"jobs{name}.json").read_text())
        assert [each["count"] for each in figures["operators"]] == [5, 5, 5]


@pytest.mark.parametrize("both", [False, True])
def test_a_variable_asks_for_ranges(both: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[str] = []
    domain = SimpleNamespace(
        get_event_attributes=lambda message, payload: SimpleNamespace(message=message),
        push_range=lambda attributes: ranges.append(attributes.message),
        pop_range=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(get_domain=lambda name: domain))
    monkeypatch.setenv("HOLOSCAN_ENABLE_PROFILE", "1")
    if both:
        monkeypatch.setenv("HEADRACE_NVTX", "1")
    App().run()
    assert sorted(ranges) == ["middle"] * 5 + ["sink"] * 5 + ["source"] * 5
    monkeypatch.setenv("HOLOSCAN_ENABLE_PROFILE", "0")
    monkeypatch.delenv("HEADRACE_NVTX", raising=False)
    App().run()
    assert len(ranges) == 15
