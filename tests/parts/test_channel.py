"""The control channel between a driver and the processes of its parts."""

from __future__ import annotations

import fcntl
import resource
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.parts.control import Beat, Channel, Gone
from tests.link.connections import tls_sockets
from tests.parts.running import channel_and_socket

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
    near, theirs = channel_and_socket()
    far = Channel.over(theirs)
    sent = [Gone("edge", number, "") for number in (1, 2, 3)]
    for each in sent:
        near.post(each)
    assert far.receive_one() == sent[0]
    assert [far.receive_one() for _ in sent[1:]] == sent[1:]
    near.close()
    assert far.receive() is None
    far.close()


class _Silent(socket.socket):
    """A connection whose other host sent data and answered so many milliseconds ago."""

    data = answer = 0

    def getsockopt(self, level: int, option: int, length: int = 0) -> Any:
        assert (level, option, length) == (socket.IPPROTO_TCP, socket.TCP_INFO, 60)
        return bytes(52) + b"".join(each.to_bytes(4, sys.byteorder) for each in (self.data, self.answer))


@pytest.mark.parametrize(
    ("heard", "looks"),
    [
        ([0, 990, 1200, 10], [1.0, 0.5, 0.5, 1.0]),
        ([500, 1500, 2490, 2500], [0.75, 1.0, 0.02, None]),
        ([1200, 2200, 2500], [0.5, 0.3, None]),
        ([900, 1900, 100, 1100], [0.5, 0.6, 1.0, 0.5]),  # it has answered again
        ([500, 60_000, 100, 1100], [0.75, 0.2, 1.0, 0.5]),  # this host was stopped for a while
        ([500, 60_000, 60_200], [0.75, 0.2, None]),
    ],
)
@pytest.mark.parametrize("kind", ["data", "answer"])
def test_a_host_that_has_not_answered_two_questions_is_cut_off(
    heard: list[int], looks: list[float | None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system asks the other host after each second without a word.

    Its question may be lost, or the answer. So a message asks once more, which is sent again until it is answered.
    """
    with _Silent(socket.AF_INET, socket.SOCK_STREAM) as connection:
        channel = Channel.over(connection)
        connection.data = connection.answer = 99_000
        asked: list[Any] = []
        monkeypatch.setattr(channel, "offer", asked.append)
        for since, seconds in zip(heard, looks, strict=True):
            setattr(connection, kind, since)
            assert channel.look() == (None if seconds is None else pytest.approx(seconds))
            assert channel.is_cut is (seconds is None)
            assert asked == ([Beat()] if since >= 1250 and seconds is not None else [])
            asked.clear()


def test_on_one_host_nobody_is_cut_off() -> None:
    near, theirs = channel_and_socket()
    assert near.look() == 1.0
    near.close()
    theirs.close()
