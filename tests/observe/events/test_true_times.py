"""The times that are shown for kernels of known length: 200 µs, five of 10 µs, and 400 µs, every 2 ms.

The simulated device knows when each kernel began and ended. It needs some microseconds from a launch until an idle
device begins with it, and threads of the host compete for the interpreter, as with a real one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from headrace import EventBasedScheduler, GreedyScheduler, gpu
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.gpu import sim
from headrace.observe import Statistics
from headrace.resources import ManualClock
from tests.harness.application import SEVERAL, App, greedy
from tests.harness.operators import Step

US = 1_000
FRAMES = 40
LENGTHS = {"a": [200 * US], "b": [10 * US] * 5, "c": [400 * US]}


class Kernels:
    """Launches kernels, and notes when each began and ended, with the operator and the frame."""

    def __init__(self) -> None:
        self.times: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self._numbers = itertools.count()
        self._launched: dict[int, tuple[str, int]] = {}
        self._spin = gpu.kernel(
            "spin", source="", seconds=lambda length, number: length * 1e-9, effect=self._ran
        )

    def launch(self, stream: Any, name: str, frame: int) -> None:
        for length in LENGTHS[name]:
            number = next(self._numbers)
            self._launched[number] = name, frame
            config = gpu.LaunchConfig(grid=1, block=32)
            gpu.launch(stream, config, self._spin.on(gpu.Device()), length, number)

    def _ran(self, length: int, number: int) -> None:
        launch = sim.launched()
        self.times[self._launched[number]].append((round(launch.start * 1e9), round(launch.end * 1e9)))

    def busy(self, name: str) -> float:
        """Return how long the kernels of a frame took on average."""
        return sum(sum(LENGTHS[name]) for _ in range(FRAMES)) / FRAMES

    def span(self, name: str) -> float:
        """Return the time from the first kernel of a frame to the end of its last, on average."""
        found = [self.times[name, frame] for frame in range(FRAMES)]
        return sum(each[-1][1] - each[0][0] for each in found) / FRAMES

    def latency(self, emitted: list[int]) -> float:
        """Return the time from the emission of a frame to the end of its last kernel, on average."""
        ends = [self.times["c", frame][-1][1] for frame in range(FRAMES)]
        return sum(end - at for end, at in zip(ends, emitted, strict=True)) / FRAMES


def own_stream(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
    if self.spec.inputs:
        return op_input.receive_cuda_stream("in").stream
    stream = context.allocate_cuda_stream("own")
    op_output.set_cuda_stream(stream, "out")
    return stream.stream


def shared_stream(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
    return own_stream(self, op_input, op_output, context)


def default_stream(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
    return gpu.LEGACY_DEFAULT_STREAM


def by_workers(count: int) -> Callable[..., Any]:
    if not count:
        return greedy
    return lambda app, **settings: EventBasedScheduler(app, worker_thread_number=count, **settings)


def run(
    stream_of: Callable[..., Any], workers: int, *, times_kernels: bool = False
) -> tuple[Statistics, Kernels, list[int]]:
    """Return the statistics of a run, what the kernels did, and when each frame was emitted."""
    emitted: list[int] = []

    def compute(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        gpu.Device(0).set_current()
        frame = op_input.receive("in") if self.spec.inputs else self.ticks - 1
        kernels.launch(stream_of(self, op_input, op_output, context), self.name, frame)
        if self.name == "a":
            emitted.append(machine.timeline.now)
        if self.spec.outputs:
            op_output.emit(frame, "out")

    def setup(spec: Any) -> None:
        if stream_of is default_stream:
            spec.default_stream()

    def compose(app: Any) -> None:
        app.stream_per = "operator" if stream_of is own_stream else "branch"
        often = PeriodicCondition(app, 2_000 * US)
        common = {"body": compute, "setup": setup}
        a = Step(app, CountCondition(app, FRAMES), often, outputs=["out"], name="a", **common)
        b = Step(app, inputs=["in"], outputs=["out"], name="b", **common)
        app.add_flow(a, b)
        app.add_flow(b, Step(app, inputs=["in"], name="c", **common))

    with sim.Machine("h200") as machine:
        kernels = Kernels()
        app = App(compose, by_workers(workers))
        with app.track(kernels=times_kernels) as tracker:
            app.run()
    return tracker.statistics, kernels, emitted


ways = pytest.mark.parametrize("stream_of", [own_stream, shared_stream, default_stream])
crews = pytest.mark.parametrize("workers", [0, *SEVERAL])


@ways
@crews
def test_times_are_those_of_the_kernels_or_bounds(stream_of: Any, workers: int) -> None:
    statistics, kernels, emitted = run(stream_of, workers)
    for name in LENGTHS:
        shown = statistics.operator(name).gpu
        truth = kernels.span(name)
        assert shown.count >= FRAMES - 1  # in its first compute, an operator asks for its stream
        assert truth <= shown.mean <= 1.05 * truth, name
        assert statistics.operator(name).kernels.count == 0
    # The device was idle when `a` launched: that it began at once is not known. Operators that nobody knows of may
    # use the default stream at the same time, on other workers.
    assert statistics.operator("a").gpu.is_bound
    for name in ("b", "c"):
        assert statistics.operator(name).gpu.is_bound == (workers > 0 and stream_of is default_stream)
    # A frame is there when its last kernel has ended.
    latency = statistics.path("a,b,c").latency
    assert latency.count == FRAMES
    assert latency.mean == pytest.approx(kernels.latency(emitted), rel=0.01)
    assert latency.mean > 650 * US


def test_the_tables_show_bounds_and_operators_without_a_stream() -> None:
    statistics, _, _ = run(own_stream, 0)
    lines = str(statistics).splitlines()
    assert "GPU span mean" in lines[2]
    assert "≤ 0.2" in next(line for line in lines if line.startswith("a "))
    assert "≤" not in next(line for line in lines if line.startswith("c "))


@ways
@crews
def test_kernels_by_themselves_are_exact(stream_of: Any, workers: int) -> None:
    statistics, kernels, _ = run(stream_of, workers, times_kernels=True)
    for name in LENGTHS:
        operator = statistics.operator(name)
        assert operator.kernels.count == operator.gpu.count == FRAMES
        assert operator.kernels.mean == pytest.approx(kernels.busy(name), rel=0.001)
        assert operator.gpu.mean == pytest.approx(kernels.span(name), rel=0.001)
        assert not operator.gpu.is_bound
    assert "kernels mean" in str(statistics)


def test_the_tables_say_why_kernels_are_not_timed() -> None:
    with sim.Machine("h200"):
        app = App(
            lambda app: app.add_operator(Step(app, CountCondition(app, 3), name="one")),
            lambda app: GreedyScheduler(app, clock=ManualClock(app)),
        )
        with app.track(kernels=True) as tracker:
            app.run()
    assert str(tracker.statistics).endswith(
        "kernels are not shown: the run's clock is not that of the simulated device"
    )
