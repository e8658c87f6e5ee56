"""Arrivals: connections whose handshake is under way, before anybody knows who is at the other end.

Everything here is about strangers, so everything is bounded: the number of arrivals, the bytes and the time of
each, and the lines in the log. If there are too many, one goes that has said nothing, of the host that most of them
come from, and of those the oldest. So strangers that connect in a loop push out each other, and not those who know
the token.

Nothing here blocks, starts a thread, or looks at a clock.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from headrace.core.errors import LinkError, PeerLost
from headrace.link.handshake import (
    MOST_BYTES,
    Purpose,
    Refusal,
    ServerHandshake,
    TlsMismatch,
    check_user,
    is_plain,
    refusal,
    refusal_after,
)
from headrace.link.tcp import TcpCarrier
from headrace.link.unix import UnixCarrier

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier
    from headrace.link.tls import ServerIdentity

Taker: TypeAlias = Callable[["Carrier"], None]
"""What takes a connection whose handshake is done."""

MOST_ARRIVALS = 64
PATIENCE = 3.0
"""The seconds within which a handshake must be done."""
_SECONDS_PER_LINE = 1.0  # of the log
_log = logging.getLogger("headrace.link")


class Arrivals:
    """The connections of a listener that nobody has taken yet.

    Parameters
    ----------
    find_taker
        Returns who takes a connection for a purpose, None if nobody does. It is asked once the peer has proved who
        it is.
    token
        The token of the run; None for Unix sockets.
    identity
        The certificate, if there is to be TLS.
    silence
        After how many seconds a host that does not answer is given up.
    """

    def __init__(
        self,
        find_taker: Callable[[Purpose], Taker | None],
        token: bytes | None,
        identity: ServerIdentity | None = None,
        silence: float = 3.0,
    ) -> None:
        self.refused = 0
        """How many connections were closed because of what they said, or did not say."""
        self._find_taker = find_taker
        self._token = token
        self._identity = identity
        self._silence = silence
        self._arrivals: dict[int, Arrival] = {}  # by descriptor, the oldest first
        self._logged = float("-inf")
        self._unlogged = 0

    def __len__(self) -> int:
        return len(self._arrivals)

    def waiting(self) -> list[tuple[int, bool]]:
        """Return the descriptors to wait for, and whether for room to write instead of for something to read."""
        return [(descriptor, arrival.wants_write) for descriptor, arrival in self._arrivals.items()]

    def next_deadline(self) -> float | None:
        """Return when to call `expire`, None if nobody is here."""
        return next((arrival.deadline for arrival in self._arrivals.values()), None)

    def add(self, connection: socket.socket, now: float) -> None:
        """Begin the handshake with a new connection."""
        if len(self._arrivals) >= MOST_ARRIVALS:
            self._refuse(
                self._least(), LinkError("it was the slowest of too many that arrived at the same time"), now
            )
        try:
            arrival = Arrival(connection, self._token, self._identity, now + PATIENCE)
        except (LinkError, OSError) as error:
            self._count(connection, error, now)
            connection.close()
        else:
            self._arrivals[arrival.connection.fileno()] = arrival

    def _least(self) -> Arrival:
        """Return the arrival that makes room for another one."""
        of_host = Counter(each.host for each in self._arrivals.values())
        return min(self._arrivals.values(), key=lambda each: (each.has_begun, -of_host[each.host]))

    def advance(self, descriptor: int, now: float) -> None:
        """Go on with a handshake for which something has arrived."""
        arrival = self._arrivals.get(descriptor)
        if arrival is None:
            return
        try:
            purpose = arrival.advance()
            if purpose is None:
                return
            taker = self._find_taker(purpose)
            if taker is None:
                raise _Unexpected(f"nobody expects {purpose}")
            arrival.welcome()
            del self._arrivals[descriptor]
            taker(arrival.carrier(self._silence))
        except Exception as error:  # of a stranger, or of whoever takes the connection: the others must go on
            self._refuse(arrival, error, now)

    def expire(self, now: float) -> None:
        """Close the connections whose time is over."""
        for arrival in list(self._arrivals.values()):
            if arrival.deadline > now:
                return
            self._refuse(arrival, LinkError(f"its handshake took longer than {PATIENCE:g} s"), now)

    def close(self) -> None:
        """Close all connections."""
        while self._arrivals:
            self._arrivals.popitem()[1].connection.close()

    def _refuse(self, arrival: Arrival, error: Exception, now: float) -> None:
        self._arrivals.pop(arrival.connection.fileno(), None)
        # One that looks whether somebody listens leaves without a word.
        if arrival.has_spoken or not isinstance(error, PeerLost):
            self._count(arrival.connection, error, now)
        arrival.refuse(error)

    def _count(self, connection: socket.socket, error: Exception, now: float) -> None:
        """Count a refused connection and log it, but not as often as a stranger likes."""
        self.refused += 1
        if now < self._logged + _SECONDS_PER_LINE:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more before)" if self._unlogged else ""
        self._logged, self._unlogged = now, 0
        _log.warning("a connection %s was refused: %s%s", _origin(connection), error, more)


class Arrival:
    """One connection whose handshake is under way."""

    def __init__(
        self,
        connection: socket.socket,
        token: bytes | None,
        identity: ServerIdentity | None,
        deadline: float,
    ) -> None:
        connection.setblocking(False)
        self.deadline = deadline
        self.wants_write = False
        self.has_spoken = False
        self.host = _host_of(connection)
        self._is_unix = connection.family == socket.AF_UNIX
        self._tls: ssl.SSLSocket | None = None
        self.has_begun = False
        """Whether anything came, if only the beginning of TLS."""
        self._is_secured = identity is None
        if self._is_unix:
            check_user(connection)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if identity is not None:
            context = identity.context
            self._tls = connection = context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        self.connection = connection
        self._handshake = ServerHandshake(token, identity.binding if identity is not None else b"")

    def advance(self) -> Purpose | None:
        """Go on; return what the connection is for as soon as the peer has proved who it is."""
        if self._tls is not None and not self._is_secured and not self._secure(self._tls):
            return None
        while self._handshake.purpose is None:
            data = self._receive()
            if data is None:
                return None
            self.has_spoken = self.has_begun = True
            self._send(self._handshake.receive(data))
        return self._handshake.purpose

    def welcome(self) -> None:
        """Tell the peer that its connection is expected."""
        self._send(self._handshake.welcome())

    def refuse(self, error: Exception) -> None:
        """Tell the peer why, if it is no stranger, and close the connection."""
        answer = refusal(Refusal.UNEXPECTED) if isinstance(error, _Unexpected) else b""
        if isinstance(error, LinkError):
            answer = answer or refusal_after(error)
        with suppress(OSError):
            if isinstance(error, TlsMismatch):
                socket.socket.send(self.connection, answer)  # not by TLS
            else:
                self._send(answer)
            self.connection.shutdown(socket.SHUT_WR)  # or the answer is lost with what was not read
        self.connection.close()

    def carrier(self, silence: float) -> Carrier:
        """Return the carrier over this connection."""
        if self._is_unix:
            return UnixCarrier(self.connection)
        if self._tls is None:
            return TcpCarrier(self.connection, silence)
        from headrace.link.tls import TlsCarrier

        return TlsCarrier(self._tls, silence)

    def _secure(self, connection: ssl.SSLSocket) -> bool:
        """Go on with the handshake of TLS; return whether it is done."""
        self.wants_write = False
        try:
            if not self.has_begun:
                # From the socket itself: TLS would take these bytes for a wrong version.
                began = socket.socket.recv(connection, MOST_BYTES, socket.MSG_PEEK)
                if is_plain(began):
                    raise TlsMismatch(
                        "the peer does not use TLS, and this end does; start the peer with --tls, too"
                    )
                self.has_begun = True
            connection.do_handshake()
        except (BlockingIOError, InterruptedError):
            return False
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return False
        self._is_secured = True
        return True

    def _receive(self) -> bytes | None:
        """Return some bytes, None if there are none. One packet of a Unix socket is one message."""
        try:
            data = self.connection.recv(MOST_BYTES if self._is_unix else self._handshake.wanted)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return None
        if not data:
            raise PeerLost("the connection was closed in the handshake")
        return data

    def _send(self, data: bytes) -> None:
        """Send a short message, for which a new connection always has room."""
        if data and self.connection.send(data) < len(data):
            raise PeerLost("the peer does not read")


class _Unexpected(LinkError):
    """Nobody takes the connection."""


def _host_of(connection: socket.socket) -> str:
    """Return the host at the other end; nothing on a Unix socket, and if the peer is gone."""
    with suppress(OSError):
        peer = connection.getpeername()
        if isinstance(peer, tuple):
            return str(peer[0])
    return ""


def _origin(connection: socket.socket) -> str:
    try:
        peer = connection.getpeername()
    except OSError:
        return "whose peer is gone"
    return f"from {peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "of another process"
