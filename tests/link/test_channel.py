"""The control channel: nothing waits for an end that reads nothing, or that sends half of something."""

from __future__ import annotations

import os
import selectors
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.link.channel import Channel, pack
from headrace.link.handshake import Purpose
from headrace.link.tls import client_context
from headrace.parts.access import PART
from headrace.parts.hosting import Process
from headrace.parts.idleness import IdleReport
from headrace.parts.messages import Ask, Assignment, Call, Connect, Printed
from headrace.parts.worker import Worker
from tests.harness import PATIENCE, wait_until
from tests.link.connections import identity, tcp_sockets, tls_sockets
from tests.parts.running import channel_and_socket, channel_of
from tests.parts.test_driver import _driver, close
from tests.parts.test_worker import _worker

LONG = Printed(1, bytes(1 << 22))  # more than a socket takes


@pytest.fixture(params=["unix", "tcp", "tls"])
def channels(request: Any) -> Iterator[tuple[Channel, Channel]]:
    """Both ends of a channel, on one host and between hosts."""
    if request.param == "unix":
        near, far = channel_and_socket()
        ends = near, channel_of(far)
    else:
        if request.param == "tls":
            pytest.importorskip("cryptography")
        sockets: Any = tls_sockets() if request.param == "tls" else tcp_sockets()
        ends = channel_of(sockets[0]), channel_of(sockets[1])
    yield ends
    for end in ends:
        end.close()


def take(channel: Channel, count: int) -> list[Any]:
    """Wait for so many messages."""
    found: list[Any] = []
    while len(found) < count:
        messages = channel.receive()
        assert messages is not None
        found += messages
    return found


def test_what_the_other_end_does_not_read_is_kept_and_comes_in_order(channels: Any) -> None:
    near, far = channels
    for number in range(3):
        near.post(LONG)
        near.post(Ask(number))
    assert near.wants_write
    near.offer(pack(Ask(7)))  # finds no room
    reader = threading.Thread(target=lambda: found.extend(take(far, 6)))
    found: list[Any] = []
    reader.start()
    while reader.is_alive():
        near.flush()
    assert found == [LONG, Ask(0), LONG, Ask(1), LONG, Ask(2)]
    assert not near.wants_write


def test_the_thread_that_receives_sends_what_was_kept(channels: Any) -> None:
    """It was waiting already when something was left to be sent."""
    near, far = channels
    heard: list[Any] = []
    listener = threading.Thread(target=lambda: heard.extend(take(near, 1)))
    listener.start()
    wait_until(lambda: near._wake is not None, "the listener")
    near.post(LONG)
    near.post(Ask(1))
    assert take(far, 2) == [LONG, Ask(1)]
    far.post(Ask(2))
    listener.join(PATIENCE)
    assert heard == [Ask(2)]


def test_nobody_who_posts_waits_for_one_who_sends(channels: Any) -> None:
    near, far = channels
    sender = threading.Thread(target=near.send, args=(LONG,))
    sender.start()
    wait_until(lambda: near.wants_write, "a full socket")
    near.post(Ask(1))
    assert sender.is_alive()
    assert take(far, 2) == [LONG, Ask(1)]
    sender.join(PATIENCE)


def test_nothing_is_kept_for_an_end_that_is_gone(channels: Any) -> None:
    near, far = channels
    near.post(LONG)
    far.close()
    near.flush()
    near.send(Ask(1))
    assert not near.wants_write


def test_what_arrives_together_with_the_first_message_comes_next(channels: Any) -> None:
    """A run may end when a process has its assignment and has not read it."""
    near, far = channels
    for number in (1, 2, 3):
        near.post(Ask(number))
    assert [far.receive_one() for _ in range(3)] == [Ask(1), Ask(2), Ask(3)]
    near.close()
    assert far.receive() is None


def test_the_last_message_is_read_although_the_other_end_still_speaks(channels: Any) -> None:
    near, far = channels
    far.post(Ask(1))
    wait_until(near.has_data, "what is never read")
    near.finish(Ask(2))
    far.post(Ask(3))
    assert take(far, 1) == [Ask(2)]


def test_half_a_record_of_tls_keeps_nobody_waiting() -> None:
    pytest.importorskip("cryptography")
    sockets = tcp_sockets()
    server = identity().context.wrap_socket(sockets[1], server_side=True, do_handshake_on_connect=False)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing)
    other = threading.Thread(target=server.do_handshake)
    other.start()
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            sockets[0].sendall(outgoing.read())
            incoming.write(sockets[0].recv(1 << 16))
    sockets[0].sendall(outgoing.read())
    other.join(PATIENCE)
    packed = pack(Ask(5))
    client.write(b"".join((packed.message, *map(bytes, packed.bulk))))
    record = outgoing.read()
    channel = channel_of(server)
    sockets[0].sendall(record[:20])
    wait_until(channel.has_data, "half of a record")
    assert channel.take() == []
    sockets[0].sendall(record[20:])
    assert take(channel, 1) == [Ask(5)]
    channel.close()
    sockets[0].close()


# Who uses it.


def test_the_driver_waits_for_no_process_that_reads_nothing() -> None:
    driver = _driver()
    channel, theirs = channel_and_socket()
    driver._processes["part"] = Process("part", 1, {})
    driver._add_process(Purpose(PART, "part", 1), channel)
    channel.post(LONG)
    driver._join((), ["part"])
    channel.post(Call(1, "progress"))
    far = channel_of(theirs)
    found: list[Any] = []
    while len(found) < 4:
        driver._wake.set()
        driver._step()
        while far.has_data():
            found += far.take() or ()
    assert [type(message) for message in found] == [Assignment, Printed, Connect, Call]
    driver._wake.set()
    driver._step()
    assert driver._selector.get_key(channel).events == selectors.EVENT_READ
    far.close()
    close(driver)


def test_a_part_reports_without_waiting_for_its_driver() -> None:
    """It does so with the lock of its engine held, which every compute needs."""
    channel, theirs = channel_and_socket()
    worker: Worker = _worker(channel)
    channel.post(LONG)
    worker._on_idle(IdleReport())
    assert channel.wants_write
    os.close(worker._beating)
    theirs.close()
    channel.close()
