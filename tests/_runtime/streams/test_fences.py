"""The fences of an operator on a stream: what lives until they complete, how often events are queried."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pytest

from headrace import CountCondition
from headrace._runtime.compiled import is_compiled
from headrace._runtime.messages.envelope import Envelope, stamping
from headrace._runtime.messages.fences import Fences, is_complete
from headrace._runtime.messages.managed_stream import ManagedStream
from headrace._runtime.streams.lifetimes import InFlight, Lifetimes
from headrace._runtime.streams.watch import Watch
from headrace.gpu import sim
from tests.harness import (
    MS,
    Consumer,
    MakeScheduler,
    Producer,
    Step,
    event_based,
    greedy,
    launch,
    run,
    source,
)
from tests.harness.internals import node_of
from tests.limits import examples


class Device:
    """A stream that has done so much of its work, and counts what it is asked."""

    def __init__(self) -> None:
        self.recorded = 0
        self.done = 0
        self.made: list[Event] = []
        self.looks = 0

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7

    def wait(self, event: Event) -> None:
        raise AssertionError("a fence waits for nothing")

    def record(self, event: Event) -> None:
        assert event.point <= self.done or event.is_free, "an event was recorded again before it was done"
        self.recorded += 1
        event.point = self.recorded
        event.is_free = False

    def create_event(self) -> Event:
        self.made.append(Event(self))
        return self.made[-1]

    def timeline(self, limit: int = 8) -> tuple[Fences, Computes]:
        fences = Fences(ManagedStream(self, 0, self.create_event))
        return fences, Computes(fences, limit)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.point = 0
        self.is_free = True

    @property
    def is_done(self) -> bool:
        self.device.looks += 1
        return self.point <= self.device.done


class Computes:
    """The computes of an operator that receives a frame in each of them, and holds none."""

    def __init__(self, fences: Fences, limit: int) -> None:
        self.in_flight = InFlight(fences, limit)
        self.received: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.in_flight, name)

    def end(self, frame: Any) -> None:
        """End a compute that received a frame, and look at those so far where that is due."""
        self.received.append(frame)
        self.numbers.append(self.fences.last)
        if len(self.numbers) >= self.look_at:
            self.look()

    def end_quietly(self, frame: Any) -> bool:
        """End a compute whose frame is small; return whether the bytes would be counted here."""
        self.received.append(frame)
        self.numbers.append(self.fences.last)
        is_due = len(self.numbers) >= self.look_at
        if is_due and self.may_put_off():
            self.put_off(True)
        elif is_due:
            assert not self.look()  # or the operator would wait for the device
        return is_due

    def look(self) -> Any:
        """Release what the device has completed; return whether it is too far behind."""
        released, self.received = self.received, []
        return self.turn(released)

    @property
    def held(self) -> list[Any]:
        return [*self.in_flight.frames, *self.received]


def emit(fences: Fences, data: Any) -> Envelope:
    return stamping(fences)(data)


def test_what_is_kept_lives_until_a_fence_after_it_is_complete() -> None:
    device = Device()
    fences, computes = device.timeline()
    emit(fences, "before")  # a fence that came before the end of the compute says nothing about it
    computes.end("first")
    device.done = device.recorded
    computes.look()
    assert computes.held == ["first"]
    emit(fences, "after")
    computes.look()
    assert computes.held == ["first"]
    device.done = device.recorded
    computes.look()
    assert computes.held == []


def test_without_an_emit_a_fence_is_inserted_with_each_look() -> None:
    device = Device()
    _fences, computes = device.timeline(limit=100)
    for n in range(41):
        computes.end(n)
        device.done = device.recorded
    assert device.recorded == 7
    assert computes.held == list(range(31, 41))


@pytest.mark.parametrize("behind", [0, 1, 3, 7])
def test_an_event_is_recorded_again_only_when_it_is_done(behind: int) -> None:
    device = Device()
    fences, computes = device.timeline(limit=12)
    for n in range(500):
        emit(fences, n)
        computes.end(n)
        assert not computes.is_full
        device.done = max(device.recorded - behind, 0)
    assert len(device.made) <= 16


def test_a_device_that_stands_still_is_given_new_events() -> None:
    device = Device()
    fences, computes = device.timeline(limit=100)
    for n in range(10):
        emit(fences, n)
        computes.end(n)
    device.done = 4
    computes.look()
    for n in range(40):
        emit(fences, n)  # `record` sees to it that none of the six that are not done is among them
    assert len(device.made) <= 48


def test_events_are_used_again_where_nothing_is_kept() -> None:
    device = Device()
    fences, _computes = device.timeline()
    for n in range(500):
        emit(fences, n)
        device.done = device.recorded - 1
    assert len(device.made) <= 64
    assert device.looks <= 500 / 60


@pytest.mark.parametrize(("behind", "most"), [(0, 0.26), (1, 0.65), (3, 0.8)])
def test_the_device_is_queried_once_for_several_computes(behind: int, most: float) -> None:
    device = Device()
    fences, computes = device.timeline()
    for n in range(600):
        emit(fences, n)
        device.done = max(device.recorded - 1 - behind, 0)
        computes.end(n)
        assert not computes.is_full
    assert device.looks <= most * 600


@pytest.mark.parametrize("emits", [False, True])
@pytest.mark.parametrize(("limit", "most"), [(1, 2), (2, 3), (4, 5), (8, 12), (100, 12)])
def test_while_the_device_keeps_up_few_frames_are_kept(limit: int, most: int, emits: bool) -> None:
    device = Device()
    fences, computes = device.timeline(limit)
    counts = set()
    for n in range(100):
        if emits:
            emit(fences, n)
        device.done = device.recorded
        computes.end(n)
        if computes.is_full:
            device.done = device.recorded
            computes.look()
        counts.add(len(computes.held))
        assert not computes.is_full
    assert max(counts) <= most


@pytest.mark.parametrize("emits", [False, True])
def test_looks_are_put_off_for_longer_while_little_is_received(emits: bool) -> None:
    device = Device()
    fences, computes = device.timeline()
    due = 0
    for n in range(960):
        if emits:
            emit(fences, n)
        device.done = device.recorded
        due += computes.end_quietly(n)
        assert len(computes.held) <= 2 * 96 + 8
    assert due <= 0.11 * 960
    assert device.looks <= 960 / 40


@pytest.mark.parametrize("emits", [False, True])
def test_a_device_that_falls_behind_is_found_although_looks_are_put_off(emits: bool) -> None:
    """After as many computes as there are between two looks, and twelve more if the operator emits no fences."""
    latest = 0
    for kept_up in range(400, 400 + 2 * 96):
        device = Device()
        fences, computes = device.timeline()
        for n in itertools.count():
            if emits:
                emit(fences, n)
            if n < kept_up:
                device.done = device.recorded
            computes.received.append(n)
            computes.numbers.append(fences.last)
            if len(computes.numbers) >= computes.look_at:
                if computes.may_put_off():
                    computes.put_off(True)
                elif computes.look():
                    break
        latest = max(latest, n - kept_up)
    assert latest <= 96 + (0 if emits else 12)


def test_a_device_that_has_caught_up_is_found_to_have() -> None:
    device = Device()
    fences, computes = device.timeline(limit=100)
    for n in range(400):
        emit(fences, n)
        behind = 40 if n < 200 else 0
        device.done = max(device.recorded - behind, device.done)
        computes.end(n)
    assert len(computes.held) <= 12


def test_an_event_that_was_lent_is_never_recorded_again() -> None:
    device = Device()
    fences, computes = device.timeline()
    lent = [emit(fences, n).event for n in range(3)][1]
    fences.lend(lent)
    point = lent.point
    for n in range(100):
        emit(fences, n)
        device.done = device.recorded
        computes.end(n)
    assert lent.point == point
    assert len(device.made) <= 16


def test_a_fence_stays_complete_whatever_is_asked_later() -> None:
    device = Device()
    fences, _ = device.timeline()
    for _ in range(20):
        fences.insert()
    device.done = 4
    fences.update(1)  # the device is expected to be far behind from now on
    device.done = device.recorded
    assert fences.has_passed(20)
    fences.insert()
    fences.update(1)
    assert fences.completed >= 20


def test_a_complete_fence_is_found_complete_although_its_event_was_recorded_again() -> None:
    device = Device()
    fences, _ = device.timeline()
    event = fences.insert()
    assert not is_complete(fences, 1, event)
    device.done = device.recorded
    assert is_complete(fences, 1, event)
    fences.update(1)
    assert fences.insert() is event
    assert not event.is_done
    assert is_complete(fences, 1, event)


def test_a_fence_is_found_complete_if_its_event_is_recorded_again_while_it_is_asked_for() -> None:
    device = Device()
    fences, _ = device.timeline()
    usual = fences.insert()

    class Asked(Event):
        @property
        def is_done(self) -> bool:
            device.done = device.recorded
            fences.update(1)
            assert fences.insert() is usual  # by the thread of the sender
            return usual.is_done

    assert is_complete(fences, 1, Asked(device))


def test_a_bound_of_one_holds_with_more_fences_in_a_compute_than_there_are_events() -> None:
    device = Device()
    fences, computes = device.timeline(limit=1)
    for n in range(40):
        emit(fences, n)
    computes.end("received")
    assert computes.is_full
    device.done = computes.oldest_event().point
    computes.look()
    assert not computes.is_full


def test_a_frame_that_is_known_to_be_done_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    original = sim.Stream.wait
    monkeypatch.setattr(sim.Stream, "wait", lambda self, other: (waits.append(other), original(self, other)))

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.ticks == 2:
                self.producer.stream.stream.sync()
                (reader,) = node_of(self.producer).streams.lifetimes.readers
                reader.fences.update(reader.fences.last)
            op_input.receive("in")
            op_input.receive_cuda_stream("in")

        class Keeping(Producer):
            def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
                super().compute(op_input, op_output, context)
                self.stream = context.allocate_cuda_stream("mine")

        producer = Keeping(app, CountCondition(app, 3), name="producer")
        taker = Step(app, inputs=("in",), body=take, name="take")
        taker.producer = producer
        app.add_flow(producer, taker)

    run(compose)
    assert len(waits) == 2


def test_a_condition_is_told_of_its_own_frame_whatever_the_producer_does_since(
    scheduler: MakeScheduler,
) -> None:
    from headrace.conditions import CudaStreamCondition

    def compose(app: Any) -> None:
        app.seen = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            app.seen.append(op_input.receive("in"))

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s")
            op_output.set_cuda_stream(stream)
            launch(stream, MS, lambda: None)
            op_output.emit(self.ticks, "out")

        source = Step(app, CountCondition(app, 60), outputs=("out",), body=send, name="send")
        condition = CudaStreamCondition(app, receiver="in")
        app.add_flow(source, Step(app, condition, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == list(range(1, 61))


def test_an_operator_that_first_asks_which_streams_came_is_ordered_when_it_asks_for_its_own() -> None:
    """Left alone after its first compute, it is told of what it received in this compute, not in an earlier one."""

    def compose(app: Any) -> None:
        app.found = []

        class Late(Consumer):
            ticks = 0

            def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
                self.ticks += 1
                if self.ticks < 3:
                    op_input.receive("in")
                    if self.ticks == 2:
                        op_input.receive_cuda_streams("in")
                    return
                super().compute(op_input, op_output, context)

        app.consumer = Late(app, name="consumer")
        app.consumer.seconds = MS / 10
        app.add_flow(Producer(app, CountCondition(app, 10), name="producer"), app.consumer)

    assert run(compose).consumer.seen == list(range(2, 10))


@pytest.mark.parametrize("limit", [1, 3, 8, 64])
def test_any_number_of_fences_in_a_compute_and_any_pace_of_the_device(limit: int) -> None:
    """Finding an event to record may complete fences that what is kept waits for, before that is released."""
    for seed in range(examples(100)):
        some = random.Random(seed)
        device = Device()
        fences, computes = device.timeline(limit)
        emits, pace = some.choice([0, 1, 5, 12, 30]), some.choice([0, 1, 3, 20])
        completed = 0
        ends: list[int] = []  # what had been recorded at the end of each compute
        for n in range(60):
            for _ in range(some.randint(0, emits)):
                emit(fences, n)
                device.done = min(device.done + some.randint(0, pace), device.recorded)
            ends.append(device.recorded)
            computes.end(n)
            while computes.is_full:
                device.done = max(device.done, computes.oldest_event().point)
                computes.look()
            assert completed <= fences.completed <= device.done
            completed = fences.completed
            # A frame is kept at least until a fence after its compute is complete, and in order.
            assert computes.held == list(range(n + 1))[n + 1 - len(computes.held) :]
            assert all(device.done > ends[frame] for frame in range(n + 1 - len(computes.held)))
            assert len(computes.numbers) < limit or limit == 1


def test_an_event_that_was_lent_speaks_for_its_fence_until_that_is_complete() -> None:
    device = Device()
    fences, computes = device.timeline()
    for n in range(3):
        computes.numbers.append(fences.last)
        computes.turn([n])
        message = emit(fences, n)
    fences.lend(message.event)
    device.done = device.recorded - 1
    for _ in range(3):
        computes.look()
        assert computes.held == [2]
    device.done = device.recorded
    computes.look()
    assert computes.held == []


def test_an_event_that_was_lent_to_several_is_not_remembered_for_ever() -> None:
    device = Device()
    fences, computes = device.timeline()
    for n in range(100):
        event = emit(fences, n).event
        fences.lend(event)
        fences.lend(event)
        device.done = device.recorded
        computes.end(n)
    assert len(fences._lent) <= 20


def test_what_an_operator_received_is_told_of_its_own_compute_after_it_asked_late() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            if self.ticks == 2:
                context.allocate_cuda_stream("more")
                op_input.receive_cuda_stream("in")
            elif self.ticks > 2:
                app.found.append(len(op_input.receive_cuda_streams("in")))

        producer = Producer(app, CountCondition(app, 4), name="producer")
        app.add_flow(producer, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose).found == [1, 1]


@pytest.mark.parametrize("make", [greedy, event_based])
def test_an_operator_that_asks_late_which_streams_came_is_told_of_every_message_from_then_on(
    make: MakeScheduler,
) -> None:
    """Also in a pool of threads, where each receive tells the sender in the other pool of its room."""

    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            if self.ticks > 1:
                app.found.append(op_input.receive_cuda_streams("in"))

        ones = source(app, [1] * 4, name="s")
        taker = Step(app, inputs=("in",), body=take, name="take")
        app.add_flow(ones, taker)
        if make is event_based:
            app.make_thread_pool("pool").add(taker, True)

    assert run(compose, make).found[1:] == [[None], [None]]


def test_the_frame_of_a_compute_that_asked_late_is_in_flight_when_the_next_one_begins() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            app.found.append(context.frames_in_flight)
            frame = op_input.receive("in")
            if self.ticks == 2:
                launch(context.allocate_cuda_stream("own"), 100 * MS, lambda: None)
            del frame

        def make(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(np.zeros(4))

        frames = Step(app, CountCondition(app, 3), outputs=("out",), body=make, name="make")
        app.add_flow(frames, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose).found == [0, 0, 1]


def test_the_last_computes_are_released_where_no_other_follows() -> None:
    """The fence after the last one is missing: the next compute would have inserted it."""
    device = Device()
    _, computes = device.timeline()
    for frame in ("one", "two", "three"):
        computes.end(frame)
    computes.look()
    assert not computes.settle()
    assert len(computes.held) == 3
    inserted = device.recorded
    assert not computes.settle()
    assert device.recorded == inserted
    device.done = device.recorded
    assert any(computes.settle() for _ in range(3))  # the newest fences are not looked at first
    assert computes.held == []


def test_a_frame_that_is_let_go_where_no_compute_follows_is_released() -> None:
    device = Device()
    _, computes = device.timeline()
    computes.received.append("held until now")
    computes.look()
    assert not computes.settle()
    device.done = device.recorded
    assert any(computes.settle() for _ in range(3))


def test_nothing_is_kept_when_the_device_has_finished() -> None:
    device = Device()
    _, computes = device.timeline()
    for n in range(6):
        computes.end(n)
        computes.look()  # which finds the device behind
    computes.clear()
    assert computes.held == computes.numbers == []


def test_computes_that_move_to_another_stream_are_complete_with_the_fence_of_the_move() -> None:
    device = Device()
    _, computes = Device().timeline()
    fences, moved = device.timeline()
    for n in range(3):
        computes.end(n)
    moved.take_over(computes.in_flight)
    device.done = device.recorded
    assert moved.settle()
    assert device.recorded == fences.last == 1


@pytest.mark.parametrize("seed", range(examples(8)))
def test_the_event_of_an_incomplete_fence_is_found_by_its_number(seed: int) -> None:
    chance, device = random.Random(seed), Device()
    fences, _ = device.timeline()
    for _ in range(200):
        fences.insert()
        device.done = chance.randint(device.done, min(device.done + 3, device.recorded))
        if chance.random() < 0.3:
            fences.update(fences.completed + 1)
        for number in range(fences.completed + 1, fences.last + 1):
            assert fences.event(number).point == number
    assert len(device.made) == len(fences.events) <= 200


@pytest.mark.skipif(is_compiled(), reason="compiled code takes no stand-ins for the run and its operator")
def test_an_operator_that_moves_while_the_device_is_behind_keeps_nothing_for_its_former_stream() -> None:
    class Frame:
        pass

    operator = SimpleNamespace(_headrace=SimpleNamespace(max_in_flight=1))
    run_streams: Any = SimpleNamespace(watch=Watch())
    node: Any = SimpleNamespace(operator=operator, name="moves", has_extra_work=False)
    lifetimes = Lifetimes(run_streams, node)
    lifetimes.add_reader(Device().timeline()[0])
    received = Frame()
    is_kept = ref(received)
    lifetimes.held.received.append(received)
    del received
    lifetimes.end_compute()
    assert lifetimes.full is lifetimes.readers[0]
    lifetimes.move(Device().timeline()[0])
    assert lifetimes.full is lifetimes.readers[0]
    assert is_kept() is not None
    lifetimes.clear()
    assert is_kept() is None
