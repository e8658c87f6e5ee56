"""How busy operators, queues, workers and slices are, and what is saturated."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.gpu import sim
from headrace.observe import (
    OperatorInfo,
    RunInfo,
)
from headrace.observe.events import recorder
from headrace.observe.events.gpu_timing import ComputeTimer
from headrace.observe.figures.distribution import Coverage
from headrace.observe.figures.run_figures import ShowsFigures
from headrace.resources import CudaGreenContext, CudaGreenContextPool
from tests.gpu.kernels import spin
from tests.harness.application import App, greedy, multi_thread
from tests.harness.operators import Step, source
from tests.observe.figures.test_statistics import MS, chain, takes, tracked
from tests.observe.nodes import computes_of, idle_node


def camera_and_detector(app: Any, period: float, detector: float) -> None:
    camera = source(app, range(100), PeriodicCondition(app, int(period * MS)), name="camera")
    app.add_flow(camera, Step(app, inputs=["in"], body=takes(detector), name="detector"))


def test_an_operator_that_is_too_slow_for_its_source_is_named_as_saturated() -> None:
    app = App(lambda app: camera_and_detector(app, 5, 6), greedy)
    tracker = app.track()
    app.run()
    statistics = tracker.statistics
    assert statistics.operator("detector").busy == pytest.approx(1, abs=0.01)
    assert statistics.operator("camera").busy == 0
    assert statistics.saturated == ("detector computes 100% of the time",)
    assert "saturated: detector computes 100% of the time" in str(statistics).splitlines()
    assert json.loads(statistics.to_json())["saturated"] == ["detector computes 100% of the time"]


def test_a_pipeline_with_time_left_is_not_called_saturated() -> None:
    app = App(lambda app: camera_and_detector(app, 10, 6), greedy)
    tracker = app.track()
    app.run()
    assert tracker.statistics.operator("detector").busy == pytest.approx(0.6, abs=0.01)
    assert tracker.statistics.saturated == ()
    assert "saturated" not in str(tracker.statistics)


def test_what_runs_a_few_times_is_not_called_saturated() -> None:
    statistics = tracked(chain(1, 9, count=9, period=1))
    assert statistics.operator("b").busy == pytest.approx(0.9, abs=0.01)
    assert statistics.saturated == ()
    assert tracked(chain(1, 9, count=10, period=1)).saturated


def test_workers_are_saturated_where_no_operator_is() -> None:
    statistics = tracked(chain(3, 3, 4, count=20, period=10))
    (workers,) = statistics.workers
    assert (workers.name, workers.count, workers.operators) == ("workers", 1, ("a", "b", "c"))
    assert workers.busy == pytest.approx(1)
    assert [each.busy for each in statistics.operators] == pytest.approx([0.3, 0.3, 0.4])
    assert statistics.saturated == ("workers: the only worker computes 100% of the time",)


def test_the_workers_of_a_pool_have_a_share_of_their_own() -> None:
    def compose(app: Any) -> None:
        chain(1, 2, 5, 1, count=20, period=10)(app)
        pool = app.make_thread_pool("pool", 2)
        operators = {operator.name: operator for operator in app.graph}
        pool.add([operators["b"], operators["c"]], pin_operator=False)
        pool.add(operators["d"], pin_operator=True)

    app = App(compose, multi_thread)
    tracker = app.track()
    app.run()
    found = {each.name: (each.count, each.operators) for each in tracker.statistics.workers}
    assert found == {"workers": (3, ("a",)), "pool, d": (1, ("d",)), "pool": (2, ("b", "c"))}


def test_a_queue_has_the_share_of_its_places_that_are_taken() -> None:
    # Four messages at once, every 40 ms; each takes 10 ms: 3 + 2 + 1 wait for 10 ms each.
    def compose(app: Any) -> None:
        burst = Step(
            app,
            CountCondition(app, 10),
            PeriodicCondition(app, 40 * MS),
            outputs=[("out", {"size": 4})],
            body=lambda self, i, o: [o.emit(n, "out") for n in range(4)],
            name="burst",
        )
        app.add_flow(burst, Step(app, inputs=["in"], body=takes(10), name="slow"), size=4)

    app = App(compose, greedy)
    tracker = app.track()
    app.run()
    expected = 60 / (40 * 4)
    assert tracker.statistics.queue("slow.in").busy == pytest.approx(expected)


def launches(milliseconds: float) -> Any:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if self.spec.inputs:
            op_input.receive("in")
        stream = context.allocate_cuda_stream("own")
        config = sim.LaunchConfig(grid=4, block=1024)
        sim.launch(stream.stream, config, spin.on(sim.Device(0)), int(milliseconds * MS))
        if self.spec.outputs:
            op_output.set_cuda_stream(stream, "out")
            op_output.emit(self.ticks, "out")

    return body


def test_a_slice_is_busy_while_any_work_is_on_it() -> None:
    # Two operators work for 4 ms of each 10 ms on one slice, at the same time; one for 3 ms on another.
    def compose(app: Any) -> None:
        pool = CudaGreenContextPool(app, sms_per_partition={"live": 16, "other": 16})
        for name, share, length in (("one", "live", 4), ("two", "live", 4), ("three", "other", 3)):
            step = Step(
                app,
                CountCondition(app, 20),
                PeriodicCondition(app, 10 * MS),
                CudaGreenContext(app, pool, share, name=f"share of {name}"),
                body=launches(length),
                name=name,
            )
            app.add_operator(step)

    with sim.Machine("h200"):
        app = App(compose)
        tracker = app.track()
        app.run()
    statistics = tracker.statistics
    found = {each.name: (each.sm_count, each.operators) for each in statistics.slices}
    assert found == {"GPU 0, slice live": (16, ("one", "two")), "GPU 0, slice other": (16, ("three",))}
    live, other = (each.busy for each in statistics.slices)
    assert (live, other) == pytest.approx((0.41, 0.31), abs=0.03)
    assert statistics.operator("one").gpu_busy == pytest.approx(live, abs=0.01)
    assert ["GPU", "0,", "slice", "live", "16", "41%"] in [
        line.split() for line in str(statistics).splitlines()
    ]


def test_a_saturated_slice_is_named_where_no_operator_is() -> None:
    # On one stream each, one after the other: 5 ms of 10 ms for each of two.
    def compose(app: Any) -> None:
        first = Step(
            app,
            CountCondition(app, 20),
            PeriodicCondition(app, 10 * MS),
            outputs=["out"],
            body=launches(5),
            name="first",
        )

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            config = sim.LaunchConfig(grid=4, block=1024)
            sim.launch(stream.stream, config, spin.on(sim.Device(0)), 5 * MS)

        app.add_flow(first, Step(app, inputs=["in"], body=body, name="second"))

    with sim.Machine("h200"):
        app = App(compose)
        tracker = app.track()
        app.run()
    statistics = tracker.statistics
    assert statistics.operator("first").gpu_busy == pytest.approx(0.5, abs=0.03)
    assert statistics.saturated == ("GPU 0, all SMs works 100% of the time",)


def test_shares_skipped_errors_and_restarts_are_shown_to_prometheus_and_in_the_table() -> None:
    def compose(app: Any) -> None:
        def flaky(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            if self.ticks % 2:
                raise ValueError("odd")

        camera = source(app, range(10), PeriodicCondition(app, 10 * MS))
        for name, on_error in (
            ("skips", "skip"),
            ("restarts", {"restart": 9}),
            ("retries", {"retry": 1}),
            ("letters", {"dead_letter": "failed"}),
        ):
            app.add_flow(camera, Step(app, inputs=["in"], body=flaky, name=name, on_error=on_error))
        app.add_flow(camera, Step(app, inputs=["in"], body=takes(2), name="works", deadline="1ms"))

    statistics = tracked(compose)
    assert (statistics.operator("retries").retries, statistics.operator("letters").dead_letters) == (10, 5)
    assert statistics.operator("works").stuck == 10
    assert (statistics.operator("skips").skipped_errors, statistics.operator("skips").restarts) == (5, 0)
    assert statistics.operator("restarts").restarts == 5
    text = statistics.to_prometheus().splitlines()
    for line in (
        'headrace_skipped_errors_total{application="App",operator="skips"} 5.0',
        'headrace_skipped_errors_total{application="App",operator="works"} 0.0',
        'headrace_restarts_total{application="App",operator="restarts"} 5.0',
        'headrace_retries_total{application="App",operator="retries"} 10.0',
        'headrace_dead_letters_total{application="App",operator="letters"} 5.0',
        'headrace_stuck_computes_total{application="App",operator="works"} 10.0',
    ):
        assert line in text
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text if line[0] != "#"}
    assert samples['headrace_operator_busy_ratio{application="App",operator="works"}'] == pytest.approx(
        20 / 92
    )
    assert samples['headrace_threads_busy_ratio{application="App",threads="workers"}'] == pytest.approx(
        20 / 92
    )
    assert samples['headrace_queue_busy_ratio{application="App",queue="works.in"}'] == 0
    assert "# TYPE headrace_operator_busy_ratio gauge" in text
    (head,) = [line for line in str(statistics).splitlines() if line.startswith("operator")]
    assert head.split("errors skipped")[1].split() == ["restarts", "retries", "dead", "letters", "stuck"]
    row = next(line for line in str(statistics).splitlines() if line.startswith("skips "))
    assert row.split()[-5:] == ["5", "0", "0", "0", "0"]
    assert "errors skipped" not in str(tracked(chain(1, 2)))


def test_coverage_is_the_length_of_the_union() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        coverage, covered = Coverage(), np.zeros(1200, bool)
        for _ in range(random.integers(1, 6)):
            starts = random.integers(0, 1000, random.integers(1, 40))
            ends = starts + random.integers(0, 40, len(starts))
            coverage.add(starts, ends)
            for start, end in zip(starts, ends, strict=True):
                covered[start:end] = True
            if random.integers(2):
                assert coverage.total() == covered.sum(), seed
        assert coverage.total() == covered.sum(), seed
        assert coverage.total(since=500) == covered[500:].sum(), seed


def test_coverage_takes_bounded_memory() -> None:
    coverage = Coverage()
    for block in range(20):
        starts = np.arange(10_000, dtype=np.int64) * 10 + block * 100_000
        coverage.add(starts, starts + 5)
    assert coverage.total() == 20 * 10_000 * 5
    assert len(coverage._starts) + sum(len(starts) for starts, _ in coverage._waiting) <= 16_384
    coverage.add(np.array([3, 1_999_990]), np.array([8, 1_999_999]))  # one of long ago, one within the last
    assert coverage.total() == 20 * 10_000 * 5 + 4
    assert coverage.total(since=1_990_000) == 1000 * 5 + 4, "not what was settled long ago"


def test_how_long_others_of_the_process_had_a_processor_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compute of which its thread ran for 2, and other threads for 5, while it waited."""
    thread, process = iter([100, 102]), iter([1000, 1007])
    monkeypatch.setattr(recorder, "thread_time_ns", lambda: next(thread))
    monkeypatch.setattr(recorder, "process_time_ns", lambda: next(process))
    node = recorder.NodeRecorder(OperatorInfo("a", 0), lambda: 0, ComputeTimer())
    node.noting_cpu_times(lambda *arguments: None)(None, None, None)
    assert node.facts == [0, recorder.CPU_TIME, 2, 5]


