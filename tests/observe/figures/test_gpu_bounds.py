"""What figures make of times on the device that are bounds, and of single kernels."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from headrace.observe.events.cupti_activity import SHOWN, Activity
from headrace.observe.events.records import (
    Computes,
    Flows,
    GpuWork,
    OperatorInfo,
    Path,
    QueueInfo,
    RunInfo,
    StreamInfo,
)
from headrace.observe.figures.critical_path import divide
from headrace.observe.figures.recent_computes import RecentComputes
from headrace.observe.figures.run_figures import ShowsFigures
from tests.observe.nodes import computes_of, idle_node

MS = 1_000_000


def run_of(*operators: OperatorInfo, kernels: str = "") -> RunInfo:
    return RunInfo("test", list(operators), started=0, epoch=0, is_virtual=True, kernels=kernels)


def bounded(operator: OperatorInfo, exact: list[bool]) -> Computes:
    """Return computes of 6 ms every 10 ms, whose work ends 2 ms later, and began with them unless it is exact."""
    started = np.arange(len(exact)) * 10 * MS
    ended, is_exact = started + 6 * MS, np.array(exact)
    began = np.where(is_exact, ended, started)
    compute = np.arange(len(exact))
    operator.streams.append(StreamInfo(operator, 0, 1, 0))
    work = GpuWork(operator.streams[0], compute, began, ended + 2 * MS, is_exact, ended)
    return computes_of(operator, started, 6 * MS, gpu=[work])


def statistics_of(exact: list[bool]) -> Any:
    watcher, operator = ShowsFigures().figures, OperatorInfo("it", 0)
    watcher.begin(run_of(operator))
    operator.node = idle_node()
    watcher.computed(bounded(operator, exact))
    return watcher.snapshot()


def test_without_an_exact_time_there_is_a_bound() -> None:
    statistics = statistics_of([False] * 100)
    shown = statistics.operator("it").gpu
    assert (shown.count, shown.p50, shown.is_bound) == (100, 8 * MS, True)
    assert "≤ 8.000" in str(statistics)
    assert json.loads(statistics.to_json())["operators"][0]["gpu"]["is_bound"]


@pytest.mark.parametrize(("exact", "is_bound"), [(9, True), (10, False)])
def test_a_tenth_of_exact_times_is_enough(exact: int, is_bound: bool) -> None:
    shown = statistics_of([place < exact for place in range(100)]).operator("it").gpu
    assert shown.is_bound == is_bound
    assert (shown.count, shown.max) == ((100, 8 * MS) if is_bound else (exact, 2 * MS))


def test_the_device_is_busy_for_as_long_as_it_certainly_worked() -> None:
    statistics = statistics_of([False] * 100)
    assert statistics.operator("it").gpu_busy == pytest.approx(0.2, rel=0.01)
    assert statistics.slices[0].busy == pytest.approx(0.2, rel=0.01)
    assert statistics.saturated == ()


def test_time_in_which_the_device_may_have_waited_for_the_host_is_the_host_s() -> None:
    source, operator = OperatorInfo("source", 0), OperatorInfo("it", 1)
    computes = RecentComputes()
    computes.add(bounded(operator, [False]))
    queues, zeros = (QueueInfo(operator, "in", 1, 0),), np.zeros((1, 2), np.int64)
    times = np.array([[0, 0, 0, 8 * MS]])
    flows = Flows(Path((source, operator)), queues, zeros, times, zeros[:, 0], np.ones(1, np.bool_))
    parts = divide(flows, computes).breakdown(0).parts
    assert [(part.kind, part.duration) for part in parts] == [("host", 6 * MS), ("gpu", 2 * MS)]


def test_kernels_that_overlap_count_once() -> None:
    watcher, operator = ShowsFigures().figures, OperatorInfo("it", 0)
    operator.node = idle_node()
    watcher.begin(run_of(operator, kernels=SHOWN))
    watcher.computed(bounded(operator, [False, True]))
    times = [(0, 1, 4), (0, 3, 5), (0, 6, 7), (1, 10, 12)]
    kernels = [
        Activity("kernel", 0, 1, began * MS, ended * MS, {}, 0, compute) for compute, began, ended in times
    ]
    watcher.ran([*kernels[:2], Activity("of nobody", 0, 1, 0, 9 * MS, {})])
    watcher.ran(kernels[2:])  # CUPTI delivers as it likes
    watcher.end(None)
    shown = watcher.snapshot().operator("it")
    assert (shown.kernels.min, shown.kernels.max, shown.kernels.count) == (2 * MS, 5 * MS, 2)
    assert (shown.gpu.min, shown.gpu.max, shown.gpu.count) == (2 * MS, 6 * MS, 2)
    assert not shown.gpu.is_bound
