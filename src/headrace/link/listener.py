"""Listener: waits for connections from other processes, and gives each to whoever expects it.

A listener has a thread of its own, which sleeps while nobody connects. The handshakes do not run on the thread of
the links (`loop`), because strangers can make them as many and as costly as they like.

A handshake has a few seconds in which its listener runs. A process that was stopped, or a machine that stood still,
could not have read what has come meanwhile, so of each wait no more than `_LONGEST` counts.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from headrace import waits
from headrace.core.errors import LinkError
from headrace.link.arrivals import Arrivals, Taker
from headrace.link.handshake import Purpose, check_token

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier
    from headrace.link.tls import ServerIdentity

_BACKLOG = 1024  # a client that finds it full tries again after a second
_AT_ONCE = 32  # connections that are accepted before handshakes go on
_PAUSE = 0.1  # seconds without accepting, after the system had no descriptor left
_LONGEST = 0.5  # seconds of one wait while a handshake is under way


class Listener:
    """Listens on a socket until it is closed.

    Parameters
    ----------
    listening
        A socket that listens, which the listener owns from now on: `listen` makes one for the network. A Unix
        socket must be of the kind SOCK_SEQPACKET; it accepts processes of the same user.
    token
        The token of the run, without which nobody is let in. TCP needs one, on loopback too, where other users of
        the machine can connect.
    identity
        The certificate, if the connections are to use TLS.
    find_taker
        Says who takes a connection that nobody expects; by default it is refused. It is called on the thread of
        the listener, as is what it returns, and neither may block.
    silence
        After how many seconds a host that does not answer is given up, as in the terms of the links.
    """

    def __init__(
        self,
        listening: socket.socket,
        *,
        token: bytes | None = None,
        identity: ServerIdentity | None = None,
        find_taker: Callable[[Purpose], Taker | None] | None = None,
        silence: float = 3.0,
    ) -> None:
        is_unix = listening.family == socket.AF_UNIX
        if not is_unix:
            check_token(token or b"")
        elif token is not None or identity is not None:
            raise ValueError(
                "on a Unix socket the system says whose process it is; no token or certificate is used"
            )
        listening.setblocking(False)
        self._listening = listening
        self._find_other = find_taker
        self._lock = threading.Lock()
        self._expected: dict[Purpose, Future[Carrier]] = {}
        self._arrivals = Arrivals(self._find_taker, token, identity, silence)
        self._resume = 0.0  # when to accept again
        self._looked = monotonic()
        self._ran = 0.0  # seconds, until it looked
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="headrace listener", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int] | str:
        """Where it listens: host and port, or the path of a Unix socket."""
        name = self._listening.getsockname()
        if isinstance(name, bytes):  # without a file
            return name.decode()
        return name if isinstance(name, str) else (name[0], name[1])

    @property
    def refused(self) -> int:
        """How many connections were refused."""
        return self._arrivals.refused

    def expect(self, purpose: Purpose) -> Future[Carrier]:
        """Return a future of the connection for a purpose; call it before the peer is told where to connect.

        Only one connection is taken. Cancel the future if it is not expected any more.
        """
        expected: Future[Carrier] = Future()
        with self._lock:
            if self._is_closing:
                raise LinkError(f"the listener is closed, and {purpose} cannot arrive")
            if purpose in self._expected and not self._expected[purpose].cancelled():
                raise ValueError(f"{purpose} is expected already")
            self._expected[purpose] = expected
        return expected

    def close(self) -> None:
        """Stop listening, and close the connections that nobody has taken; a second call does nothing."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        os.eventfd_write(self._wake, 1)
        waits.join(self._thread)
        os.close(self._wake)
        self._listening.close()
        self._arrivals.close()
        for purpose, expected in self._expected.items():
            if expected.set_running_or_notify_cancel():
                expected.set_exception(LinkError(f"the listener was closed before {purpose} arrived"))

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        with self._lock:
            expected = self._expected.get(purpose)
        if expected is not None and not expected.cancelled():
            return partial(self._give, purpose, expected)
        return self._find_other(purpose) if self._find_other is not None else None

    def _give(self, purpose: Purpose, expected: Future[Carrier], carrier: Carrier) -> None:
        with self._lock:
            del self._expected[purpose]
        if expected.set_running_or_notify_cancel():
            expected.set_result(carrier)
        else:
            carrier.close()

    def _run(self) -> None:
        while not self._is_closing:
            now = monotonic()
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            if now >= self._resume:
                poll.register(self._listening, select.POLLIN)
            for descriptor, wants_write in self._arrivals.waiting():
                poll.register(descriptor, select.POLLOUT if wants_write else select.POLLIN)
            seconds = [self._resume - now] if now < self._resume else []
            if (until := self._arrivals.next_deadline()) is not None:
                seconds += [max(until - self._time_run(), 0.0), _LONGEST]
            for descriptor, _ in poll.poll(min(seconds) * 1000 + 1 if seconds else None):
                if descriptor == self._listening.fileno():
                    self._accept()
                else:
                    self._arrivals.advance(descriptor, self._time_run())
            self._arrivals.expire(self._time_run())

    def _time_run(self) -> float:
        """Return for how many seconds it has run, or nobody was here."""
        now = monotonic()
        passed = now - self._looked
        self._ran += min(passed, _LONGEST) if self._arrivals else passed
        self._looked = now
        return self._ran

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # The process has no descriptor left. Those who wait go on waiting.
                self._resume = monotonic() + _PAUSE
                return
            self._arrivals.add(connection, self._time_run())


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
