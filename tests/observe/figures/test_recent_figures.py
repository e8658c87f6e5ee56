"""The figures of the last seconds: rates, percentiles, and the intervals of the time line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.observe import (
    Arrivals,
    Computes,
    Flows,
    GpuWork,
    OperatorInfo,
    Path,
    QueueInfo,
    RunInfo,
    StreamInfo,
    WorkersInfo,
)
from headrace.observe.figures.recent_figures import CELL, RecentFigures

MS, SECOND = 1_000_000, 1_000_000_000


def run_of(operator: OperatorInfo) -> RunInfo:
    return RunInfo("test", [operator], started=0, epoch=0, is_virtual=True)


def computes_of(operator: OperatorInfo, starts: Any, length: int, **details: Any) -> Computes:
    started = np.asarray(starts, np.int64)
    settings: dict[str, Any] = {
        "threads": np.zeros(len(started), np.int64),
        "is_timed": np.ones(len(started), np.bool_),
        "arrivals": [],
        "gpu": [],
        **details,
    }
    return Computes(operator, 0, started, started + length, **settings)


@pytest.fixture
def operator() -> OperatorInfo:
    return OperatorInfo("it", 0)


def test_rates_and_percentiles_are_those_of_the_last_seconds(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    figures.add_computes(computes_of(operator, np.arange(100) * 10 * MS, 9 * MS))
    figures.add_computes(computes_of(operator, 10 * SECOND + np.arange(200) * 10 * MS, MS))
    found = figures.operator(operator, 12 * SECOND)
    assert found["count"] == 300
    assert found["rate"] == pytest.approx(100, rel=0.03)
    assert found["busy"] == pytest.approx(0.1, rel=0.03)
    assert found["host"] == [1000.0, 1000.0], "the slow ones are forgotten"


def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    for number in range(1, 101):
        figures.add_computes(computes_of(operator, [number * MS], number * 1000))
    assert figures.operator(operator, SECOND)["host"] == [50.0, 99.0]


def test_before_the_window_is_over_the_rate_is_that_of_the_time_so_far(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    figures.add_computes(computes_of(operator, np.arange(100) * 10 * MS, MS))
    assert figures.operator(operator, SECOND)["rate"] == pytest.approx(100, rel=0.03)


def test_the_rate_of_an_operator_that_computes_no_more_goes_down(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    figures.add_computes(computes_of(operator, np.arange(100) * 10 * MS, MS))
    assert figures.operator(operator, 2 * SECOND)["rate"] == pytest.approx(100, rel=0.03)
    assert figures.operator(operator, 4 * SECOND)["rate"] == pytest.approx(25, rel=0.03)
    assert figures.operator(operator, 9 * SECOND)["rate"] == 0
    assert figures.operator(operator, 9 * SECOND)["host"] is None


def test_computes_whose_work_was_timed_stand_for_the_others(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    is_timed = np.arange(100) % 4 == 0
    timed = np.flatnonzero(is_timed)
    stream = StreamInfo(operator, 0, 1, 0)
    work = GpuWork(stream, timed, timed * 10 * MS, timed * 10 * MS + 5 * MS)
    figures.add_computes(computes_of(operator, np.arange(100) * 10 * MS, MS, is_timed=is_timed, gpu=[work]))
    found = figures.operator(operator, SECOND)
    assert found["gpu"] == [5000.0, 5000.0]
    assert found["gpu_busy"] == pytest.approx(0.5, rel=0.03)


def test_few_intervals_are_sent_as_they_are_and_once(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    threads = np.array([7, 9, 7])
    figures.add_computes(computes_of(operator, [0, 10 * MS, 20 * MS], 2 * MS, threads=threads))
    (entry,) = figures.pieces_after(0)
    assert entry == [0, 0, [0, 2000, 100, 0, 10_000, 2000, 100, 1, 20_000, 2000, 100, 0]]
    assert list(figures.pieces_after(figures.last_piece)) == []


def test_many_intervals_are_summed_up_in_cells(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    figures.add_computes(computes_of(operator, np.arange(1000) * 250_000, 125_000))
    (entry,) = figures.pieces_after(0)
    starts, lengths, fills = (entry[2][at::4] for at in range(3))
    assert len(starts) == 1000 * 250_000 // CELL
    assert set(lengths) == {CELL // 1000}
    assert set(fills) == {50}


def test_work_that_was_timed_fills_the_time_line_for_work_that_was_not(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    starts = np.arange(4000) * MS // 4  # 4,000 a second, of which a fourth is timed
    is_timed = np.arange(4000) % 4 == 0
    timed = np.flatnonzero(is_timed)
    work = GpuWork(StreamInfo(operator, 0, 1, 0), timed, starts[timed], starts[timed] + MS // 5)
    figures.add_computes(computes_of(operator, starts, MS // 10, is_timed=is_timed, gpu=[work]))
    ((_, _, host), (_, is_gpu, device)) = figures.pieces_after(0)
    assert is_gpu
    assert np.mean(host[2::4]) == pytest.approx(40, abs=1)
    assert np.mean(device[2::4]) == pytest.approx(80, abs=1)
    assert np.diff(device[0::4]).tolist() == [CELL // 1000] * (len(device) // 4 - 1), "there is no gap"


def test_old_intervals_are_forgotten(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    figures.add_computes(computes_of(operator, [0], MS))
    figures.add_computes(computes_of(operator, [9 * SECOND], MS))
    figures.forget(10 * SECOND)
    assert len(list(figures.pieces_after(0))) == 1


def test_queues_and_paths_have_figures(operator: OperatorInfo) -> None:
    queue = QueueInfo(operator, "in", 1, 0)
    operator.inputs.append(queue)
    figures = RecentFigures(run_of(operator))
    assert figures.wait(queue, 0) is None
    received = np.array([5 * MS, 15 * MS])
    zeros = np.zeros(2, np.int64)
    arrivals = Arrivals(queue, zeros, zeros, zeros, zeros, received - [MS, 3 * MS], received, zeros)
    figures.add_computes(computes_of(operator, received, MS, arrivals=[arrivals]))
    assert figures.wait(queue, SECOND) == [1000.0, 3000.0]
    times = np.stack([received, received, received, received + 2 * MS], axis=1)
    is_timed = np.array([True, False])
    path = Path((operator,))
    figures.add_flows([Flows(path, (), zeros[:, None], times, received, is_timed)])
    (found,) = figures.paths(SECOND)
    assert found["names"] == ["it"]
    assert found["count"] == 2, "one of them without a known end"
    assert found["latency"] == [2000.0, 2000.0]


def test_what_is_old_is_forgotten_though_nobody_asks(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    path = Path((operator,))
    for second in range(100):
        started = np.array([second * SECOND])
        figures.add_computes(computes_of(operator, started, MS))
        times = np.stack([started, started + MS], axis=1)
        figures.add_flows([Flows(path, (), np.zeros((1, 1), np.int64), times, started, np.ones(1, np.bool_))])
    assert len(list(figures.pieces_after(0))) < 10
    assert len(figures._operators[operator]._batches) < 10
    assert len(figures._paths[path]._batches) < 10
    assert figures.paths(99 * SECOND)[0]["count"] == 100


def test_queues_workers_and_what_is_saturated_have_shares(operator: OperatorInfo) -> None:
    queue = QueueInfo(operator, "in", 4, 0)
    operator.inputs.append(queue)
    other = OperatorInfo("other", 1)
    run = RunInfo("test", [operator, other], started=0, epoch=0, is_virtual=True)
    run.workers = [WorkersInfo("workers", 2, [operator, other])]
    figures = RecentFigures(run)
    assert (figures.workers(0), figures.saturated(0)) == ([], [])
    # One computes for 96 of 100 ms on one thread, the other for 80 on two; messages wait for 180 ms each.
    starts = np.arange(40) * 100 * MS
    zeros = np.zeros(40, np.int64)
    arrivals = Arrivals(queue, zeros, zeros, zeros, zeros, starts - 180 * MS, starts, zeros)
    figures.add_computes(computes_of(operator, starts, 96 * MS, threads=zeros + 7, arrivals=[arrivals]))
    figures.add_computes(computes_of(other, starts, 80 * MS, threads=np.arange(40) % 2 + 8))
    now = 4 * SECOND
    assert figures.queue_busy(queue, now) == pytest.approx(180 / 400, rel=0.03)
    assert figures.workers(now) == pytest.approx([0.96, 0.4, 0.4], rel=0.1)
    assert figures.saturated(now) == ["it computes 98% of the time"]


def test_workers_are_saturated_where_no_operator_is(operator: OperatorInfo) -> None:
    other = OperatorInfo("other", 1)
    run = RunInfo("test", [operator, other], started=0, epoch=0, is_virtual=True)
    run.workers = [WorkersInfo("workers", 1, [operator, other])]
    figures = RecentFigures(run)
    for one in (operator, other):
        figures.add_computes(computes_of(one, np.arange(40) * 100 * MS, 49 * MS))
    assert figures.saturated(4 * SECOND) == ["workers: the only worker computes 100% of the time"]


@pytest.mark.parametrize(("shift", "share", "named"), [(0, 0.49, 0), (50, 0.98, 1)])
def test_a_slice_has_the_share_of_the_time_in_which_any_work_is_on_it(
    operator: OperatorInfo, shift: int, share: float, named: int
) -> None:
    other = OperatorInfo("other", 1)
    figures = RecentFigures(RunInfo("test", [operator, other], started=0, epoch=0, is_virtual=True))
    for one, begin in ((operator, 0), (other, shift * MS)):
        one.slice = "live"
        starts = np.arange(40) * 100 * MS + begin
        work = GpuWork(StreamInfo(one, 0, 1, 0), np.arange(40), starts, starts + 49 * MS)
        figures.add_computes(computes_of(one, starts, MS, gpu=[work]))
    now = 4 * SECOND
    assert figures.slices(now) == {"0:live": pytest.approx(share, rel=0.03)}
    assert figures.saturated(now) == ["GPU 0, slice live works 100% of the time"][:named]
    assert figures.slices(60 * SECOND) == {"0:live": 0}


def test_an_operator_is_marked_as_saturated_once_it_has_computed_some_times(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    figures.add_computes(computes_of(operator, np.arange(9) * 100 * MS, 99 * MS))
    assert not figures.operator(operator, SECOND)["is_saturated"]
    figures.add_computes(computes_of(operator, np.arange(9, 20) * 100 * MS, 99 * MS))
    assert figures.operator(operator, 2 * SECOND)["is_saturated"]
    figures.add_computes(computes_of(operator, np.arange(80, 90) * 100 * MS, 50 * MS))
    assert not figures.operator(operator, 9 * SECOND)["is_saturated"]


def test_the_newest_is_also_the_end_of_work_on_the_device(operator: OperatorInfo) -> None:
    figures = RecentFigures(run_of(operator))
    stream = StreamInfo(operator, 0, 1, 0)
    work = GpuWork(stream, np.array([0]), np.array([2 * MS]), np.array([9 * MS]))
    figures.add_computes(computes_of(operator, [MS], MS, gpu=[work]))
    assert figures.newest == 9 * MS
    figures.add_computes(computes_of(operator, [10 * MS], MS))
    assert figures.newest == 11 * MS
