"""What an operator received and was not ordered after: who waits for it, and what carries it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.runtime.order import Order


class Stream:
    """A stream that knows what it was told to wait for."""

    def __init__(self) -> None:
        self.waited: list[Any] = []

    def wait(self, event: Any) -> None:
        self.waited.append(event)


class Trail:
    def __init__(self, stream: Any = None, passed: int = 0) -> None:
        self.stream = stream or Stream()
        self.passed = passed
        self.marked = 0

    def mark(self) -> str:
        self.marked += 1
        return f"own {self.marked}"


def message(trail: Trail | None, number: int = 1, also: Any = None) -> Any:
    return SimpleNamespace(trail=trail, number=number, event=f"event {number}", also=also)


def test_a_stream_waits_for_each_mark_once() -> None:
    order, source, stream = Order(), Trail(), Stream()
    order.add_message(message(source, 3), turn=1)
    for _ in range(3):
        order.settle(stream, is_only=False)
    assert stream.waited == ["event 3"]
    order.add_message(message(source, 4), turn=2)
    order.settle(stream, is_only=False)
    assert stream.waited == ["event 3", "event 4"]


def test_every_stream_that_is_emitted_waits() -> None:
    order, source = Order(), Trail()
    streams = [Stream(), Stream()]
    order.add_message(message(source), turn=1)
    for stream in streams:
        order.settle(stream, is_only=False)
    assert [stream.waited for stream in streams] == [["event 1"]] * 2
    order.settle(Stream(), is_only=True)
    assert not order.pending


def test_nothing_waits_for_what_is_done_nor_for_itself() -> None:
    order, stream = Order(), Stream()
    order.add_message(message(Trail(passed=5), 5), turn=1)
    order.add_message(message(Trail(stream), 1), turn=1)
    order.settle(stream, is_only=False)
    assert stream.waited == []
    assert len(order.pending) == 1  # another stream might have to wait for that one


def test_the_latest_mark_of_a_trail_stands_for_all() -> None:
    order, source, stream = Order(), Trail(), Stream()
    for number in (4, 6, 5):
        order.add_message(message(source, number), turn=1)
    order.settle(stream, is_only=True)
    assert stream.waited == ["event 6"]


def test_further_marks_of_a_message_are_remembered_too() -> None:
    order, one, other, stream = Order(), Trail(), Trail(), Stream()
    order.add_message(message(one, 1, also=((other, 7, "event 7"),)), turn=1)
    order.settle(stream, is_only=True)
    assert stream.waited == ["event 1", "event 7"]


def test_what_is_emitted_without_a_stream_carries_what_is_not_done_and_what_came_last() -> None:
    order = Order()
    first, done, last = Trail(), Trail(), Trail()
    for source in (first, last, done, last):
        order.add_message(message(source), turn=1)
    done.passed = last.passed = 1
    assert [mark[0] for mark in order.marks(turn=1)] == [first, last]
    assert [mark[0] for mark in order.marks(turn=2)] == [first]
    assert list(order.pending) == [first]


def test_a_stream_that_is_joined_is_waited_for_at_each_emit() -> None:
    order, own, stream = Order(), Trail(), Stream()
    order.join(own)
    order.settle(stream, is_only=True)
    order.settle(stream, is_only=True)
    assert stream.waited == ["own 1", "own 2"]
    assert order.marks(turn=1) == [(own, 3, "own 3")]


def test_what_was_ordered_by_hand_is_not_waited_for() -> None:
    order, source, stream = Order(), Trail(), Stream()
    order.add_message(message(source), turn=1)
    order.is_ordered(stream, [source.stream])
    order.settle(stream, is_only=False)
    assert stream.waited == []
