"""The fences on a stream: what lives until they complete, how often events are queried, how they are used again."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from headrace._runtime.messages.envelope import Envelope
from headrace._runtime.messages.fences import Fences, ManagedStream
from headrace._runtime.scheduling.engine import is_compiled
from headrace._runtime.streams.lifetimes import Lifetimes, StreamFrames
from headrace._runtime.streams.owners import Watch
from tests.limits import examples

no_stand_ins = pytest.mark.skipif(is_compiled(), reason="compiled code takes no stand-ins for an operator")


class Device:
    """A stream that has done so much of its work, and counts what it is asked."""

    def __init__(self) -> None:
        self.recorded = 0
        self.done = 0
        self.made: list[Event] = []
        self.queries = 0

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

    def managed(self) -> ManagedStream:
        return ManagedStream(self, 0, self.create_event)

    def fences(self) -> Fences:
        return Fences(self.managed())

    def timeline(self, limit: int = 8) -> tuple[Fences, Computes]:
        frames = StreamFrames(self.managed(), Watch(), is_shared=False)
        return frames.fences, Computes(frames, limit)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.point = 0
        self.is_free = True

    @property
    def is_done(self) -> bool:
        self.device.queries += 1
        return self.point <= self.device.done


class Frame:
    """A frame that the program drops as soon as it has received it."""


class Computes:
    """The computes of an operator that receives a frame in each of them, and holds none."""

    def __init__(self, frames: StreamFrames, limit: int) -> None:
        node: Any = SimpleNamespace(inputs=(), has_extra_work=False)
        self.frames = frames
        self.lifetimes = Lifetimes(node, frames, limit)
        self.frames_made: list[ref[Frame]] = []
        self.began_at: list[int] = []

    def receive(self) -> Any:
        """Receive a frame, which is dropped when the result is called."""
        frame = Frame()
        self.frames_made.append(ref(frame))
        self.lifetimes.held.received.append(frame)
        return [frame].clear

    def end(self) -> None:
        """End a compute that received a frame."""
        self.receive()()
        self.lifetimes.note_compute()

    def check(self) -> None:
        self.lifetimes.check()

    @property
    def is_full(self) -> bool:
        return self.lifetimes.is_full

    @property
    def held(self) -> list[int]:
        """The frames that are alive, by number."""
        return [number for number, frame in enumerate(self.frames_made) if frame() is not None]


def emit(fences: Fences, data: Any = None) -> Envelope:
    return fences.stamp(data)


# -- what is kept ------------------------------------------------------------------------------------


@no_stand_ins
def test_what_is_kept_lives_until_a_fence_after_it_is_complete() -> None:
    device = Device()
    fences, computes = device.timeline()
    emit(fences)  # a fence that came before the end of the compute says nothing about it
    computes.end()
    device.done = device.recorded
    computes.check()
    assert computes.held == [0]
    emit(fences)
    computes.check()
    assert computes.held == [0]
    device.done = device.recorded
    computes.check()
    assert computes.held == []


@no_stand_ins
@pytest.mark.parametrize(("behind", "most"), [(0, 0.5), (1, 0.9), (3, 1.1)])
def test_the_device_is_queried_once_for_several_computes(behind: int, most: float) -> None:
    device = Device()
    fences, computes = device.timeline()
    for _ in range(600):
        emit(fences)
        device.done = max(device.recorded - 1 - behind, 0)
        computes.end()
        assert not computes.is_full
    assert device.queries <= most * 600


@no_stand_ins
@pytest.mark.parametrize("limit", [1, 3, 8, 64])
def test_any_number_of_fences_in_a_compute_and_any_pace_of_the_device(limit: int) -> None:
    """Finding an event to record may complete fences that what is kept waits for, before that is released."""
    for seed in range(examples(100)):
        some = random.Random(seed)
        device = Device()
        fences, computes = device.timeline(limit)
        emits, pace = some.choice([0, 1, 5, 12, 30]), some.choice([0, 1, 3, 20])
        ends: list[int] = []  # what had been recorded at the end of each compute
        for _ in range(60):
            for _ in range(some.randint(0, emits)):
                emit(fences)
                device.done = min(device.done + some.randint(0, pace), device.recorded)
            ends.append(device.recorded)
            computes.end()
            while computes.is_full and computes.lifetimes.is_still_full():
                device.done += 1
            alive = set(computes.held)
            assert all(device.done > ends[n] for n in range(len(ends)) if n not in alive)
            assert len(computes.lifetimes.numbers) < limit or limit == 1


@no_stand_ins
@pytest.mark.parametrize("releases", ["settle", "clear"])
def test_the_last_computes_are_released_where_no_other_follows(releases: str) -> None:
    device = Device()
    _, computes = device.timeline()
    for _ in range(3):
        computes.end()
    if releases == "clear":  # the device has finished
        computes.frames.clear()
        assert (computes.held, computes.lifetimes.numbers) == ([], [])
        return
    assert not computes.lifetimes.settle()
    assert len(computes.held) == 3
    inserted = device.recorded
    assert not computes.lifetimes.settle()
    assert device.recorded == inserted, "one fence is enough"
    device.done = device.recorded
    assert any(computes.lifetimes.settle() for _ in range(3))  # the newest fences are not looked at first
    assert computes.held == []


# -- several operators on one stream -----------------------------------------------------------------


# -- events ------------------------------------------------------------------------------------------


@no_stand_ins
@pytest.mark.parametrize("behind", [0, 1, 3, 7])
def test_an_event_is_recorded_again_only_when_it_is_done(behind: int) -> None:
    device = Device()
    fences, computes = device.timeline(limit=12)
    for _ in range(500):
        emit(fences)
        computes.end()
        assert not computes.is_full
        device.done = max(device.recorded - behind, 0)
    assert len(device.made) <= 20


@no_stand_ins
def test_an_event_that_was_lent_is_never_recorded_again() -> None:
    device = Device()
    fences, computes = device.timeline()
    lent = [emit(fences).event for _ in range(3)][1]
    fences.lend(lent)
    point = lent.point
    for _ in range(100):
        emit(fences)
        device.done = device.recorded
        computes.end()
    assert lent.point == point
    assert len(device.made) <= 20


def test_a_fence_is_found_complete_if_its_event_is_recorded_again_while_it_is_asked_for() -> None:
    device = Device()
    fences = device.fences()
    usual = fences.insert()

    class Asked(Event):
        @property
        def is_done(self) -> bool:
            device.done = device.recorded
            fences.update(1)
            assert fences.insert() is usual  # by the thread of the sender
            return usual.is_done

    assert fences.is_complete(1, Asked(device))


# -- in programs -------------------------------------------------------------------------------------
