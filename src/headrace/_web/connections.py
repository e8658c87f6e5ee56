"""Connections: which ones a page's server accepts, and how long it keeps them.

Whoever reaches the port can open connections, long before a request shows the token. Each of them takes one of the
files that the process may have open, and the pipeline needs these files. So

- the number of connections is limited. When the limit is reached, the oldest connections of strangers make room for
  a new one: whoever holds them all open locks nobody out;
- a connection that has not become a client's by its deadline is closed, whether it has sent nothing or half a
  request, or does not read the answer;
- when few files are left, strangers are disconnected.

A connection counts until its socket is closed: a transport that is closing waits without a limit for a peer that
does not read.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import Any

DEADLINE = 30.0
"""Seconds that a connection has to become a client's."""
RESERVE = 64
"""Files that are left to the pipeline; a quarter of those that the process may have open, if that is less."""
# Connections that asyncio accepts at once, beyond the limit. A further one waits, and tries again after a second.
_BACKLOG = 16


class Connections:
    """Accepts the connections of a server; used on the server's thread alone.

    Parameters
    ----------
    server
        The server of aiohttp: it makes the protocol of a new connection, and lists the protocols of all.
    most
        The most connections at a time.
    now
        Returns the time, in seconds.

    Attributes
    ----------
    clients
        The protocols of the connections that have no deadline: those of clients.
    """

    def __init__(self, server: Any, most: int, now: Callable[[], float] = monotonic) -> None:
        self._server, self._most, self._now = server, most, now
        self.clients: set[Any] = set()
        self._strangers_since: dict[Any, float] = {}
        self._listening: list[asyncio.Server] = []

    async def listen(self, host: str, port: int) -> int:
        """Begin to accept connections, and return the port; raise OSError where that is not possible."""
        sockets = _bind(host, port)
        loop = asyncio.get_running_loop()
        for one in sockets:
            self._listening.append(await loop.create_server(self._accept, sock=one, backlog=_BACKLOG))
        return int(sockets[0].getsockname()[1])

    def _accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection, for which the oldest strangers make room."""
        self._make_room(1)
        protocol: asyncio.Protocol = self._server()
        self._strangers_since[protocol] = self._now()
        return protocol

    def _make_room(self, wanted: int) -> None:
        opened = self.opened()
        strangers = [one for one in opened if one not in self.clients]
        left, limit = files()
        excess = len(strangers) if left < min(RESERVE, limit // 4) else len(opened) + wanted - self._most
        for one in strangers[: max(excess, 0)]:
            one.transport.abort()

    def opened(self) -> list[Any]:
        """Return the protocols of the open connections, the oldest first."""
        return [one for one in self._server.connections if one.transport is not None]

    def tick(self) -> None:
        """Disconnect strangers whose time is up, and those for whom there is no room any more."""
        self._make_room(0)
        now, since = self._now(), self._strangers_since
        self._strangers_since = {one: since.get(one, now) for one in self.opened() if one not in self.clients}
        for one, began in self._strangers_since.items():
            if now - began >= DEADLINE:
                one.transport.abort()

    def stop(self) -> None:
        """Accept nothing more; what is open goes on."""
        for one in self._listening:
            one.close()


def files() -> tuple[int, int]:
    """Return how many more files the process can open, and how many in all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 1 << 30 if limit == resource.RLIM_INFINITY else limit
    try:
        # The list itself is one of the files while it is read.
        return limit - len(os.listdir("/dev/fd")) + 1, limit
    except OSError as error:
        return (0 if error.errno in (errno.EMFILE, errno.ENFILE) else limit), limit


def _bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets on all addresses of a host; with port 0, on one that is free.

    asyncio would take another free port for each address.
    """
    bound: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, f"{host} has no address")
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with ExitStack() as unused:
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                one = socket.create_server((address[0], port), family=family, backlog=_BACKLOG)
            except OSError as error:
                # An address of IPv6 on a machine without it is left out.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
                continue
            bound.append(unused.enter_context(one))
            port = port or int(one.getsockname()[1])
        unused.pop_all()
    if not bound:
        raise missing
    return bound
