"""What the summary of a tracked run advises about streams."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace import op
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.gpu import LaunchConfig, launch, sim
from headrace.observe.events import recorder
from headrace.observe.figures.distribution import Summary
from headrace.observe.figures.statistics import (
    OperatorStatistics,
    PathStatistics,
    QueueStatistics,
    SegmentStatistics,
    SliceStatistics,
    Statistics,
    WorkersStatistics,
)
from headrace.resources import RealtimeClock
from headrace.schedulers import EventBasedScheduler
from tests.gpu.kernels import spin
from tests.harness import App, Step

US = 1_000


def operator(name: str, host: float, gpu: float | None = None, **figures: Any) -> OperatorStatistics:
    """Return the figures of an operator whose computes take so many microseconds."""
    on_gpu = Summary() if gpu is None else Summary(100, gpu * US)
    return OperatorStatistics(name, 100, 1000.0, Summary(100, host * US), on_gpu, **figures)


def chain(*operators: OperatorStatistics, **figures: Any) -> Statistics:
    """Return the figures of a run of operators one behind the other, each on a stream of its own."""
    names = tuple(each.name for each in operators)
    path = PathStatistics(",".join(names), 100, 1000.0, Summary(), names)
    streams = tuple((each.name,) for each in operators if each.gpu.count)
    return replace(Statistics(operators=operators, paths=(path,), streams=streams), **figures)


SHORT = [operator("a", 20, 5), operator("b", 30, 10), operator("c", 12, 6)]
SHARE = (
    "computes of a, b, c are launch-bound: share_stream(a, b, c) would save an event and a wait for "
    "each message between them, and capture the launches"
)


def test_launch_bound_neighbours_are_advised_to_share_a_stream() -> None:
    statistics = chain(*SHORT)
    assert statistics.advice == (SHARE,)
    assert str(statistics).splitlines()[-1] == f"advice: {SHARE}"
    assert json.loads(statistics.to_json())["advice"] == [SHARE]


def test_a_time_of_the_device_that_is_a_bound_is_enough_to_be_launch_bound() -> None:
    bound = [replace(each, gpu=replace(each.gpu, is_bound=True)) for each in SHORT]
    assert chain(*bound).advice == (SHARE,)


@pytest.mark.parametrize(
    ("why", "operators"),
    [
        ("no times of the device", [operator("a", 20), operator("b", 30)]),
        ("the device works as long", [operator("a", 20, 15), operator("b", 30, 40)]),
        (
            "long computes, of which an event and a wait are nothing",
            [operator("a", 100, 5), operator("b", 200, 5)],
        ),
        ("slices of their own", [operator("a", 20, 5, slice="one"), operator("b", 20, 5, slice="two")]),
        ("few computes", [replace(each, count=9) for each in SHORT]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_operators_are_not_advised_to_share_a_stream(
    why: str, operators: list[OperatorStatistics]
) -> None:
    assert chain(*operators).advice == ()


def test_operators_that_are_together_already_are_not_advised() -> None:
    assert chain(*SHORT, streams=(("a", "b", "c"),)).advice == ()
    segment = SegmentStatistics("middle", ("a", "b", "c"), "captured")
    assert chain(*SHORT, segments=(segment,)).advice == ()
    assert chain(*SHORT, fragments={"a": "one", "b": "two", "c": "three"}).advice == ()


def test_a_long_compute_between_short_ones_keeps_them_apart() -> None:
    names = "abcde"
    times = [(20, 5), (20, 5), (20, 500), (20, 5), (20, 5)]
    found = chain(*(operator(name, *time) for name, time in zip(names, times, strict=True))).advice
    assert [each.partition(":")[0] for each in found] == [
        "computes of a, b are launch-bound",
        "computes of d, e are launch-bound",
    ]


def test_operators_that_fill_a_shared_stream_could_overlap() -> None:
    busy = [
        operator("a", 20, 500, gpu_busy=0.5),
        operator("b", 20, 450, gpu_busy=0.45),
        operator("c", 20, 1, gpu_busy=0.001),
    ]
    (text,) = chain(*busy, streams=(("a", "b", "c"),)).advice
    assert text == (
        "a, b share a stream that works 95% of the time: on streams of their own they could overlap, if their "
        "kernels leave SMs free"
    )
    assert chain(*busy).advice == (), "they have streams of their own"
    assert chain(*busy[1:], streams=(("b", "c"),)).advice == (), "it has time left"
    full = [operator("a", 20, 950, gpu_busy=0.95), busy[2]]
    assert chain(*full, streams=(("a", "c"),)).advice == (), (
        "nothing would overlap with the only one that works"
    )


@pytest.mark.parametrize("stream_per", ["program", "operator"])
def test_a_simulated_run_advises_whoever_fills_a_shared_stream(machine: sim.Machine, stream_per: str) -> None:
    def work(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if self.spec.inputs:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
        else:
            stream = context.allocate_cuda_stream("own")
        launch(stream.stream, LaunchConfig(grid=1, block=32), spin.on(stream.stream.device), 1_000_000)
        if self.spec.outputs:
            op_output.emit(self.ticks, "out")

    def compose(app: Any) -> None:
        app.stream_per = stream_per
        often = PeriodicCondition(app, 1_500_000)
        first = Step(app, CountCondition(app, 60), often, outputs=["out"], body=work, name="first")
        app.add_flow(first, Step(app, inputs=["in"], body=work, name="second"))

    app = App(compose)
    tracker = app.track()
    app.run()
    found = [each for each in tracker.statistics.advice if "share a stream" in each]
    assert [each.partition(" that")[0] for each in found] == (
        ["first, second share a stream"] if stream_per == "program" else []
    )


# Workers.


def waiting(
    waits: float | None = 0.92,
    busy: float = 0.5,
    queue: float = 0.3,
    other: float = 0.2,
    workers: int = 2,
    parallel: bool = False,
) -> Statistics:
    return Statistics(
        operators=(
            OperatorStatistics("grab", count=100, busy=busy, waits=waits, is_parallel=parallel),
            OperatorStatistics("detect", count=100, busy=other),
        ),
        queues=(QueueStatistics("detect.in", received=100, busy=queue),),
        workers=(WorkersStatistics("workers", workers),),
    )


def test_an_operator_that_waits_while_others_have_messages_should_be_parallel() -> None:
    (text,) = waiting().advice
    assert text == (
        "grab waited 92% of its time, while messages waited for detect: with parallel = True it computes "
        "beside others"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"waits": None},
        {"waits": 0.4},
        {"busy": 0.05},
        {"queue": 0.01},
        {"other": 0.95},
        {"workers": 1},
        {"parallel": True},
    ],
    ids=lambda given: next(iter(given)),
)
def test_nothing_is_said_of_workers_where_nothing_would_be_gained(given: dict[str, Any]) -> None:
    assert waiting(**given).advice == ()


def test_some_computes_are_asked_how_long_they_had_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def compose(app: Any) -> None:
        @op(parallel=True)
        def grab() -> int:
            return 1

        @op
        def take(value: int) -> None:
            pass

        app.scheduler(EventBasedScheduler(app, worker_thread_number=2, clock=RealtimeClock(app)))
        app.add_flow(grab(app, CountCondition(app, 170)), take(app))

    monkeypatch.setattr(recorder, "thread_time_ns", lambda: 0)  # no thread ever has it
    app = App(compose, clock=None)
    tracker = app.track()
    app.run()
    found = {each.name: (each.waits, each.is_parallel) for each in tracker.statistics.operators}
    assert found["grab"] == (1.0, True)
    assert found["take"][0] == 1.0


def test_what_only_waits_is_named_so_and_hides_no_slice() -> None:
    display = OperatorStatistics("display", count=100, busy=0.95, waits=0.99)
    slow = OperatorStatistics("slow", count=100, busy=0.96)
    statistics = Statistics(
        operators=(display, slow),
        slices=(
            SliceStatistics("GPU 0, slice live", 40, 0.97, ("display",)),
            SliceStatistics("GPU 0, all SMs", 132, 0.92, ("slow",)),
        ),
    )
    assert statistics.saturated == (
        "slow computes 96% of the time",
        "display waits in compute 95% of the time",
        "GPU 0, slice live works 97% of the time",
        "GPU 0, all SMs works 92% of the time",
    )
