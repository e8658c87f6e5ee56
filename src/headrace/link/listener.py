"""Listener: waits for connections from other processes, and gives each to whoever expects it.

A listener has a thread of its own, which sleeps while nobody connects, and one for each handshake, which ends with
it. The handshakes do not run on the thread of the links (`loop`), because strangers can make them as many and as
costly as they like.

Everything about strangers is bounded: the number of handshakes, the bytes and the time of each, and the lines in
the log. If there are too many, one goes that has said nothing, of the host that most of them come from, and of
those the oldest. So strangers that connect in a loop push out each other, and not those who know the token.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from headrace import waits
from headrace.core.errors import LinkError, PeerLost
from headrace.link.connect import Patience, carrier_of, introduce
from headrace.link.handshake import (
    MOST_BYTES,
    Purpose,
    TlsMismatch,
    Unexpected,
    answer,
    check_token,
    check_user,
    is_plain,
    refusal_after,
)

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier
    from headrace.link.tls import ServerIdentity

Taker: TypeAlias = Callable[["Carrier"], None]
"""What takes a connection whose handshake is done."""
FindTaker: TypeAlias = Callable[[Purpose], "Taker | None"]
"""Says who takes a connection, if anybody does."""

MOST_ARRIVALS = 64
"""The most handshakes at the same time."""
PATIENCE = 3.0
"""The seconds within which a handshake must be done."""
_BACKLOG = 1024  # a client that finds it full tries again after a second
_PAUSE = 0.1  # seconds without accepting, after the system had no descriptor left
_SECONDS_PER_LINE = 1.0  # of the log
_log = logging.getLogger("headrace.link")


class Listener:
    """Listens on a socket until it is closed.

    Parameters
    ----------
    listening
        A socket that listens, which the listener owns from now on: `listen` makes one for the network. A Unix
        socket accepts processes of the same user.
    find_taker
        Says who takes a connection; None refuses it. It is called on a thread of the listener, as is what it
        returns, for one connection at a time, and neither may block.
    token
        The token of the run, without which nobody is let in. TCP needs one, on loopback too, where other users of
        the machine can connect.
    identity
        The certificate, if the connections are to use TLS.
    silence
        After how many seconds a host that does not answer is given up, as in the terms of the links.
    """

    def __init__(
        self,
        listening: socket.socket,
        *,
        find_taker: FindTaker,
        token: bytes | None = None,
        identity: ServerIdentity | None = None,
        silence: float = 3.0,
    ) -> None:
        is_unix = listening.family == socket.AF_UNIX
        if not is_unix:
            check_token(token or b"")
        elif token is not None or identity is not None:
            raise ValueError(
                "on a Unix socket the system says whose process it is; no token or certificate is used"
            )
        listening.settimeout(None)
        self.refused = 0
        """How many connections were closed because of what they said, or did not say."""
        self._listening = listening
        self._token, self._identity, self._silence = token, identity, silence
        self._find_taker = find_taker
        self._lock = threading.Lock()
        self._taking = threading.Lock()  # held while a connection is given to whoever expects it
        self._arrivals: list[_Arrival] = []  # the oldest first
        self._threads: set[threading.Thread] = set()  # of handshakes, also of those that were pushed out
        self._logged = float("-inf")
        self._unlogged = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace listener", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int] | str:
        """Where it listens: host and port, or the path of a Unix socket."""
        name = self._listening.getsockname()
        if isinstance(name, bytes):  # without a file
            return name.decode()
        return name if isinstance(name, str) else (name[0], name[1])

    def close(self) -> None:
        """Stop listening, and close the connections that nobody has taken; a second call does nothing."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            threads = self._threads - {threading.current_thread()}
            for arrival in self._arrivals:
                arrival.interrupt()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends the wait in `accept`
        waits.join(self._thread)
        self._listening.close()
        for thread in threads:
            waits.join(thread)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                # It is closed, or the process has no descriptor left: those who wait go on waiting.
                self._closing.wait(_PAUSE)
                continue
            self._add(_Arrival(connection))

    # Handshakes, each on a thread of its own.

    def _add(self, arrival: _Arrival) -> None:
        with self._lock:
            if self._closing.is_set():
                arrival.connection.close()
                return
            if len(self._arrivals) >= MOST_ARRIVALS:
                least = self._least()
                self._arrivals.remove(least)
                least.reason = "it was the slowest of too many that arrived at the same time"
                least.interrupt()
            thread = threading.Thread(
                target=self._serve, args=(arrival,), name="headrace handshake", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left
                arrival.connection.close()
            else:
                self._arrivals.append(arrival)
                self._threads.add(thread)

    def _least(self) -> _Arrival:
        """Return the arrival that makes room for another one."""
        of_host = Counter(each.host for each in self._arrivals)
        return min(self._arrivals, key=lambda each: (each.has_begun, -of_host[each.host]))

    def _serve(self, arrival: _Arrival) -> None:
        """Do the handshake, and give the connection to whoever expects it."""
        try:
            purpose, welcome = arrival.introduce(self._token, self._identity)
            with self._taking:
                taker = self._find_taker(purpose)
                if taker is None or not self._forget(arrival):
                    raise Unexpected(f"nobody expects {purpose}")
                arrival.connection.sendall(welcome)
                taker(carrier_of(arrival.connection, self._silence))
        except Exception as error:  # of a stranger, or of whoever takes the connection: the others must go on
            why = LinkError(arrival.reason) if arrival.reason else error
            # One that looks whether somebody listens leaves without a word.
            if (arrival.has_begun or not isinstance(why, PeerLost)) and not self._closing.is_set():
                self._count(arrival, why)
            arrival.refuse(why)
        finally:
            self._forget(arrival)
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _forget(self, arrival: _Arrival) -> bool:
        """Interrupt it no more; return False if it was interrupted before."""
        with self._lock:
            is_here = arrival in self._arrivals
            if is_here:
                self._arrivals.remove(arrival)
            return is_here and not self._closing.is_set()

    def _count(self, arrival: _Arrival, error: Exception) -> None:
        """Count a refused connection and log it, but not as often as a stranger likes."""
        with self._lock:
            self.refused += 1
            now = monotonic()
            if now < self._logged + _SECONDS_PER_LINE:
                self._unlogged += 1
                return
            more = f" ({self._unlogged} more before)" if self._unlogged else ""
            self._logged, self._unlogged = now, 0
        _log.warning("a connection from %s was refused: %s%s", arrival.host or "this host", error, more)


class _Arrival:
    """One connection whose handshake is under way, before anybody knows who is at the other end."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.host = _host_of(connection)
        self.has_begun = False
        """Whether anything came, if only the beginning of TLS."""
        self.reason = ""
        """Why it was interrupted."""

    def introduce(self, token: bytes | None, identity: ServerIdentity | None) -> tuple[Purpose, bytes]:
        """Return what the connection is for when the peer has proved who it is, and its welcome."""
        patience = Patience(PATIENCE)
        try:
            if self.connection.family == socket.AF_UNIX:
                check_user(self.connection)
            else:
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if identity is not None:
                self._secure(identity, patience)
            steps = answer(token, b"" if identity is None else identity.binding)
            return introduce(self.connection, steps, patience, self._begin)
        except TimeoutError:
            raise LinkError(f"its handshake took longer than {PATIENCE:g} s") from None

    def _begin(self) -> None:
        self.has_begun = True

    def _secure(self, identity: ServerIdentity, patience: Patience) -> None:
        """Do the handshake of TLS."""
        # TLS would take the first bytes of a client without it for a wrong version.
        plain = self.connection
        began = patience.wait(plain, lambda: plain.recv(MOST_BYTES, socket.MSG_PEEK))
        if not began:
            raise PeerLost("the connection was closed in the handshake")
        self.has_begun = True
        if is_plain(began):
            raise TlsMismatch("the peer does not use TLS, and this end does; start the peer with --tls, too")
        self.connection = secured = identity.context.wrap_socket(
            plain, server_side=True, do_handshake_on_connect=False
        )
        patience.wait(secured, secured.do_handshake)

    def interrupt(self) -> None:
        """End the handshake, which is under way on another thread."""
        with suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)  # below TLS, which is that thread's

    def refuse(self, error: Exception) -> None:
        """Tell the peer why, if it is no stranger, and close the connection."""
        with suppress(OSError):
            if said := refusal_after(error):
                self.connection.send(said)
            self.connection.shutdown(socket.SHUT_WR)  # or the answer is lost with what was not read
        self.connection.close()


def _host_of(connection: socket.socket) -> str:
    """Return the host at the other end; nothing on a Unix socket, and if the peer is gone."""
    with suppress(OSError):
        peer = connection.getpeername()
        if isinstance(peer, tuple):
            return str(peer[0])
    return ""


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a TCP socket that listens, on the loopback interface unless an address is given.

    Parameters
    ----------
    host
        The address of this machine in the network whose hosts may connect, or ``"0.0.0.0"`` for all.
    port
        0 takes any that is free.
    """
    if not host:
        raise ValueError("an empty address would listen on all networks; give one, or '0.0.0.0' to do so")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise LinkError(f"cannot listen on {host}:{port}: {error}") from error
