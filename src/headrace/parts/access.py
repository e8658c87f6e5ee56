"""Access: how the processes of a run connect to each other, on one host and between hosts, and who may.

On one host they use Unix sockets without a file, and the system says whose process is at the other end. Between
hosts they use TCP, with TLS on request, and both ends prove that they know the token of the run. Who knows it may
run code in the processes.

On the loopback interface other users of the machine can connect as well. So a token is needed there, too; it is
made once for a user and kept in a file that nobody else can read. Between hosts the user has to give one.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import waits
from headrace.core.errors import AuthenticationError, PeerLost
from headrace.link.connect import connect
from headrace.link.handshake import Purpose, check_token, make_token
from headrace.link.listener import Listener, listen
from headrace.parts.messages import TOKEN, Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.link.carrier import Carrier
    from headrace.link.listener import Taker

LINK = "link"
"""The purpose of a connection for the frames of a flow: the name is that of the flow."""
PART = "part"
"""The purpose of a connection of a process: the name is that of its part, the epoch the number of its start."""
AGENT = "agent"
"""The purpose of a connection of an agent: the name has the fragments that it runs."""
_BACKLOG = 1024
_ATTEMPTS = 5
_PAUSE = 0.1  # seconds before the second attempt, and twice as long before each other one
_UNANSWERED = (
    2.35  # seconds for which a beat, one of two in a second, stays unanswered by a host that is cut off
)


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

    def listen(
        self, address: Address, find_taker: Callable[[Purpose], Taker | None], is_for_links: bool = False
    ) -> Listener:
        """Listen at an address; an empty one is a new Unix socket of this host."""
        if not isinstance(address, str):
            identity = None
            if self.encrypted:
                from headrace.link.tls import ServerIdentity

                identity = ServerIdentity.make()
            return Listener(
                listen(*address),
                token=self.token,
                identity=identity,
                find_taker=find_taker,
                silence=_silence(is_for_links),
            )
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address or f"\0headrace-{os.urandom(12).hex()}")
        listening.listen(_BACKLOG)
        return Listener(listening, find_taker=find_taker)

    def connect(self, address: Address, purpose: Purpose) -> Carrier:
        """Connect to a process of the run.

        A listener that is beset by strangers may close a connection before it knows who is there. So it is tried
        again, unless nobody listens or the peer says why it refuses.
        """
        is_link = purpose.kind == LINK
        for attempt in range(_ATTEMPTS):
            try:
                return connect(
                    address, purpose, self.token, encrypted=self.encrypted, silence=_silence(is_link)
                )
            except PeerLost as error:
                if attempt + 1 == _ATTEMPTS or not _was_closed(error):
                    raise
                waits.wait(threading.Event(), _PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


def _silence(is_link: bool) -> float:
    return 3.0 if is_link else _UNANSWERED


def _was_closed(error: PeerLost) -> bool:
    """Return whether a listener has closed a connection without a word."""
    cause = error.__cause__
    return cause is None or isinstance(cause, (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError))


def token_for(host: str) -> bytes:
    """Return the token for a driver that listens at an address of a host."""
    given = os.environ.get(TOKEN)
    if given:
        return check_token(given.encode())
    if not _is_loopback(host):
        raise AuthenticationError(
            f"a driver at {host} can be reached by other hosts, and a token says who may take part in the run: set "
            f"{TOKEN} to the same secret for the driver and its workers, such as one of: openssl rand -hex 32"
        )
    return _own_token()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _own_token() -> bytes:
    """Return the token of this user on this host, which the first who asks makes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    is_there = bool(runtime) and os.path.isdir(str(runtime))
    folder = Path(str(runtime)) / "headrace" if is_there else Path(f"/tmp/headrace-{os.geteuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise AuthenticationError(
            f"{str(folder)!r} is not a private folder of this user, so no token is kept there; set {TOKEN}"
        )
    path = folder / "token"
    if not path.exists():
        # Linked when it is complete. If somebody else was faster, theirs counts.
        made = folder / f".token-{os.getpid()}"
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(make_token())
        with suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
    return check_token(path.read_bytes())
