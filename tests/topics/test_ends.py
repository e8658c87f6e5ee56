"""A publication and its subscriptions, which come and go in any order, over real sockets in one process."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any

import numpy as np
import pytest

from headrace.core.errors import TopicError
from headrace.link.handshake import Purpose
from headrace.topics import Publication, TopicFolder
from tests.harness import wait_until
from tests.topics.ends import (
    FAULT,
    POP,
    REJECT,
    await_connection,
    await_idle,
    await_subscribers,
    published,
    reading,
)


def test_a_message_arrives_with_its_types_metadata_and_time() -> None:
    data = {"boxes": np.arange(6, dtype=np.int16).reshape(2, 3), "names": ["a", "b"], "score": 0.5}
    with published() as publication, reading() as reader:
        await_subscribers(publication)
        publication.publish(data, acq_timestamp=7, metadata={"camera": "left"})
        message = reader.next()
    assert message.data["boxes"].dtype == np.int16
    assert np.asarray(message.data["boxes"]).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (message.data["names"], message.data["score"]) == (["a", "b"], 0.5)
    assert (message.acq_timestamp, message.metadata, message.number) == (7, {"camera": "left"}, 1)


def test_a_subscriber_that_comes_first_waits_for_the_publisher() -> None:
    with reading() as reader:
        assert not reader.subscription.is_connected
        with published() as publication:
            await_subscribers(publication)
            publication.publish("here")
            assert reader.next().data == "here"
            assert reader.subscription.description["pid"] == os.getpid()


def test_a_late_subscriber_gets_the_last_message() -> None:
    with published() as publication:
        publication.publish(1)
        publication.publish(2)
        with reading() as reader:
            assert reader.next().data == 2
            publication.publish(3)
            assert reader.next().data == 3
            assert reader.subscription.missed == 0


@pytest.mark.parametrize(("keep_last", "wants_last"), [(False, True), (True, False)])
def test_a_late_subscriber_gets_only_later_messages_if_either_end_wants_that(
    keep_last: bool, wants_last: bool
) -> None:
    with published(keep_last=keep_last) as publication:
        publication.publish(1)
        with reading(wants_last=wants_last) as reader:
            await_subscribers(publication)
            publication.publish(2)
            assert reader.next().data == 2
            assert reader.subscription.missed == 0


def test_every_subscriber_gets_each_message() -> None:
    with published(policy=FAULT) as publication:
        with reading(policy=FAULT) as one, reading(policy=FAULT) as two:
            await_subscribers(publication, 2)
            for value in range(3):
                wait_until(lambda: publication.has_room, "room")
                publication.publish(value)
            assert one.values(3) == two.values(3) == [0, 1, 2]
        await_subscribers(publication, 0)
        assert (publication.sent, publication.lost) == (6, 0)


def test_what_a_slow_subscriber_loses_is_counted_at_both_ends() -> None:
    with published() as publication, reading(policy=FAULT) as slow, reading() as fast:
        await_subscribers(publication, 2)
        publication.publish(0)
        await_idle(publication)  # it keeps this one, and takes no more
        for value in range(1, 10):
            publication.publish(value)
            while fast.next().data != value:
                pass
        assert slow.next().data == 0
        assert slow.next().data == 9
        assert slow.subscription.missed == 8
        assert fast.subscription.missed == 0
        await_idle(publication)
        assert publication.lost == 8


def test_an_inbox_keeps_the_newest_and_counts_the_others() -> None:
    with published(size=100) as publication, reading(size=2) as reader:
        await_subscribers(publication)
        for value in range(10):
            publication.publish(value)
        wait_until(lambda: publication.sent == 10, "ten messages were sent")
        wait_until(lambda: [each.data for _, each in reader.subscription._inbox] == [8, 9], "they arrived")
        assert reader.values(2) == [8, 9]
        assert (reader.subscription.received, reader.subscription.missed) == (2, 8)


def test_with_reject_the_oldest_stay() -> None:
    with published(policy=REJECT) as publication, reading(policy=FAULT) as reader:
        await_subscribers(publication)
        publication.publish(0)
        await_idle(publication)
        publication.publish(1)
        wait_until(lambda: len(publication.subscribers[0].outbox) == 1, "the message waits")
        publication.publish(2)
        assert reader.values(2) == [0, 1]
        assert publication.lost == 1


def test_with_fault_there_is_no_room_until_the_subscriber_takes_a_message() -> None:
    told = threading.Event()
    with (
        published(policy=FAULT, on_room=told.set) as publication,
        reading(policy=FAULT) as reader,
    ):
        await_subscribers(publication)
        publication.publish(0)
        await_idle(publication)
        assert publication.has_room
        publication.publish(1)
        assert not publication.has_room
        assert not publication.is_idle
        assert reader.next().data == 0
        wait_until(lambda: publication.has_room, "room")
        assert reader.next().data == 1
        assert publication.lost == reader.subscription.missed == 0


def test_the_end_of_a_topic_comes_after_its_last_message() -> None:
    with reading() as reader:
        with published() as publication:
            await_subscribers(publication)
            publication.publish("last")
            await_idle(publication)
        reader.wait_for_end()
        assert reader.next().data == "last"


def test_a_subscriber_goes_on_with_the_next_publisher_and_counts_what_it_missed() -> None:
    with reading() as reader:
        with published() as publication:
            await_subscribers(publication)
            publication.publish("first")
            assert reader.next().data == "first"
        reader.wait_for_end()
        with published(keep_last=False) as publication:
            publication._subscribers = Deaf()  # type: ignore[assignment]  # it has not found it yet
            publication.publish("nobody hears this")
            publication._subscribers = []
            await_connection(reader, 2)
            await_subscribers(publication)
            publication.publish("second")
            assert reader.next().data == "second"
            assert reader.subscription.missed == 1
            assert not reader.subscription.has_ended


class Deaf(list[Any]):
    """Subscribers that are not there."""

    def append(self, subscriber: Any) -> None:
        raise AssertionError("the test is too late")
