"""Access: how the processes of a run connect to each other, on one host and between hosts.

On one host they use Unix sockets without a file, and the system says whose process is at the other end. Between
hosts they use TCP, with TLS on request, and both ends prove that they know the token of the run.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.errors import PeerLost
from headrace.link.connect import connect, connect_unix
from headrace.link.handshake import Purpose
from headrace.link.listener import Listener, listen

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.link.listener import Taker
    from headrace.parts.control import Address

_BACKLOG = 1024
_ATTEMPTS = 5
_PAUSE = 0.1  # seconds before the second attempt, and twice as long before each other one


@dataclass(frozen=True, slots=True)
class Access:
    """Who may connect, and how.

    Parameters
    ----------
    token
        The token of the run; empty if all its processes are on this host.
    encrypted
        Whether connections use TLS.
    """

    token: bytes = b""
    encrypted: bool = False

    def listen(self, address: Address, find_taker: Callable[[Purpose], Taker | None]) -> Listener:
        """Listen at an address; an empty one is a new Unix socket of this host."""
        if not isinstance(address, str):
            identity = None
            if self.encrypted:
                from headrace.link.tls import ServerIdentity

                identity = ServerIdentity.make()
            return Listener(listen(*address), token=self.token, identity=identity, find_taker=find_taker)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(address or f"\0headrace-{os.urandom(12).hex()}")
        listening.listen(_BACKLOG)
        return Listener(listening, find_taker=find_taker)

    def connect(self, address: Address, purpose: Purpose) -> Any:
        """Connect to a process of the run, and return the carrier.

        A listener that is beset by strangers may close a connection before it knows who is there. So it is tried
        again, unless nobody listens or the peer says why it refuses.
        """
        for attempt in range(_ATTEMPTS):
            try:
                if isinstance(address, str):
                    return connect_unix(address, purpose)
                return connect(address, purpose, self.token, encrypted=self.encrypted)
            except PeerLost as error:
                if attempt + 1 == _ATTEMPTS or not _was_closed(error):
                    raise
                waits.wait(threading.Event(), _PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


def _was_closed(error: PeerLost) -> bool:
    """Return whether a listener has closed a connection without a word."""
    cause = error.__cause__
    return cause is None or isinstance(cause, (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError))
