"""Which computes are timed on the device, and what happens to their events."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.gpu import sim
from headrace.observe import Computes, Watcher, watch
from headrace.observe.events.gpu_timing import ComputeTimer, Sampling, StreamTimer, TimedStream, Timer
from headrace.observe.events.node_log import NodeLog
from headrace.observe.events.recorder import TIMED, NodeRecorder
from headrace.observe.events.records import OperatorInfo, StreamInfo
from headrace.resources import RealtimeClock
from tests.harness.application import App
from tests.harness.operators import Step
from tests.observe.figures.test_goals import launches

MS = 1_000_000


class Stream:
    """A stream that notes what is recorded on it."""

    def __init__(self) -> None:
        self.recorded: list[Any] = []
        self.record = self.recorded.append
        self.wait = self.waits = lambda event: self.recorded.append(f"wait {event}")


class Event:
    """An event that is complete when it is told to be."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_done = False

    def __repr__(self) -> str:
        return str(self.number)


class Clock:
    """The clock of a device, whose events are numbered, and whose times are these numbers."""

    def __init__(self, is_sampled: bool = True) -> None:
        self.is_sampled = is_sampled
        self.most_unread = 4
        self.events: deque[Event] = deque()
        self.created: list[Event] = []
        self.error: Exception | None = None
        self.on_read: Any = None

    def create_event(self) -> Event:
        self.created.append(Event(len(self.created)))
        return self.created[-1]

    def times(self, began: Event, ended: Event) -> tuple[int, int]:
        if self.error is not None:
            raise self.error
        if not ended.is_done:
            raise RuntimeError("the event is not complete")
        if self.on_read is not None:
            self.on_read()
        return began.number, ended.number

    def complete(self) -> None:
        for event in self.created:
            event.is_done = True


def timer(is_sampled: bool = True) -> tuple[ComputeTimer, Stream, Clock]:
    clock, stream, found = Clock(is_sampled), Stream(), ComputeTimer()
    found.add(stream_timer(stream, clock))
    return found, stream, clock


def stream_timer(stream: Stream, clock: Clock, timed: TimedStream | None = None) -> Any:
    info, recorder = SimpleNamespace(operator=SimpleNamespace(name="one")), SimpleNamespace(number=0)
    recorder.is_computing = False
    on = TimedStream(stream) if timed is None else timed  # type: ignore[arg-type]
    return StreamTimer(info, on, recorder, clock)  # type: ignore[arg-type]


def timed(times: list[int], **options: Any) -> list[bool]:
    found, _, clock = timer(**options)
    results = []
    for now in times:
        results.append(now >= found.next and found.begin(now))
        if results[-1]:
            found.end()
            clock.complete()
    return results


def test_every_compute_is_timed_up_to_a_thousand_a_second() -> None:
    assert all(timed([n * MS for n in range(3000)]))


def gaps(results: list[bool]) -> list[int]:
    """Return how many computes were not timed before each one that was, and at the end."""
    return [len(gap) for gap in "".join("x" if each else "." for each in results).split("x")]


