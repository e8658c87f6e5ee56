"""Operators that share a stream keep what they hand to each other together, while the device keeps up."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from headrace._runtime.messages.managed_stream import ManagedStream
from headrace._runtime.streams import branch_frames
from headrace._runtime.streams.branch import Branch
from headrace._runtime.streams.branch_frames import BranchFrames
from headrace._runtime.streams.held_frames import HeldFrames
from headrace._runtime.streams.owners import take_each_once
from headrace._runtime.streams.watch import Watch
from headrace.tensor.libraries import owner_sizes

MEMBERS = 2
STEP, MOST = 12 * MEMBERS, 96


class Memory:
    """The owner of the memory of a frame."""

    def __init__(self, size: int = 16) -> None:
        self.size = size


class Stream:
    """A stream whose events are complete when the test says so."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 1

    def __init__(self) -> None:
        self.recorded = self.done = 0

    def create_event(self) -> Any:
        stream = self

        class Event:
            number = 0

            @property
            def is_done(self) -> bool:
                return self.number <= stream.done

        return Event()

    def wait(self, event: Any) -> None:
        pass

    def record(self, event: Any) -> None:
        self.recorded += 1
        event.number = self.recorded


class User:
    def streams(self) -> list[Any]:
        return []


class Kept:
    """The frames of a branch of two operators, the host's clock, that of the run, and the stream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(owner_sizes, Memory, lambda memory: memory.size)
        self.now = self.timestamp = 0
        monkeypatch.setattr(branch_frames, "monotonic_ns", lambda: self.now)
        self.stream = Stream()
        self.branch = Branch(SimpleNamespace(), True)  # type: ignore[arg-type]
        self.nodes = [SimpleNamespace(remaining=10**6) for _ in range(MEMBERS)]
        for node in self.nodes:
            self.branch.join(node, [], lambda: None)
        managed = ManagedStream(self.stream, 0, self.stream.create_event)
        self.watch = Watch()
        self.frames = BranchFrames(self.branch, managed, self.watch)
        self.held = HeldFrames(self.watch, User())
        self.keeper: Any
        self.keeper = SimpleNamespace(held=self.held, readers=[])
        self.frames.begin(self.keeper, 0)

    def receive(self, count: int, size: int = 16) -> list[ref[Memory]]:
        """Receive frames that nobody holds."""
        made = [Memory(size) for _ in range(count)]
        self.frames.received += made
        self.nodes[0].remaining -= count
        return [ref(each) for each in made]

    def look(self) -> bool:
        """Look as often as there is something to do."""
        while len(self.frames.received) >= self.frames.look_at:
            before = self.frames.look_at
            if not self.frames.look(self.timestamp):
                return False
            if self.frames.look_at > before:
                break
        return True


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def alive(frames: list[ref[Memory]]) -> int:
    return sum(each() is not None for each in frames)


def test_frames_live_until_the_stream_has_completed_its_work_on_them(kept: Kept) -> None:
    first = kept.receive(MOST)
    assert kept.look()
    assert kept.stream.recorded == 1
    kept.stream.done = 1
    second = kept.receive(MOST)
    assert kept.look()  # which takes the first ones, and inserts the fence that they live until
    assert (alive(first), kept.stream.recorded) == (MOST, 2)
    kept.receive(MOST)
    kept.stream.done = 2
    assert kept.look()
    assert (alive(first), alive(second)) == (0, MOST)


def test_a_device_that_is_behind_ends_it(kept: Kept) -> None:
    first = kept.receive(MOST)
    assert kept.look()
    second = kept.receive(MOST)
    assert not kept.look()
    assert kept.frames.look_at == 0
    assert not kept.frames.look(0)
    kept.frames.hand_over(kept.held)
    assert (alive(first), alive(second), len(kept.held.received)) == (MOST, MOST, 2 * MOST)
    assert not kept.frames.received


def test_it_ends_when_the_operators_are_to_probe(kept: Kept) -> None:
    """They take so long that streams of their own may pay. If not, they go on as before, for longer and longer."""
    ends: list[int] = []
    for number in range(40):
        kept.receive(MOST)
        kept.timestamp += MOST * 61_000
        kept.stream.done = kept.stream.recorded
        if not kept.look():
            ends.append(number)
            assert kept.frames.look_at == 0
            kept.frames.begin(kept.keeper, kept.timestamp)
            kept.frames.end()
    assert ends == [0, 8, 24]
    assert not kept.branch.is_split


def test_it_goes_on_after_probes_however_many_frames_a_compute_receives(kept: Kept) -> None:
    kept.receive(MOST)
    kept.timestamp += MOST * 61_000
    assert not kept.look()
    assert kept.frames.are_to_probe
    kept.frames.begin(kept.keeper, kept.timestamp)
    assert not kept.frames.are_to_probe
    for _ in range(6):
        kept.receive(MOST)
        kept.nodes[0].remaining += MOST - 1
        kept.stream.done = kept.stream.recorded
        assert kept.look()


def test_it_ends_when_the_branch_splits(kept: Kept) -> None:
    kept.branch.split()
    kept.receive(MOST)
    assert not kept.look()
    assert kept.frames.look_at == 0


def test_it_begins_again_where_it_ended(kept: Kept) -> None:
    kept.receive(MOST)
    assert kept.look()
    kept.receive(MOST)
    assert not kept.look()
    kept.frames.hand_over(kept.held)
    kept.held.clear()
    kept.frames.begin(kept.keeper, 0)
    kept.stream.done = kept.stream.recorded
    frames = kept.receive(STEP)
    assert kept.look()
    assert alive(frames) == STEP


def test_what_was_kept_together_is_released_when_the_stream_has_completed_its_work(kept: Kept) -> None:
    frames = kept.receive(MOST)
    held = [frames[0]()]
    assert kept.look()
    assert not kept.frames.settle(kept.timestamp)  # they still keep together, and have looked just now
    frames += kept.receive(MOST)
    assert not kept.look()
    assert not kept.frames.settle(kept.timestamp)  # the fence of the last look is not complete
    kept.stream.done = kept.stream.recorded
    assert not kept.frames.settle(kept.timestamp)
    assert alive(frames) == 2 * MOST
    kept.stream.done = kept.stream.recorded
    assert not kept.frames.settle(kept.timestamp)
    assert alive(frames) == 1
    held.clear()
    for _ in range(2):
        assert alive(frames) == 1
        is_over = kept.frames.settle(kept.timestamp)
        kept.stream.done = kept.stream.recorded
    assert (alive(frames), is_over) == (0, True)


def test_frames_are_released_although_those_that_keep_together_receive_nothing(kept: Kept) -> None:
    frames = kept.receive(STEP - 1)
    for _ in range(3):
        assert not kept.frames.settle(kept.timestamp)
        assert alive(frames) == STEP - 1
        kept.now += 20_000_000
        kept.stream.done = kept.stream.recorded
    assert not kept.frames.settle(kept.timestamp)
    assert alive(frames) == 0
    assert kept.frames.look_at > 0


def test_it_ends_with_the_last_operator_that_keeps_there(kept: Kept) -> None:
    kept.frames.begin(kept.keeper, 0)
    kept.frames.end()
    assert kept.frames.look_at > 0
    kept.frames.end()
    assert kept.frames.look_at == 0


def test_an_operator_may_also_keep_by_itself_what_is_kept_together(kept: Kept) -> None:
    frames = kept.receive(MOST)
    held = frames[0]()
    for _ in range(2):
        assert kept.look()
        kept.stream.done = kept.stream.recorded
        frames += kept.receive(MOST)
    kept.frames.received += kept.frames.received[:]
    kept.frames.copy_to(kept.held)
    assert len(kept.held.received) == len(set(kept.held.received)) == 2 * MOST
    assert [each.owner for each in kept.held.watched.values()] == [held]
    assert len(kept.frames.received) == 4 * MOST
    assert kept.frames._held.watched == kept.held.watched


def test_what_an_operator_keeps_so_far_comes_along(kept: Kept) -> None:
    own, released, watched = Memory(), Memory(), Memory()
    kept.held.received.append(own)
    record = kept.watch.begin(watched)
    kept.held.watched[id(watched)] = record
    frames = [released, kept.watch.begin(released)]
    kept.keeper.readers = [SimpleNamespace(frames=frames, take_frames=lambda: frames)]
    assert kept.frames.begin(kept.keeper, 0)
    assert kept.frames.received == [own, released, released]
    assert (kept.held.received, kept.held.watched) == ([], {})
    kept.frames.hand_over(kept.held)
    assert len(kept.held.received) == 2
    assert [each.owner for each in kept.held.watched.values()] == [watched]


def test_frames_that_are_held_live_until_they_are_not(kept: Kept) -> None:
    frames = kept.receive(MOST)
    held = [frames[0](), frames[5]()]
    for _ in range(3):
        assert kept.look()
        kept.stream.done = kept.stream.recorded
        kept.receive(MOST)
    assert kept.look()
    assert alive(frames) == 2
    held.clear()
    assert alive(frames) == 2  # the stream may still read them
    for _ in range(2):
        kept.receive(MOST)
        kept.stream.done = kept.stream.recorded
        assert kept.look()
    assert alive(frames) == 0


def test_a_frame_with_several_receivers_is_released_as_others(kept: Kept) -> None:
    frames = kept.receive(MOST // 2)
    kept.frames.received += kept.frames.received[:]
    for _ in range(3):
        assert kept.look()
        kept.stream.done = kept.stream.recorded
        kept.receive(MOST)
    assert alive(frames) == 0
    assert not kept.frames._held.watched


def test_a_look_comes_soon_if_frames_are_rare(kept: Kept) -> None:
    for _ in range(STEP):
        kept.receive(1)
        kept.now += 1_000_000
    assert kept.look()
    assert kept.stream.recorded == 1


def test_a_look_comes_soon_if_frames_are_not_small(kept: Kept) -> None:
    kept.receive(2 * STEP - 1, 200 << 10)
    assert kept.look()
    assert kept.stream.recorded == 1
    assert not kept.frames.is_heavy


@pytest.mark.parametrize("size", [1 << 20, None])
def test_it_ends_for_good_if_frames_are_large_or_of_unknown_size(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    if size is None:
        monkeypatch.delitem(owner_sizes, Memory)
    frames = kept.receive(STEP, size or 16)
    assert not kept.look()
    assert (kept.frames.is_heavy, kept.frames.look_at) == (True, 0)
    kept.frames.hand_over(kept.held)
    assert alive(frames) == STEP


def test_an_operator_with_large_frames_keeps_them_by_itself(kept: Kept) -> None:
    small, large = kept.watch.begin(Memory()), Memory(1 << 20)
    kept.held.received.append(small.owner)
    kept.keeper.readers = [SimpleNamespace(frames=[small, large])]
    assert not kept.frames.begin(kept.keeper, 0)
    assert (kept.frames.received, kept.held.received) == ([], [small.owner])


def test_small_frames_are_looked_at_seldom(kept: Kept) -> None:
    for _ in range(MOST - 1):
        kept.receive(1)
        assert kept.look()
    assert kept.stream.recorded == 0
    kept.receive(1)
    assert kept.look()
    assert kept.stream.recorded == 1


def test_one_operator_looks_at_a_time(kept: Kept) -> None:
    kept.receive(MOST)
    with kept.frames._lock:
        assert kept.frames.look(0)
    assert kept.stream.recorded == 0


def test_frames_that_come_from_others_meanwhile_are_kept(kept: Kept) -> None:
    """Two operators receive on two threads, and a third one looks."""
    received = [[Memory() for _ in range(2_000)] for _ in range(2)]
    threads = [
        threading.Thread(target=lambda frames=frames: deque(map(kept.frames.received.append, frames), 0))
        for frames in received
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert kept.look()
        kept.stream.done = kept.stream.recorded
    kept.frames.hand_over(kept.held)
    assert not kept.frames.received
    assert {id(each) for each in kept.held.received} | kept.held.watched.keys() == {
        id(each) for frames in received for each in frames
    }


def test_bytes_are_those_of_the_entries_that_are_left(kept: Kept) -> None:
    """However often they are counted, and whatever came before."""
    for size in (16, 32, 64, 16):
        frames = kept.receive(MOST, size)
        assert kept.look()
        kept.stream.done = kept.stream.recorded
        assert (kept.frames._bytes, kept.frames._counted) == (MOST * size, MOST)
        assert len(kept.frames.received) == len(frames) == MOST


class Equal(Memory):
    """Memory that is equal to all other such memory, and has no hash."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("kinds", [(Memory,), (Equal,), (Memory, Equal)])
def test_each_owner_is_taken_once_whatever_it_says_of_itself(kinds: tuple[type[Memory], ...]) -> None:
    made = [kind() for _ in range(3) for kind in kinds]
    owners = [*made, made[0], made[-1], *made]
    taken = take_each_once(owners, 2 * len(made))
    assert list(map(id, taken)) == list(map(id, made))
    assert list(map(id, owners)) == list(map(id, made[-2:]))
