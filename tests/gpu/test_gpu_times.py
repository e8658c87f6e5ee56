"""The times of work on the device, as an observation of a run finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, EventBasedScheduler, Operator, gpu
from headrace.observe import Computes, Flows, RunInfo, Tracker, Watcher, watch
from headrace.resources import CudaGreenContext, CudaGreenContextPool
from tests.gpu.kernels import spin

MILLISECOND = 1_000_000
FRAMES = 20


pytestmark = pytest.mark.usefixtures("of_this_process")


class Spins(Operator):
    """Launches a kernel of a known length on its stream."""

    def __init__(
        self, fragment: Any, *args: Any, milliseconds: float, after: str = "", **kwargs: Any
    ) -> None:
        self.nanoseconds = int(milliseconds * 1e6)
        self.inputs = [name for name in after.split(",") if name]
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        for name in self.inputs:
            spec.input(name)
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        for name in self.inputs:
            op_input.receive(name)
            stream = op_input.receive_cuda_stream(name)
            self.launch(stream)
        if not self.inputs:
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
            self.launch(stream)
        op_output.emit(1, "out")

    def launch(self, stream: Any) -> None:
        device = gpu.Device()
        gpu.launch(stream.stream, gpu.LaunchConfig(grid=1, block=32), spin.on(device), self.nanoseconds)


class Collects(Watcher):
    """Collects everything of one run."""

    def __init__(self) -> None:
        self.computes: list[Computes] = []
        self.flows: list[Flows] = []

    def begin(self, run: RunInfo) -> None:
        self.run = run

    def computed(self, computes: Computes) -> None:
        self.computes.append(computes)

    def flowed(self, flows: list[Flows]) -> None:
        self.flows += flows

    def gpu_times(self, name: str) -> list[int]:
        return [
            time for each in self.computes if each.operator.name == name for time in each.gpu_time.tolist()
        ]


class App(Application):
    def __init__(self, compose: Callable[[Any], None]) -> None:
        super().__init__()
        self._compose = compose

    def compose(self) -> None:
        self._compose(self)


def observed(compose: Callable[[Any], None]) -> tuple[Collects, Tracker]:
    app = App(compose)
    collects = Collects()
    watch(app, collects)
    tracker = app.track()
    app.run()
    return collects, tracker


def are_near(times: list[int], milliseconds: float, count: int = FRAMES) -> bool:
    """Return whether all times but the first few are within 5 % of a length; kernels are loaded at first use."""
    expected = milliseconds * 1e6
    off = [time for time in times[3:] if not 0.95 * expected <= time <= 1.05 * expected]
    return len(times) == count and len(off) <= 1  # the machine may have been busy once


def test_the_time_of_an_operator_is_that_of_its_own_kernels() -> None:
    def compose(app: Any) -> None:
        slow = Spins(app, CountCondition(app, FRAMES), milliseconds=4, name="slow")
        quick = Spins(app, milliseconds=1, after="in", name="quick")
        last = Spins(app, milliseconds=2, after="in", name="last")
        app.add_flow(slow, quick, last)

    collects, tracker = observed(compose)
    assert are_near(collects.gpu_times("slow"), 4)
    assert are_near(collects.gpu_times("quick"), 1)
    assert are_near(collects.gpu_times("last"), 2)
    statistics = tracker.statistics
    assert statistics.path("slow,quick,last").count == FRAMES
    # It ends with the last kernel, long after the last compute has returned.
    assert statistics.path("slow,quick,last").latency.p50 > 6.5 * MILLISECOND
    assert statistics.operator("last").host.p50 < 2 * MILLISECOND


def test_time_that_a_compute_waits_for_others_in_the_middle_does_not_count() -> None:
    def compose(app: Any) -> None:
        one = Spins(app, CountCondition(app, FRAMES), milliseconds=1, name="one")
        other = Spins(app, CountCondition(app, FRAMES), milliseconds=8, name="other")
        join = Spins(app, milliseconds=1, after="first,second", name="join")
        app.add_flow(one, join, {("out", "first")})
        app.add_flow(other, join, {("out", "second")})

    collects, _ = observed(compose)
    assert are_near(collects.gpu_times("join"), 2)


def test_device_and_host_times_are_on_one_time_line() -> None:
    def compose(app: Any) -> None:
        source = Spins(app, CountCondition(app, FRAMES), milliseconds=1, name="source")
        last = Spins(app, milliseconds=1, after="in", name="last")
        app.add_flow(source, last)

    collects, _ = observed(compose)
    for each in collects.computes:
        (work,) = each.gpu
        started = each.started[work.compute - each.first]
        # No work begins before its compute, but for the error of the clocks.
        assert (work.started - started).min() >= -20_000
    assert all(error <= 20_000 for error in collects.run.clock_errors.values())


def test_the_slices_of_operators_are_known() -> None:
    def compose(app: Any) -> None:
        pool = CudaGreenContextPool(app, sms_per_partition={"control": 16, "vision": 40})
        source = Spins(
            app, CountCondition(app, 5), CudaGreenContext(app, pool, "control"), milliseconds=1, name="source"
        )
        last = Spins(app, CudaGreenContext(app, pool, "vision"), milliseconds=1, after="in", name="last")
        app.add_flow(source, last)

    collects, tracker = observed(compose)
    found = {each.name: (each.slice, each.sm_count) for each in tracker.statistics.operators}
    assert found == {"source": ("control", 16), "last": ("vision", 40)}
    assert are_near(collects.gpu_times("last"), 1, 5)
    assert collects.run.device_sm_counts == {0: 132}


@pytest.mark.parametrize("workers", [0, 4])
def test_computes_without_a_pause_are_timed_all_along(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    """They read the times of earlier ones themselves, on whichever thread they run."""

    def compose(app: Any) -> None:
        if workers:
            app.scheduler(EventBasedScheduler(app, worker_thread_number=workers))
        source = Spins(app, CountCondition(app, 600), milliseconds=0.02, name="source")
        last = Spins(app, milliseconds=0.02, after="in", name="last")
        app.add_flow(source, last)

    with caplog.at_level("DEBUG", "headrace.observe"):
        collects, tracker = observed(compose)
    assert "no GPU times" not in caplog.text
    assert tracker.statistics.operator("last").count == 600
    for name in ("source", "last"):
        batches = [each for each in collects.computes if each.operator.name == name]
        started = np.concatenate([each.started for each in batches])
        uses = np.concatenate([each.uses_gpu for each in batches])
        times = np.concatenate([each.gpu_time for each in batches])[uses]
        assert times.min() >= 0.95 * 20_000
        # However fast the machine is, the first compute after 20 ms without one is timed. Whether it is 20 ms is
        # asked when a compute begins, and first at the one after the last that was timed.
        pause = np.diff(started).max()
        gaps = np.diff([started[0], *started[uses], started[-1]])
        assert gaps.max() <= 20 * MILLISECOND + 1 + 2 * pause, "there is a gap"