def test_of_a_few_computes_all_are_looked_at_and_of_many_some() -> None:
    """What waits in its computes is soon told from what works in them."""
    node = recorder.NodeRecorder(OperatorInfo("a", 0), lambda: 0, ComputeTimer())
    compute = node.around(node.noting_cpu_times(lambda *arguments: None))
    for _ in range(64):
        compute(None, None, None)
    assert node.facts[::4] == [*range(17), 32, 48]


def test_a_wait_for_the_lock_of_the_interpreter_is_told_from_other_waits_as_a_bound() -> None:
    """Computes of 10, of which the thread has the processor for 2 and others of the process for 5."""
    operator = OperatorInfo("a", 0, node=idle_node())
    run = RunInfo("app", [operator], 0, 0, False)
    watcher = ShowsFigures().figures
    watcher.begin(run)
    count = 10
    started = np.arange(count) * 20 * MS
    watcher.computed(
        computes_of(
            operator,
            started,
            10 * MS,
            cpu_time=np.full(count, 2 * MS),
            others_cpu_time=np.full(count, 5 * MS),
        )
    )
    statistics = watcher.snapshot()
    assert (statistics.operator("a").waits, statistics.operator("a").interpreter) == (0.8, 0.5)
    head, _, row = str(statistics).splitlines()[2:5]
    assert re.search("busy +waits +for the lock", head)
    assert re.search("80% +≤ 50%", row)
    assert (
        'headrace_operator_interpreter_ratio{application="app",operator="a"} 0.5'
        in statistics.to_prometheus()
    )
