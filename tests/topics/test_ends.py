"""A publication and its subscriptions, which come and go in any order, over real sockets in one process."""

from __future__ import annotations

import gc
import logging
import os
import select
import shutil
import socket
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace.core.errors import AuthenticationError, LinkError, TopicError
from headrace.link.handshake import Purpose
from headrace.resources import RingAllocator
from headrace.topics import Publication, Subscription, TopicFolder
from headrace.topics.topic_end import SubscribeRequest
from tests.harness import PATIENCE, wait_until
from tests.topics.ends import (
    FAULT,
    Reader,
    await_connection,
    await_idle,
    await_subscribers,
    link_of,
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


def test_subscribers_follow_the_newest_publisher_though_its_clock_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a restart on another host, whose clock differs by 3 s."""
    with published(), reading() as reader:
        await_connection(reader)
        behind = time.time_ns() - 3 * 10**9
        clock = SimpleNamespace(**vars(time) | {"time_ns": lambda: behind})
        monkeypatch.setattr("headrace.topics.publication.time", clock)
        with published() as restarted:
            await_subscribers(restarted)
            restarted.publish("new")
            assert reader.next().data == "new"


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
    with published(keep_last=keep_last, size=2) as publication:
        publication.publish(1)
        with reading(wants_last=wants_last, size=2) as reader:
            await_subscribers(publication)
            publication.publish(2)  # for which no queue drops the first
            assert reader.next().data == 2
            assert reader.subscription.missed == 0


def test_what_a_slow_subscriber_loses_is_counted_at_both_ends() -> None:
    with published() as publication, reading(policy=FAULT) as slow, reading() as fast:
        await_subscribers(publication, 2)
        publication.publish(0)
        await_idle(publication)  # it keeps this one, and takes no more
        assert fast.next().data == 0
        for value in range(1, 10):
            publication.publish(value)
            assert fast.next().data == value
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


def test_an_outbox_keeps_its_size_while_the_device_still_works_on_a_message() -> None:
    begun, done = threading.Event(), threading.Event()

    class Work:
        def sync(self) -> None:
            begun.set()
            done.wait(PATIENCE)

    with published() as publication, reading() as reader:
        await_subscribers(publication)
        publication.publish(0, event=Work())
        assert begun.wait(PATIENCE)
        for value in range(1, 6):
            publication.publish(value)
        assert [len(each.outbox) for each in publication.subscribers] == [1]
        assert publication.lost == 4
        done.set()
        while reader.next().data != 5:
            pass


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
        with published() as publication:
            for value in range(5):
                publication.publish(value)
            await_connection(reader, 2)
            while reader.next().data != 4:
                pass
            assert reader.subscription.received + reader.subscription.missed == 6
            assert not reader.subscription.has_ended


def test_a_subscriber_follows_the_newest_publisher_and_returns_to_the_one_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with published() as old, reading() as reader:
        await_subscribers(old)
        old.publish("old")
        assert reader.next().data == "old"
        with caplog.at_level(logging.WARNING), published() as new:
            assert "published by process" in caplog.text
            await_subscribers(new)
            await_subscribers(old, 0)
            old.publish("unheard")
            new.publish("new")
            assert reader.next().data == "new"
        assert reader.next().data == "unheard"  # the last message of the old one
        old.publish("old again")
        assert reader.next().data == "old again"


def test_a_connection_that_broke_is_made_again_and_no_message_comes_twice() -> None:
    with published() as publication, reading() as reader:
        await_subscribers(publication)
        publication.publish(1)
        assert reader.next().data == 1
        link_of(reader).receiver._carrier._socket.shutdown(socket.SHUT_RDWR)
        await_connection(reader, 2)
        publication.publish(2)
        assert reader.next().data == 2
        assert reader.subscription.missed == 0


def test_a_message_that_cannot_be_sent_is_reported_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with published() as publication, reading() as reader:
        await_subscribers(publication)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                publication.publish(threading.Lock())
                await_idle(publication)
        publication.publish("fine")
        assert reader.next().data == "fine"
        assert (publication.lost, reader.subscription.missed) == (2, 2)
    assert len([record for record in caplog.records if "logged once" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    "said",
    [
        SubscribeRequest("b").purpose(),
        Purpose("topic", "a"),
        SubscribeRequest("a").purpose()._replace(kind="link"),
    ],
)
def test_a_connection_that_wants_something_else_is_refused(said: Purpose) -> None:
    folder = TopicFolder()
    with published() as publication, reading() as reader:
        await_subscribers(publication)
        with pytest.raises(LinkError):
            folder.connect(max(folder.publishers("a")), said)
        publication.publish("goes on")
        assert reader.next().data == "goes on"
        assert len(publication.subscribers) == 1


def test_a_stranger_that_says_nothing_or_nonsense_harms_nobody() -> None:
    folder = TopicFolder()
    with published() as publication:
        place = folder.path / max(folder.publishers("a")).place
        silent, noisy = (socket.socket(socket.AF_UNIX) for _ in range(2))
        with silent, noisy:
            silent.connect(str(place))
            noisy.connect(str(place))
            noisy.send(b"GET / HTTP/1.1")
            with reading() as reader:
                await_subscribers(publication)
                publication.publish("goes on")
                assert reader.next().data == "goes on"


def test_a_subscriber_that_falls_silent_is_given_up_also_with_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with published(policy=FAULT) as publication, reading(policy=FAULT) as reader:
        await_subscribers(publication)
        (subscriber,) = publication.subscribers
        link = link_of(reader)
        monkeypatch.setattr(reader.subscription, "_follow_newest", lambda: None)  # it does not connect again
        link.receiver._loop.remove(link.receiver)  # it answers no more
        for value in range(2):
            wait_until(lambda: publication.has_room, "room")
            publication.publish(value)
        subscriber.sender.tick(time.monotonic() + 3600.0)
        await_subscribers(publication, 0)
        assert publication.has_room
        assert publication.is_idle
        assert "PeerLost" in caplog.text


def test_a_subscriber_that_connects_and_never_answers_does_not_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.topics.publication._PATIENCE", 0.1)
    folder = TopicFolder()
    with published(policy=FAULT) as publication:
        mute = folder.connect(max(folder.publishers("a")), SubscribeRequest("a").purpose())
        for value in range(3):
            publication.publish(value)
            assert publication.has_room
        wait_until(lambda: "it has not answered" in caplog.text, "it was given up")
        wait_until(lambda: not publication._arriving, "it is forgotten")
        assert publication.subscribers == []
        assert publication.is_idle
        mute.close()


def test_a_folder_that_is_opened_to_others_meanwhile_is_reported_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = TopicFolder()
    place = folder.path
    with published() as publication, reading() as reader:
        await_subscribers(publication)
        place.chmod(0o755)
        (place / "new").touch()
        (place / "new").rename(place / "newer")  # it looks again
        wait_until(lambda: "has the mode 0755" in caplog.text, "the report")
        publication.publish(1)
        assert reader.next().data == 1
        place.chmod(0o700)


@pytest.mark.parametrize("what", ["socket", "folder"])
def test_a_publisher_whose_socket_is_removed_is_found_again(what: str) -> None:
    folder = TopicFolder()
    with published() as publication, reading() as early:
        await_subscribers(publication)
        (socket_file,) = folder.path.iterdir()
        if what == "socket":
            socket_file.unlink()
        else:
            moved = folder.path.rename(folder.path.with_name("moved"))
            shutil.rmtree(moved)
        wait_until(lambda: folder.publishers("a"), "it is announced again")
        with reading() as late:
            await_subscribers(publication, 2)
            publication.publish(1)
            assert (early.next().data, late.next().data) == (1, 1)
        assert early.subscription.connections == 1
    assert folder.publishers() == []


def test_a_publisher_with_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.link import handshake

    folder = TopicFolder()
    with published():
        monkeypatch.setattr(handshake, "user_of", lambda connection: os.geteuid() + 1)
        with pytest.raises(AuthenticationError):
            folder.connect(max(folder.publishers("a")), SubscribeRequest("a").purpose())


def test_descriptors_and_threads_go_with_the_topic() -> None:
    with published() as publication, reading() as reader:  # whatever is made once for the process
        await_subscribers(publication)
        publication.publish(np.zeros(1 << 16))
        reader.next()
    descriptors, threads = open_descriptors(), threading.active_count()
    for _ in range(3):
        with published() as publication, reading() as reader:
            await_subscribers(publication)
            publication.publish(np.zeros(1 << 16))
            reader.next()
    wait_until(lambda: open_descriptors() <= descriptors, "descriptors were closed")
    wait_until(lambda: threading.active_count() <= threads, "threads ended")
    assert TopicFolder().publishers() == []


def test_a_closed_subscription_lets_go_of_its_messages() -> None:
    with published() as publication, reading() as reader:
        await_subscribers(publication)
        publication.publish(np.zeros(1 << 16))
        reader.subscription.frame = reader.next().data  # type: ignore[attr-defined]  # as an operator might
        publication.publish(np.zeros(1 << 16))
        wait_until(lambda: reader.subscription.waiting, "it has come")
        kept = weakref.ref(reader.subscription)
        reader.subscription.close()
        assert (reader.subscription.waiting, reader.subscription.undelivered) == (0, 1)
        del reader.subscription
        # A thread may be about to let go of it.
        wait_until(lambda: gc.collect() >= 0 and kept() is None, "nobody has it any more")
        reader.subscription = Subscription("unused")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("topic", ["", "/a", "a/", "a//b", "a b", "a.b", "ä", "*", "a" * 57, 3, None])
def test_the_name_of_a_topic_is_checked(topic: Any) -> None:
    with pytest.raises(TopicError, match="the name of a topic has letters, digits"):
        Publication(topic)


@pytest.mark.parametrize("make", [Publication, Subscription])
@pytest.mark.parametrize(("options", "expected"), [({"size": 0}, "size"), ({"policy": "POP"}, "policy")])
def test_a_queue_that_cannot_be_is_refused(make: Any, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(TopicError, match=rf"{make.__name__}\('a'\): {expected} must be"):
        make("a", **options)


def test_each_subscriber_may_write_to_a_frame_of_shared_memory() -> None:
    frame = np.asarray(RingAllocator().allocate_tensor((100_000,), np.uint8))
    frame[:] = 1
    with published() as publication, reading() as one, reading() as two:
        await_subscribers(publication, 2)
        publication.publish(frame)
        one.next().data[:] = 9
        with reading() as late:
            for each in (two, late):
                assert each.next().data[0] == 1
    assert frame[0] == 1


def test_a_callback_that_fails_is_reported_once_and_messages_go_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("of the program")

    with published(on_room=fail) as publication:
        publication.publish(0)  # which a thread of the subscription finds
        subscription = Subscription("a", on_change=fail)
        try:
            for value in range(3):
                publication.publish(value)
                wait_until(lambda value=value: (taken := subscription.take()) and taken.data == value, "it")
        finally:
            subscription.close()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2
    assert all("RuntimeError: of the program" in each for each in said)


def collect_until(is_so: Callable[[], bool]) -> None:
    """Collect cycles until something is so: while a thread does something for an object, it refers to it."""
    wait_until(lambda: gc.collect() >= 0 and is_so(), "what was dropped is gone")


@pytest.mark.parametrize("in_a_circle", [False, True])
def test_a_subscription_that_is_dropped_ends_and_frees_its_publisher(
    in_a_circle: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with published(policy=FAULT) as publication:
        before = set(threading.enumerate())
        reader = Reader(policy=FAULT)
        await_subscribers(publication)
        (thread,) = {each for each in threading.enumerate() if each.name == "headrace topic a"} - before
        publication.publish(0)
        wait_until(lambda: reader.subscription.waiting, "it has come")  # and is never taken
        reader.subscription.reader = reader if in_a_circle else None  # type: ignore[attr-defined]
        reader = None  # type: ignore[assignment]
        collect_until(lambda: not publication.subscribers)
        publication.publish(1)  # waits for nobody
        wait_until(lambda: not thread.is_alive(), "its thread has ended")
    wait_until(lambda: "was dropped without close(), and has ended" in caplog.text, "it is said")


@pytest.mark.parametrize("in_a_circle", [False, True])
def test_a_publication_that_is_dropped_ends_its_topic(
    in_a_circle: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with reading() as reader:
        before = set(threading.enumerate())
        publication = Publication("a")
        await_subscribers(publication)
        threads = [
            each
            for each in set(threading.enumerate()) - before
            if each.name in ("headrace topic a", "headrace listener")
        ]
        assert len(threads) == 2
        publication.publish(1)
        assert reader.next().data == 1
        publication.itself = publication if in_a_circle else None  # type: ignore[attr-defined]
        publication = None  # type: ignore[assignment]
        collect_until(lambda: not any(thread.is_alive() for thread in threads))
        reader.wait_for_end()
    assert "the publication of topic 'a' was dropped without close(), and has ended" in caplog.text
    assert TopicFolder().publishers() == []


class Wakes:
    """Garbage whose finalizer runs before those of others, and wakes the thread of one of them."""

    def __init__(self) -> None:
        self.end: Any = None

    def __del__(self) -> None:
        woken = self.end._wake_up
        woken.set()
        wait_until(lambda: not select.select([woken], [], [], 0)[0], "its thread has woken")


def test_garbage_whose_thread_wakes_before_its_finalizer_ends(caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    first = Wakes()
    first.end = Publication("a")
    first.end.itself = first
    threads = set(threading.enumerate()) - before
    first = None  # type: ignore[assignment]
    collect_until(lambda: not any(thread.is_alive() for thread in threads))
    assert "the publication of topic 'a' was dropped without close(), and has ended" in caplog.text
    assert TopicFolder().publishers() == []
