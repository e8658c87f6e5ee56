"""The control channel between a driver and the processes of its parts."""

from __future__ import annotations

import fcntl
import resource
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.parts.control import Channel, Gone
from tests.link.connections import tls_sockets

MANY = 1500


@pytest.fixture
def many_files() -> Iterator[None]:
    """A process that may have more files than select() can wait for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= MANY:
        pytest.skip(f"this user may not open {MANY} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (MANY + 8 if soft < MANY + 8 else soft, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def moved(connection: socket.socket) -> socket.socket:
    """Return the same connection with a high descriptor."""
    with connection:
        return socket.socket(fileno=fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, MANY))


@pytest.mark.usefixtures("many_files")
def test_an_encrypted_channel_takes_any_descriptor() -> None:
    pytest.importorskip("cryptography")
    near, far = map(Channel.over, tls_sockets(moved))
    assert near.fileno() >= MANY
    near.send(Gone("edge", 1, "one"))
    assert far.receive_one() == Gone("edge", 1, "one")
    far.send(Gone("edge", 2, "two"))
    assert near.receive_one() == Gone("edge", 2, "two")
    near.close()
    far.close()


def test_what_arrives_together_with_the_first_message_comes_next() -> None:
    """A run may end when a process has its assignment and has not read it."""
    near, theirs = Channel.pair()
    far = Channel(theirs)
    sent = [Gone("edge", number, "") for number in (1, 2, 3)]
    for each in sent:
        near.post(each)
    assert far.receive_one() == sent[0]
    assert far.receive() == [(each, []) for each in sent[1:]]
    near.close()
    assert far.receive() is None
    far.close()


class _Silent(socket.socket):
    """A connection whose other host was last heard of so many milliseconds ago."""

    since = 0

    def getsockopt(self, level: int, option: int, length: int = 0) -> Any:
        if option == socket.TCP_INFO:
            assert length == 60
            return bytes(56) + self.since.to_bytes(4, sys.byteorder)
        return super().getsockopt(level, option)


@pytest.mark.parametrize(("since", "left"), [(900, 2350), (2000, 350), (9000, 200)])
def test_what_is_sent_to_a_host_that_does_not_answer_gives_it_no_more_time(since: int, left: int) -> None:
    with _Silent(socket.AF_INET, socket.SOCK_STREAM) as connection:
        channel = Channel.over(connection)
        connection.since = since
        channel.hurry()
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == left
