"""The figures of the last seconds: rates, percentiles, and the intervals of the time line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace.observe import (
    Arrivals,
    Flows,
    OperatorInfo,
    Path,
    QueueInfo,
    RunInfo,
    StreamInfo,
    WorkersInfo,
)
from headrace.observe.dashboard.time_line import CELL, TimeLine
from headrace.observe.figures.run_figures import RunFigures, ShowsFigures
from tests.observe.nodes import computes_of, exact_work, idle_node

MS, SECOND = 1_000_000, 1_000_000_000
WINDOW = 5 * SECOND


class Shown(ShowsFigures):
    window = WINDOW
    wants_threads = True


def operator_of(name: str, index: int) -> OperatorInfo:
    return OperatorInfo(name, index, node=idle_node())


def queue_of(operator: OperatorInfo, limit: int) -> QueueInfo:
    counts = SimpleNamespace(undelivered=1, dropped=0, discarded=0)
    queue = QueueInfo(operator, "in", limit, 0, queue=counts)
    operator.inputs.append(queue)
    return queue


def figures_of(*operators: OperatorInfo, workers: int = 0) -> RunFigures:
    run = RunInfo("test", list(operators), started=0, epoch=0, is_virtual=True)
    if workers:
        run.workers = [WorkersInfo("workers", workers, list(operators))]
    figures = Shown().figures
    figures.begin(run)
    return figures


def intervals_after(line: TimeLine, number: int) -> list[Any]:
    return line.pieces_after(number)[1]


@pytest.fixture
def operator() -> OperatorInfo:
    return operator_of("it", 0)


def test_rates_and_percentiles_are_those_of_the_last_seconds(operator: OperatorInfo) -> None:
    figures = figures_of(operator)
    figures.computed(computes_of(operator, np.arange(100) * 10 * MS, 9 * MS))
    figures.computed(computes_of(operator, 10 * SECOND + np.arange(200) * 10 * MS, MS))
    found = figures.snapshot(WINDOW, 12 * SECOND).operator("it")
    assert found.count == 300
    assert found.rate == pytest.approx(100, rel=0.03)
    assert found.busy == pytest.approx(0.04), "of 5 s, the first three of which it did not compute"
    assert (found.host.p50, found.host.p99) == (MS, MS), "the slow ones are forgotten"


def test_a_message_that_is_being_dropped_is_not_counted_as_waiting(operator: OperatorInfo) -> None:
    class Dropping(deque[int]):
        held = 0

        @property
        @contextmanager
        def lock(self) -> Iterator[None]:
            """The producer has released it as soon as the older message is gone."""
            self.popleft()
            yield

    assert QueueInfo(operator, "in", 1, 0, queue=Dropping([1, 2])).depth == 1


@pytest.mark.parametrize(("period", "rate"), [(SECOND, 1.0), (2 * SECOND, 0.5), (400 * MS, 2.5)])
def test_a_slow_rate_is_that_of_its_intervals(operator: OperatorInfo, period: int, rate: float) -> None:
    figures = figures_of(operator)
    figures.computed(computes_of(operator, np.arange(20) * period, MS))
    for part in range(10):  # wherever in a period somebody looks
        now = 18 * period + part * period // 10 + MS
        assert figures.snapshot(WINDOW, now).operator("it").rate == pytest.approx(rate)


def test_one_compute_in_the_window_is_one_in_the_time_that_it_has(operator: OperatorInfo) -> None:
    figures = figures_of(operator)
    figures.computed(computes_of(operator, [0], MS))
    assert figures.snapshot(WINDOW, 2 * SECOND).operator("it").rate == 0.5
    figures.computed(computes_of(operator, [8 * SECOND], MS))
    assert figures.snapshot(WINDOW, 10 * SECOND).operator("it").rate == 0.2


def test_what_is_not_known_of_all_operators_is_not_in_the_window() -> None:
    fast, behind = operator_of("fast", 0), operator_of("behind", 1)
    figures = figures_of(fast, behind)
    figures.observation = SimpleNamespace(known_until=6 * SECOND, watchers=(), catch_up=lambda: None)  # type: ignore[assignment]
    for second in range(10):
        batch = computes_of(fast, second * SECOND + np.arange(25) * 40 * MS, 20 * MS)
        figures.computed(batch)
        figures.resolved()
    figures.computed(computes_of(behind, np.arange(150) * 40 * MS, 20 * MS))  # to 6 s
    found = figures.snapshot(WINDOW, 6 * SECOND)
    assert [each.rate for each in found.operators] == pytest.approx([25, 25])
    assert [each.busy for each in found.operators] == pytest.approx([0.5, 0.5], rel=0.01)


def test_the_rate_of_an_operator_that_computes_no_more_goes_down(operator: OperatorInfo) -> None:
    figures = figures_of(operator)
    figures.computed(computes_of(operator, np.arange(100) * 10 * MS, MS))
    assert figures.snapshot(WINDOW, SECOND).operator("it").rate == pytest.approx(100, rel=0.03)
    assert figures.snapshot(WINDOW, 2 * SECOND).operator("it").rate == pytest.approx(50, rel=0.03)
    assert figures.snapshot(WINDOW, 4 * SECOND).operator("it").rate == pytest.approx(25, rel=0.03)
    assert figures.snapshot(WINDOW, 9 * SECOND).operator("it").rate == 0
    assert figures.snapshot(WINDOW, 9 * SECOND).operator("it").host.count == 0


def test_computes_whose_work_was_timed_stand_for_the_others(operator: OperatorInfo) -> None:
    figures = figures_of(operator)
    is_timed = np.arange(100) % 4 == 0
    timed = np.flatnonzero(is_timed)
    stream = StreamInfo(operator, 0, 1, 0)
    work = exact_work(stream, timed, timed * 10 * MS, timed * 10 * MS + 5 * MS)
    figures.computed(computes_of(operator, np.arange(100) * 10 * MS, MS, is_timed=is_timed, gpu=[work]))
    found = figures.snapshot(WINDOW, SECOND).operator("it")
    assert (found.gpu.p50, found.gpu.p99) == (5 * MS, 5 * MS)
    assert found.gpu_busy == pytest.approx(0.5, rel=0.03)


def test_few_intervals_are_sent_as_they_are_and_once(operator: OperatorInfo) -> None:
    line = TimeLine(0)
    threads = np.array([7, 9, 7])
    line.add(computes_of(operator, [0, 10 * MS, 20 * MS], 2 * MS, threads=threads))
    (entry,) = intervals_after(line, 0)
    assert entry == [0, 0, [0, 2000, 100, 0, 10_000, 2000, 100, 1, 20_000, 2000, 100, 0]]
    assert intervals_after(line, line.last_piece) == []


def test_many_intervals_are_summed_up_in_cells(operator: OperatorInfo) -> None:
    line = TimeLine(0)
    line.add(computes_of(operator, np.arange(1000) * 250_000, 125_000))
    (entry,) = intervals_after(line, 0)
    starts, lengths, fills = (entry[2][at::4] for at in range(3))
    assert len(starts) == 1000 * 250_000 // CELL
    assert set(lengths) == {CELL // 1000}
    assert set(fills) == {50}


def test_work_that_was_timed_fills_the_time_line_for_work_that_was_not(operator: OperatorInfo) -> None:
    line = TimeLine(0)
    starts = np.arange(4000) * MS // 4  # 4,000 a second, of which a fourth is timed
    is_timed = np.arange(4000) % 4 == 0
    timed = np.flatnonzero(is_timed)
    work = exact_work(StreamInfo(operator, 0, 1, 0), timed, starts[timed], starts[timed] + MS // 5)
    line.add(computes_of(operator, starts, MS // 10, is_timed=is_timed, gpu=[work]))
    ((_, _, host), (_, is_gpu, device)) = intervals_after(line, 0)
    assert is_gpu
    assert np.mean(host[2::4]) == pytest.approx(40, abs=1)
    assert np.mean(device[2::4]) == pytest.approx(80, abs=1)
    assert np.diff(device[0::4]).tolist() == [CELL // 1000] * (len(device) // 4 - 1), "there is no gap"


def test_old_intervals_are_forgotten(operator: OperatorInfo) -> None:
    line = TimeLine(0)
    line.add(computes_of(operator, [0], MS))
    line.add(computes_of(operator, [9 * SECOND], MS))
    line.forget(10 * SECOND)
    assert len(intervals_after(line, 0)) == 1


def test_queues_and_paths_have_figures(operator: OperatorInfo) -> None:
    queue = queue_of(operator, 1)
    figures = figures_of(operator)
    assert figures.snapshot(WINDOW, 0).queue("it.in").wait.count == 0
    received = np.array([5 * MS, 15 * MS])
    zeros = np.zeros(2, np.int64)
    arrivals = Arrivals(queue, zeros, zeros, zeros, zeros, received - [MS, 3 * MS], received, zeros)
    figures.computed(computes_of(operator, received, MS, arrivals=[arrivals]))
    wait = figures.snapshot(WINDOW, SECOND).queue("it.in").wait
    assert (wait.p50, wait.p99) == (MS, 3 * MS)
    times = np.stack([received, received, received, received + 2 * MS], axis=1)
    is_timed = np.array([True, False])
    path = Path((operator,))
    figures.flowed([Flows(path, (), zeros[:, None], times, received, is_timed)])
    (found,) = figures.snapshot(WINDOW, SECOND).paths
    assert found.name == "it"
    assert found.count == 2, "one of them without a known end"
    assert (found.latency.count, found.latency.p50) == (1, 2 * MS)


def test_what_is_old_is_forgotten_though_nobody_asks(operator: OperatorInfo) -> None:
    figures, line = figures_of(operator), TimeLine(0)
    path = Path((operator,))
    for second in range(100):
        started = np.array([second * SECOND])
        figures.computed(computes_of(operator, started, MS))
        figures.resolved()
        line.add(computes_of(operator, started, MS))
        times = np.stack([started, started + MS], axis=1)
        figures.flowed([Flows(path, (), np.zeros((1, 1), np.int64), times, started, np.ones(1, np.bool_))])
    assert len(intervals_after(line, 0)) < 10
    assert len(figures.durations("host", operator)._recent) < 10
    assert len(figures.durations("latency", path)._recent) < 10
    assert figures.snapshot(WINDOW, 99 * SECOND).paths[0].count == 100


def test_queues_workers_and_what_is_saturated_have_shares(operator: OperatorInfo) -> None:
    queue = queue_of(operator, 4)
    other = operator_of("other", 1)
    figures = figures_of(operator, other, workers=2)
    assert ([*figures.threads(WINDOW, 0).values()], figures.snapshot(WINDOW, 0).saturated) == ([], ())
    # One computes for 96 of 100 ms on one thread, the other for 80 on two; messages wait for 180 ms each.
    starts = np.arange(40) * 100 * MS
    zeros = np.zeros(40, np.int64)
    arrivals = Arrivals(queue, zeros, zeros, zeros, zeros, starts - 180 * MS, starts, zeros)
    figures.computed(computes_of(operator, starts, 96 * MS, threads=zeros + 7, arrivals=[arrivals]))
    figures.computed(computes_of(other, starts, 80 * MS, threads=np.arange(40) % 2 + 8))
    now = 4 * SECOND
    assert figures.snapshot(WINDOW, now).queue("it.in").busy == pytest.approx(180 / 400, rel=0.03)
    assert [*figures.threads(WINDOW, now).values()] == pytest.approx([0.96, 0.4, 0.4], rel=0.1)
    assert figures.snapshot(WINDOW, now).saturated == ("it computes 96% of the time",)


@pytest.mark.parametrize(("shift", "share", "named"), [(0, 0.49, 0), (50, 0.98, 1)])
def test_a_slice_has_the_share_of_the_time_in_which_any_work_is_on_it(
    operator: OperatorInfo, shift: int, share: float, named: int
) -> None:
    other = operator_of("other", 1)
    figures = figures_of(operator, other)
    for one, begin in ((operator, 0), (other, shift * MS)):
        one.slice = "live"
        starts = np.arange(40) * 100 * MS + begin
        one.streams.append(StreamInfo(one, 0, 1, 0))
        work = exact_work(one.streams[0], np.arange(40), starts, starts + 49 * MS)
        figures.computed(computes_of(one, starts, MS, gpu=[work]))
    now = 4 * SECOND
    (found,) = figures.snapshot(WINDOW, now).slices
    assert (found.key, found.busy) == ("0:live", pytest.approx(share, rel=0.03))
    assert figures.snapshot(WINDOW, now).saturated == ("GPU 0, slice live works 98% of the time",)[:named]
    assert figures.snapshot(WINDOW, 60 * SECOND).slices[0].busy == 0


def test_an_operator_is_marked_as_saturated_once_it_has_computed_some_times(operator: OperatorInfo) -> None:
    figures = figures_of(operator)
    figures.computed(computes_of(operator, np.arange(9) * 100 * MS, 99 * MS))
    assert not figures.snapshot(WINDOW, SECOND).operator("it").is_saturated
    figures.computed(computes_of(operator, np.arange(9, 20) * 100 * MS, 99 * MS))
    assert figures.snapshot(WINDOW, 2 * SECOND).operator("it").is_saturated
    figures.computed(computes_of(operator, np.arange(80, 90) * 100 * MS, 50 * MS))
    assert not figures.snapshot(WINDOW, 9 * SECOND).operator("it").is_saturated


def test_the_newest_is_also_the_end_of_work_on_the_device(operator: OperatorInfo) -> None:
    figures = figures_of(operator)
    stream = StreamInfo(operator, 0, 1, 0)
    work = exact_work(stream, np.array([0]), np.array([2 * MS]), np.array([9 * MS]))
    figures.computed(computes_of(operator, [MS], MS, gpu=[work]))
    assert figures.newest == 9 * MS
    figures.computed(computes_of(operator, [10 * MS], MS))
    assert figures.newest == 11 * MS
