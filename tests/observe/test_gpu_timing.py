"""Which computes are timed on the device, and what happens to their events."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from penstock.conditions import CountCondition, PeriodicCondition
from penstock.gpu import sim
from penstock.observe.gpu_timing import StreamTimer
from tests.harness.application import App
from tests.harness.operators import Step
from tests.observe.test_goals import launches

MS = 1_000_000


class Stream:
    """A stream that notes what is recorded on it."""

    def __init__(self) -> None:
        self.recorded: list[Any] = []
        self.record = self.recorded.append
        self.wait = lambda event: self.recorded.append(f"wait {event}")


def timer(events: int, is_sampled: bool = True) -> tuple[StreamTimer, Stream, Any]:
    time = SimpleNamespace(events=deque(range(events)), is_sampled=is_sampled, create_event=lambda: "new")
    stream = Stream()
    return StreamTimer(None, stream, time, ()), stream, time  # type: ignore[arg-type]


def timed(times: list[int], **options: Any) -> list[bool]:
    found, _, _ = timer(10_000, **options)
    results = []
    for now in times:
        found.begin_compute(now)
        results.append(found.is_timing)
        if found.is_timing:
            found.end_compute()
    return results


def test_every_compute_is_timed_up_to_a_thousand_a_second() -> None:
    assert all(timed([n * MS for n in range(3000)]))


def test_of_very_many_some_are_timed_evenly() -> None:
    results = timed([n * MS // 10 for n in range(20_000)])  # 10,000 a second, for 2 s
    assert 2000 <= sum(results) <= 2030
    assert max(map(len, "".join("x" if each else "." for each in results).split("x"))) <= 10


def test_a_burst_is_timed_as_a_whole() -> None:
    assert all(timed([5000 * MS] * 20))
    assert not all(timed([5000 * MS] * 40))


def test_all_are_timed_if_a_watcher_wants_them() -> None:
    assert all(timed(list(range(3000)), is_sampled=False))


def test_no_compute_is_timed_while_events_are_short() -> None:
    found, stream, time = timer(17)
    found.begin_compute(0)
    assert found.end_compute() == 1
    assert list(found.segments) == [(0, 1)]
    found.begin_compute(10 * MS)  # 15 events are left
    assert not found.is_timing
    assert stream.recorded == [0, 1]
    time.events.extend((0, 1))
    found.begin_compute(20 * MS)
    assert found.is_timing


def test_a_wait_in_the_middle_makes_two_segments() -> None:
    found, stream, _ = timer(100)
    found.begin_compute(0)
    found.wait("other")
    assert found.end_compute() == 2
    assert stream.recorded == [0, 1, "wait other", 2, 3]
    found.close()
    assert stream.wait.__name__ == "<lambda>"


def test_a_compute_is_shown_only_after_those_it_follows_from() -> None:
    seen: list[tuple[int, int]] = []

    def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        statistics = app.data_flow_tracker().statistics
        seen.append((statistics.operator("source").count, statistics.operator("last").count))
        launches(20, 8)(self, op_input, op_output, context)

    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 4),
            PeriodicCondition(app, 3 * MS),
            outputs=["out"],
            body=emit,
            name="source",
        )
        app.add_flow(source, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="last"))

    with sim.Machine("h200"):
        app = App(compose)
        tracker = app.track(0, 0)
        app.run()
    assert seen == [(0, 0)] * 4  # the device is still busy with the first
    assert tracker.statistics.path("source,last").count == 4
