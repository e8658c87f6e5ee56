"""The greeting: a subscriber says which topic it wants, and how, in the handshake of the link.

The subscriber decides how many messages may be under way to it, and whether it wants the last one at once. Both
ends make the same `Terms` from that.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from headrace.core.errors import LinkError, PeerLost, ProtocolError
from headrace.core.ports import IOSpec
from headrace.link.ends import Terms
from headrace.link.handshake import (
    MOST_BYTES,
    ClientHandshake,
    Purpose,
    Refusal,
    ServerHandshake,
    check_user,
    refusal,
    refusal_after,
)

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier
    from headrace.topics.service_thread import ServiceThread

PATIENCE = 3.0
"""The seconds within which a handshake must be over."""
_KIND = "topic"
_MOST_PLACES = 1024


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subscriber wants."""

    topic: str
    size: int = 1
    """The number of messages that may be under way to it."""
    wants_last: bool = True
    """Whether it wants the last message, if there is one, as soon as it joins."""
    pid: int = 0
    program: str = ""

    def purpose(self) -> Purpose:
        """Return the wish as the handshake says it."""
        said = {"size": self.size, "last": int(self.wants_last), "pid": os.getpid(), "program": self.program[:200]}
        return Purpose(_KIND, f"{self.topic}?{urlencode(said)}")

    @staticmethod
    def of(purpose: Purpose) -> Wish:
        """Return the wish that a handshake says."""
        topic, _, rest = purpose.name.partition("?")
        said = dict(parse_qsl(rest))
        try:
            size, wants_last, pid = int(said["size"]), said["last"] == "1", int(said["pid"])
        except (KeyError, ValueError):
            raise ProtocolError(f"a subscriber of {topic!r} does not say what it wants") from None
        if purpose.kind != _KIND or not 1 <= size <= _MOST_PLACES:
            raise ProtocolError(f"somebody wants {purpose}, and this is a topic")
        return Wish(topic, size, wants_last, pid, said.get("program", ""))

    def terms(self) -> Terms:
        """Return the terms of the link, the same at both ends.

        The link itself loses nothing (FAULT): what does not go into it is lost before it, by policy, and counted.
        """
        return Terms(f"topic {self.topic}", self.size, IOSpec.QueuePolicy.FAULT)


class Arrival:
    """A connection to a publisher whose handshake is under way."""

    def __init__(self, connection: socket.socket, token: bytes | None) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.until = monotonic() + PATIENCE
        self.is_silent = True
        """Whether nothing has arrived."""
        self._handshake = ServerHandshake(token)
        if connection.family == socket.AF_UNIX:
            check_user(connection)

    def fileno(self) -> int:
        """Return the descriptor of the connection."""
        return self.connection.fileno()

    def advance(self, topic: str) -> Wish | None:
        """Go on with what has arrived; return what the subscriber wants when it is welcome."""
        try:
            data = _receive(self.connection, self._handshake.wanted)
            if data is None:
                return None
            self.is_silent = False
            _send(self.connection, self._handshake.receive(data))
            if self._handshake.purpose is None:
                return None
            wish = Wish.of(self._handshake.purpose)
            if wish.topic != topic:
                _send(self.connection, refusal(Refusal.UNEXPECTED))
                raise ProtocolError(f"somebody wants the topic {wish.topic!r}, and this is {topic!r}")
            _send(self.connection, self._handshake.welcome())
        except LinkError as error:
            _send(self.connection, refusal_after(error))
            raise
        return wish


def introduce(
    connection: socket.socket, token: bytes | None, wish: Wish, thread: ServiceThread
) -> None:
    """Say to a publisher what is wanted, and wait until it agrees; `thread.close` ends the wait.

    Raises
    ------
    LinkError
        If the publisher refuses, is gone, or does not answer.
    """
    until = monotonic() + PATIENCE
    if connection.family == socket.AF_UNIX:
        check_user(connection)
    handshake = ClientHandshake(wish.purpose(), token)
    _send(connection, handshake.begin())
    while not handshake.is_welcome:
        if thread.is_closing or monotonic() >= until:
            raise PeerLost(f"the publisher of {wish.topic!r} does not answer")
        thread.wait([connection.fileno()], until - monotonic())
        data = _receive(connection, handshake.wanted)
        if data is not None:
            _send(connection, handshake.receive(data))


def carrier_of(connection: socket.socket) -> Carrier:
    """Return the carrier of a connection that is welcome."""
    if connection.family == socket.AF_UNIX:
        from headrace.link.unix import UnixCarrier

        return UnixCarrier(connection)
    from headrace.link.tcp import TcpCarrier

    tcp: Any = TcpCarrier(connection)
    return tcp


def _send(connection: socket.socket, data: bytes) -> None:
    """Send a short message; an empty one would be a packet, too. A peer that is gone is found by `_receive`."""
    if data:
        with suppress(OSError):
            connection.send(data)


def _receive(connection: socket.socket, wanted: int) -> bytes | None:
    """Return what has arrived of a handshake, None if nothing has; raise PeerLost at the end.

    One packet of a Unix socket is one message. Of a stream no more is taken than the handshake wants.
    """
    try:
        data = connection.recv(MOST_BYTES if connection.family == socket.AF_UNIX else wanted)
    except BlockingIOError:
        return None
    except OSError as error:
        raise PeerLost(f"the connection is broken ({error})") from error
    if not data:
        raise PeerLost("the connection was closed in the handshake")
    return data