def test_of_many_a_thousand_a_second_are_timed_evenly() -> None:
    results = timed([n * 2 * MS // 3 for n in range(3000)])  # 1,500 a second, for 2 s
    assert 2000 <= sum(results) <= 2030
    assert max(gaps(results)) == 1


def test_of_very_many_50_a_second_are_timed_evenly() -> None:
    results = timed([n * MS // 10 for n in range(20_000)])  # 10,000 a second, for 2 s
    assert 100 <= sum(results) <= 125
    assert max(gaps(results)) <= 200


def test_of_very_many_most_only_pay_a_comparison() -> None:
    sampling, asked = Sampling(), 0
    for now in range(0, 2000 * MS, MS // 10):
        if now >= sampling.next:
            asked += 1
            sampling.takes(now)
    assert asked <= 2 * 125


def test_all_are_timed_again_once_there_are_less() -> None:
    often = [n * MS // 10 for n in range(20_000)]
    results = timed([*often, *(2000 * MS + n * MS for n in range(1000))])
    assert all(results[-995:])


def test_a_burst_is_timed_as_a_whole() -> None:
    assert all(timed([5000 * MS] * 20))
    assert not any(timed([5000 * MS] * 40)[20:])
    bursts = [n // 10 * 100 * MS for n in range(1000)]  # ten at once, ten times a second
    assert all(timed(bursts))


def test_all_are_timed_if_a_watcher_wants_them() -> None:
    assert all(timed(list(range(3000)), is_sampled=False))


def test_computes_read_the_times_of_earlier_ones_if_many_wait() -> None:
    found, _, clock = timer()
    (stream,) = found.streams
    for number in range(1000):
        assert found.begin(number * MS)
        assert found.end() == [(0, 1)]
        clock.complete()
    assert len(stream.pieces) <= clock.most_unread + 1
    assert len(stream.times) >= 1000 - clock.most_unread - 1
    assert list(stream.times)[:2] == [(0, 1, True), (2, 3, True)]
    assert len(clock.created) <= 2 * clock.most_unread + 4  # the events are used again


def test_computes_leave_few_times_to_the_resolver() -> None:
    found, _, clock = timer()
    (stream,) = found.streams
    for number in range(clock.most_unread):
        found.begin(number * MS)
        found.end()
        clock.complete()
    assert not stream.times
    stream.read(is_last=False)
    assert list(stream.times) == [(2 * number, 2 * number + 1, True) for number in range(clock.most_unread)]


def test_work_that_is_added_while_times_are_read_waits_for_the_next_time() -> None:
    found, _, clock = timer()
    (stream,) = found.streams
    for number in range(3):
        found.begin(number * MS)
        found.end()
    clock.complete()
    clock.on_read = lambda: (found.begin(10 * MS), found.end()) if len(stream.pieces) < 3 else None
    stream.read(is_last=False)
    assert len(stream.times) == 3
    assert stream.pieces


def test_no_compute_is_timed_while_the_device_is_far_behind() -> None:
    found, _, clock = timer()
    results = []
    for number in range(2000):
        results.append(found.begin(number * MS))
        if results[-1]:
            found.end()
    assert sum(results) == 512
    clock.complete()
    found.streams[0].read(is_last=False)
    assert found.begin(3000 * MS)


def test_without_free_events_computes_are_timed_with_new_ones() -> None:
    found, stream, clock = timer()
    clock.events.append(Event(100))
    found.begin(0)
    assert found.end() == [(0, 1)]
    assert [event.number for event in stream.recorded] == [100, 0]


def test_times_that_a_compute_cannot_read_are_left_to_the_resolver() -> None:
    found, _, clock = timer()
    (stream,) = found.streams
    clock.error = RuntimeError("no context is current")
    for number in range(20):
        found.begin(number * MS)
        assert found.end() == [(0, 1)]
        clock.complete()
    assert len(stream.pieces) == 20
    clock.error = None
    stream.read(is_last=False)
    assert len(stream.times) == 20


def test_work_of_a_failed_device_has_no_times() -> None:
    found, _, clock = timer()
    (stream,) = found.streams
    found.begin(0)
    found.end()
    clock.error = RuntimeError("the device has failed")
    stream.read(is_last=True)
    assert list(stream.times) == [None]


def test_a_wait_in_the_middle_makes_two_pieces() -> None:
    found, stream, _ = timer()
    found.begin(0)
    stream.wait("other")
    assert found.end() == [(0, 2)]
    assert list(map(str, stream.recorded)) == ["0", "1", "wait other", "2", "3"]


def test_only_a_timed_compute_times_its_waits() -> None:
    found, stream, _ = timer()
    found.begin(0)
    assert stream.wait is not stream.waits
    found.end()
    assert stream.wait is stream.waits


def on_one_stream(during: Any, body: Any = lambda: None) -> list[bool]:
    """Return whether each piece of work of an operator is alone, while another does something on its stream.

    `body` and `during` are called in its compute: with nothing, and with the recorder and the compute of the other.
    """
    clock, stream = Clock(is_sampled=False), Stream()
    timed: Any = TimedStream(stream)  # type: ignore[arg-type]
    one, other = (
        NodeRecorder(OperatorInfo(name, 0), iter(range(1000)).__next__, ComputeTimer())
        for name in ("one", "other")
    )
    for recorder in (one, other):
        recorder.timer.add(StreamTimer(StreamInfo(recorder.info, 0, 1, 0), timed, recorder, clock))  # type: ignore[arg-type]
    run_other = other.around(lambda *_: body())
    run_other(None, None, None)
    one.around(lambda *_: during(stream, run_other))(None, None, None)
    return [piece[-1] for piece in one.timer.in_use[0].pieces]


def test_work_is_alone_on_a_stream_unless_another_operator_computes_meanwhile() -> None:
    assert on_one_stream(lambda stream, other: None) == [True]
    assert on_one_stream(lambda stream, other: other(None, None, None)) == [False]


def test_the_piece_before_another_operator_computes_is_alone() -> None:
    def wait_and_compute(stream: Stream, other: Any) -> None:
        stream.wait("event")
        other(None, None, None)

    assert on_one_stream(wait_and_compute) == [True, False]


def test_work_within_the_compute_of_another_operator_is_not_alone() -> None:
    clock, stream = Clock(is_sampled=False), Stream()
    timed: Any = TimedStream(stream)  # type: ignore[arg-type]
    within, around = stream_timer(stream, clock, timed), stream_timer(stream, clock, timed)
    for is_computing in (True, False):  # from before its beginning until after its end, or not at all
        around.recorder.is_computing = is_computing
        within.begin()
        within.end()
    assert [piece[-1] for piece in within.pieces] == [False, True]


def test_a_wait_on_another_thread_is_no_part_of_a_compute() -> None:
    clock, stream = Clock(is_sampled=False), Stream()
    timed: Any = TimedStream(stream)  # type: ignore[arg-type]
    here, there = stream_timer(stream, clock, timed), stream_timer(stream, clock, timed)

    def compute() -> None:
        stream.wait("before")
        there.begin()
        there.end()

    here.begin()
    elsewhere = threading.Thread(target=compute)
    elsewhere.start()
    elsewhere.join()
    stream.wait("own")
    assert here.end() == 2
    assert list(map(str, stream.recorded)) == ["0", "wait before", "1", "2", "3", "wait own", "4", "5"]


def test_the_time_of_work_that_is_not_alone_is_a_bound() -> None:
    clock: Any = SimpleNamespace(margin=5)
    recorder = NodeRecorder(OperatorInfo("one", 0), int, ComputeTimer())
    recorder.info.streams.append(StreamInfo(recorder.info, 0, 1, 0))
    timer: Any = Timer(recorder.info.streams[0], clock)
    recorder.timer.streams.append(timer)
    # Two computes, from 0 to 10 and from 50 to 60; the device begins long after they have returned.
    recorder.computes += (0, 10, 50, 60)
    recorder.facts += (0, TIMED, 0, 1, 1, TIMED, 0, 1)
    timer.times += ((20, 40, True), (70, 90, False))
    log = NodeLog(recorder)
    log.read(100)
    log.read_gpu_times(is_last=False)
    computes = log.take_ready()
    assert computes is not None
    (work,) = computes.gpu
    assert work.is_exact.tolist() == [True, False]
    assert work.certain.tolist() == [20, 90]


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
        tracker = app.track()
        app.run()
    assert seen == [(0, 0)] * 4  # the device is still busy with the first
    assert tracker.statistics.path("source,last").count == 4


class Works(Watcher):
    """Collects when each compute of the source began, and when the device began and ended its work."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []

    def computed(self, computes: Computes) -> None:
        for work in computes.gpu if computes.operator.name == "source" else ():
            started = computes.started[work.compute - computes.first]
            columns = (started, work.started, work.ended)
            self.rows += zip(*(column.tolist() for column in columns), strict=True)


def test_a_simulated_device_beside_the_host_s_clock_is_on_its_time_line() -> None:
    """In paced time the device stands still while the program works, and falls behind the host more and more."""

    def work(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        launches(0.1, 8)(self, op_input, op_output, context)
        until = time.perf_counter_ns() + MS // 2
        while time.perf_counter_ns() < until:
            pass

    def compose(app: Any) -> None:
        source = Step(app, CountCondition(app, 30), outputs=["out"], body=work, name="source")
        app.add_flow(source, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="last"))

    works = Works()
    with sim.Machine("h200", time="paced"):
        app = App(compose, clock=RealtimeClock())
        watch(app, works)
        app.run()
    over = time.perf_counter_ns()
    assert len(works.rows) == 30
    for began, started, ended in works.rows:
        assert began < ended <= over
        assert ended - started >= MS // 10


def test_a_compute_is_timed_from_what_it_receives_and_not_from_the_start_of_its_operator(
    machine: sim.Machine,
) -> None:
    """The streams of all operators are there before the first message, which comes 50 ms later."""
    collects = Works()

    def compose(app: Any) -> None:
        late = PeriodicCondition(app, 50 * MS)
        first = Step(app, CountCondition(app, 2), late, outputs=["out"], body=launches(0.1, 8), name="first")
        middle = Step(app, inputs=["in"], body=launches(0.1, 8), name="source")
        app.add_flow(first, middle)
        app.share_stream(first, middle)

    app = App(compose)
    watch(app, collects)
    app.run()
    assert [ended - started for _, started, ended in collects.rows] == pytest.approx([MS // 10] * 2, rel=0.1)
