"""Carrier and TlsCarrier: whole messages over a stream, never waiting, and what happens when the peer is gone."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from headrace.core.errors import LinkError
from headrace.link.carrier import Carrier, CarrierClosed
from headrace.link.protocol import Kind, pack_message
from tests.limits import PATIENCE
from tests.link.connections import CARRIERS, descriptors, receive, tcp_sockets, wait_for_descriptors

STREAMS = ["unix", "tcp", "tls"]
HOSTS = ["tcp", "tls"]


def frame(body: bytes, bulk: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
    return pack_message(Kind.FRAME, body, bulk.nbytes), [bulk[:100], bulk[100:100], bulk[100:]]


@pytest.mark.parametrize("kind", STREAMS)
def test_frames_of_every_size_arrive_in_order_and_are_writable(kind):
    near, far = CARRIERS[kind]()
    sizes = [0, 1, 200, 70_000, 1 << 20, 24 << 20, 3]
    for number, size in enumerate(sizes):
        bulk = np.full(size, number, np.uint8)
        near.send(*frame(b"about it" * number, bulk))
        (message,) = receive(far, 1, near)
        assert message.body == b"about it" * number
        assert np.array_equal(message.bulk if size else np.empty(0, np.uint8), bulk)
        if size:
            message.bulk[0] = 99
    near.close()
    far.close()


@pytest.mark.parametrize("kind", STREAMS)
def test_send_never_waits_and_keeps_what_the_system_does_not_take(kind):
    near, far = CARRIERS[kind]()
    frames = [np.random.default_rng(number).integers(0, 255, 8 << 20, np.uint8) for number in range(3)]
    for bulk in frames:
        near.send(*frame(b"", bulk))
    assert near.wants_write
    messages = receive(far, 3, near)
    assert not near.wants_write
    assert all(np.array_equal(message.bulk, bulk) for message, bulk in zip(messages, frames, strict=True))
    near.close()
    far.close()


@pytest.mark.parametrize("kind", STREAMS)
def test_the_last_words_are_read_before_the_end_is_noticed(kind):
    near, far = CARRIERS[kind]()
    far.send(pack_message(Kind.BEAT, b""))
    assert select.select([near], [], [], PATIENCE)[0]  # something is unread when near closes
    near.send(pack_message(Kind.ABORT, b"why"))
    waits = near.say_end()
    assert waits is (kind in HOSTS)
    if not waits:
        near.close()
    (message,) = receive(far, 1)
    assert message.body == b"why"
    assert not waits or not near.is_read()
    with pytest.raises(CarrierClosed, match="the connection was closed$"):
        receive(far, 1)
    with pytest.raises(CarrierClosed):
        far.receive()
    far.close()
    assert not waits or near.is_read()
    near.close()


def test_bytes_that_tls_has_already_read_are_not_forgotten(monkeypatch):
    """A peer that puts several messages into one record: the socket does not become readable for the last."""
    near, far = CARRIERS["tls"]()
    monkeypatch.setattr("headrace.link.carrier._AT_ONCE", 1)
    near.send(pack_message(Kind.FRAME, b"", 10))
    assert select.select([far], [], [], PATIENCE)[0]
    assert far.receive() == []
    near.send(bytes(10) + pack_message(Kind.BEAT, b""))
    assert [message.kind for message in receive(far, 1)] == [Kind.FRAME, Kind.BEAT]
    near.close()
    far.close()


def test_a_message_that_is_cut_off_is_no_message():
    near, far = tcp_sockets()
    carrier = Carrier(far)
    near.send(pack_message(Kind.ABORT, bytes(30))[:23])
    near.close()
    with pytest.raises(CarrierClosed, match="in the middle of a message"):
        receive(carrier, 1)
    carrier.close()


@pytest.mark.parametrize("kind", STREAMS)
def test_a_peer_that_is_gone_is_reported_by_receive_alone(kind):
    near, far = CARRIERS[kind]()
    near._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.close(near._socket)  # with a reset
    assert select.select([far], [], [], PATIENCE)[0]
    for _ in range(3):
        far.send(*frame(b"", np.zeros(8 << 20, np.uint8)))
    assert not far.wants_write
    with pytest.raises(CarrierClosed, match="broken|closed"):
        receive(far, 1)
    far.close()


def test_a_reset_tells_the_peer_at_once_and_forgets_what_it_has_not_received():
    near, far = tcp_sockets()
    far.settimeout(PATIENCE)
    carrier = Carrier(near)
    carrier.send(*frame(b"", np.zeros(1000, np.uint8)))
    carrier.reset()
    assert carrier.fileno() == -1
    with far, pytest.raises(ConnectionResetError):
        while far.recv(1 << 16):
            pass


@pytest.mark.parametrize("kind", CARRIERS)
def test_a_closed_carrier_leaves_no_descriptor(kind):
    before = descriptors()
    near, far = CARRIERS[kind]()
    near.send(*frame(b"", np.zeros(8 << 10, np.uint8)))
    for carrier in near, far, near:
        carrier.close()
    wait_for_descriptors(before)


def test_the_system_gives_up_a_silent_host_no_sooner_than_the_link():
    near, far = tcp_sockets()
    with far:
        Carrier(near, silence=1.5)
        options = {
            name: near.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_NODELAY", "TCP_USER_TIMEOUT", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        }
        assert options == {
            "TCP_NODELAY": 1,
            "TCP_USER_TIMEOUT": 1500,
            "TCP_KEEPIDLE": 1,
            "TCP_KEEPINTVL": 1,
            "TCP_KEEPCNT": 2,
        }
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        near.close()


@contextmanager
def no_file_left() -> Iterator[None]:
    """Let the process open no file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_out_of_descriptors_is_reported_as_that() -> None:
    near, far = map(Carrier, socket.socketpair(socket.AF_UNIX))
    near.send(pack_message(Kind.SEGMENT, b"", descriptors=1), descriptors=[0])
    with no_file_left(), pytest.raises(LinkError, match=r"may have \d+ files open, and has; allow"):
        far.receive()
    near.close()
    far.close()


def test_descriptors_arrive_with_their_messages_also_if_the_system_took_nothing_at_first() -> None:
    before = descriptors()
    near, far = map(Carrier, socket.socketpair(socket.AF_UNIX))
    files = [os.memfd_create(name) for name in "abc"]
    for number, file in enumerate(files):
        near.send(*frame(b"", np.zeros(1 << 20, np.uint8)))
        near.send(pack_message(Kind.SEGMENT, bytes([number]), descriptors=1), descriptors=[file])
        near.send(pack_message(Kind.BEAT, b""))
    assert near.wants_write
    links = [os.readlink(f"/proc/self/fd/{file}") for file in files]
    for file in files:
        os.close(file)  # they were duplicated
    messages = receive(far, 9, near)
    found = [each for each in messages if each.kind == Kind.SEGMENT]
    assert [each.body[0] for each in found] == [0, 1, 2]
    assert [os.readlink(f"/proc/self/fd/{each.descriptors[0]}") for each in found] == links
    assert [len(each.descriptors) for each in messages] == [0, 1, 0] * 3
    for each in found:
        os.close(each.descriptors[0])
    near.close()
    far.close()
    wait_for_descriptors(before)
