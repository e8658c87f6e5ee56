"""What operators had kept when they left a shared stream lives while anybody holds it or reads it."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest

from headrace import gpu
from headrace._runtime.messages.managed_stream import ManagedStream, create_event
from headrace._runtime.streams.left_frames import LeftFrames
from headrace._runtime.streams.watch import Watched
from tests.harness import MS, launch


class Owner:
    """Owns the memory of a frame."""


class Frames:
    """The frames of two operators that have left a shared stream, each for one of its own."""

    def __init__(self) -> None:
        device = gpu.Device(0)
        self.shared, *self.own = [
            ManagedStream(device.create_stream(), 0, lambda: create_event(0)) for _ in range(3)
        ]
        self.left = LeftFrames(self.shared)
        self.held = [Owner(), Owner()]
        self.alive = [ref(owner) for owner in self.held]
        for owner, stream in zip(self.held, self.own, strict=True):
            self.left.add({id(owner): Watched(owner)}, stream)

    def launch(self, stream: ManagedStream) -> None:
        handle: Any = stream.handle
        launch(handle, MS, lambda out: None, gpu.Device(0).allocate(8, stream=stream.stream))

    @property
    def lives(self) -> list[bool]:
        return [owner() is not None for owner in self.alive]


@pytest.fixture
def frames() -> Frames:
    return Frames()


def test_frames_live_as_long_as_somebody_holds_them(frames: Frames) -> None:
    for _ in range(3):
        assert not frames.left.settle()
        assert frames.lives == [True, True]
    del frames.held[0]
    assert not frames.left.settle(), "the shared stream may read it"
    frames.shared.stream.sync()
    assert not frames.left.settle()
    assert frames.lives == [False, True]
    frames.held.clear()
    assert not frames.left.settle()
    frames.shared.stream.sync()
    assert frames.left.settle()
    assert frames.lives == [False, False]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_frames_live_until_each_stream_has_completed_its_work_on_them(frames: Frames, place: int) -> None:
    """An operator that has left may read what another one had kept."""
    streams = [frames.shared, *frames.own]
    frames.launch(streams[place])
    frames.held.clear()
    for _ in range(3):
        assert not frames.left.settle()
        assert frames.lives == [True, True]
    streams[place].stream.sync()
    frames.shared.stream.sync()
    assert frames.left.settle()
    assert frames.lives == [False, False]


def test_frames_that_are_released_later_wait_for_work_of_their_own(frames: Frames) -> None:
    frames.launch(frames.own[0])
    del frames.held[0]
    assert not frames.left.settle()
    frames.held.clear()
    frames.shared.stream.sync()
    frames.launch(frames.own[1])
    assert not frames.left.settle()
    assert frames.lives == [False, True]
    assert not frames.left.settle()
    assert frames.lives == [False, True]
    frames.shared.stream.sync()
    assert frames.left.settle()
    assert frames.lives == [False, False]


def test_an_operator_that_comes_while_another_one_settles_does_not_wait(frames: Frames) -> None:
    frames.held.clear()
    with frames.left._lock:
        assert not frames.left.settle()


def test_all_frames_are_released_when_the_streams_have_finished(frames: Frames) -> None:
    del frames.held[0]
    frames.launch(frames.own[0])
    assert not frames.left.settle()
    frames.left.clear()
    assert frames.lives == [False, True]
    frames.held.clear()
    assert frames.lives == [False, False]
