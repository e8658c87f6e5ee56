"""What an operator received and was not ordered after: who waits for it, and what carries it."""

from __future__ import annotations

from itertools import count
from typing import Any

from headrace._runtime.messages.envelope import Envelope, stamping
from headrace._runtime.messages.fences import Fences
from headrace._runtime.messages.managed_stream import ManagedStream
from headrace._runtime.streams.order import Order

_HANDLES = count(1)


class Event:
    is_done = False


class Device:
    """A stream that does nothing, and knows what it was told to wait for."""

    def __init__(self) -> None:
        self.handle = next(_HANDLES)
        self.waited: list[Any] = []

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def record(self, event: Event) -> None:
        pass

    def wait(self, event: Event) -> None:
        self.waited.append(event)


def stream() -> ManagedStream:
    return ManagedStream(Device(), 0, Event)


def timeline(on: ManagedStream | None = None) -> Fences:
    return Fences(on or stream())


def emit(fences: Fences, data: Any) -> Envelope:
    return stamping(fences)(data)


def test_a_stream_waits_for_each_fence_once() -> None:
    order, source, own = Order(), timeline(), stream()
    first = emit(source, "first")
    order.add_message(first, turn=1)
    for _ in range(3):
        order.settle(own, is_only=False)
    assert own.stream.waited == [first.event]
    second = emit(source, "second")
    order.add_message(second, turn=2)
    order.settle(own, is_only=False)
    assert own.stream.waited == [first.event, second.event]


def test_every_stream_that_is_emitted_waits() -> None:
    order, source = Order(), timeline()
    message = emit(source, "frame")
    order.add_message(message, turn=1)
    streams = [stream(), stream()]
    for own in streams:
        order.settle(own, is_only=False)
    assert [own.stream.waited for own in streams] == [[message.event]] * 2
    order.settle(stream(), is_only=True)
    assert not order.pending


def test_nothing_waits_for_what_is_done_nor_for_itself() -> None:
    order, own, done = Order(), stream(), timeline()
    order.add_message(emit(done, "done"), turn=1)
    done.completed = 1
    order.add_message(emit(timeline(own), "its own"), turn=1)
    order.settle(own, is_only=False)
    assert own.stream.waited == []
    assert len(order.pending) == 1  # another stream might have to wait for that one


def test_the_latest_fence_of_a_timeline_stands_for_all() -> None:
    order, source, own = Order(), timeline(), stream()
    first, second, third = (emit(source, n) for n in range(3))
    for message in (first, third, second):
        order.add_message(message, turn=1)
    order.settle(own, is_only=True)
    assert own.stream.waited == [third.event]


def test_all_further_fences_of_a_message_are_remembered_too() -> None:
    order, one, own = Order(), timeline(), stream()
    message = emit(one, "frame")
    others = [timeline() for _ in range(3)]
    events = [other.insert() for other in others]
    message.set_more_fences(tuple((other, 1, event) for other, event in zip(others, events, strict=True)))
    order.add_message(message, turn=1)
    order.settle(own, is_only=True)
    assert own.stream.waited == [message.event, *events]


def test_what_is_emitted_without_a_stream_carries_what_is_not_done_and_what_came_last() -> None:
    order = Order()
    first, done, last = timeline(), timeline(), timeline()
    for source in (first, last, done, last):
        order.add_message(emit(source, "frame"), turn=1)
    done.completed = last.completed = 2
    assert [fence[0] for fence in order.pending_fences(turn=1)] == [first, last]
    assert [fence[0] for fence in order.pending_fences(turn=2)] == [first]
    assert list(order.pending) == [first]


def test_what_was_ordered_by_hand_is_not_waited_for() -> None:
    order, source, own = Order(), timeline(), stream()
    order.add_message(emit(source, "frame"), turn=1)
    order.note_ordered(own, [source.stream], turn=1)
    order.settle(own, is_only=False)
    assert own.stream.waited == []


def test_what_is_ordered_by_hand_again_and_again_is_remembered_once() -> None:
    order, producer, consumer = Order(), timeline(), stream()
    event = producer.insert()
    order.add(producer, 1, event)
    for _ in range(3):
        order.note_ordered(consumer, [producer.stream], turn=1)
    assert order.pending[producer].ordered == [consumer]


def test_what_was_ordered_by_hand_is_known_until_the_compute_is_over() -> None:
    order, one, other, own = Order(), stream(), stream(), stream()
    order.note_ordered(own, [one], turn=1)
    assert order.is_ordered_by_hand(own, one, turn=1)
    assert not order.is_ordered_by_hand(one, own, turn=1)
    assert not order.is_ordered_by_hand(own, other, turn=1)
    assert not order.is_ordered_by_hand(own, one, turn=2)
