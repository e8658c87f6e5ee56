"""Connections: which ones a page's server accepts, and how long it keeps them.

Whoever reaches the port can open connections, long before a request shows the token. Each of them takes one of the
files that the process may have open, and the pipeline needs these files. So

- the number of connections is limited. When the limit is reached, the oldest connection of a stranger makes room
  for a new one: whoever holds them all open locks nobody out;
- a connection that has not become a client's by its deadline is closed, whether it has sent nothing or half a
  request, or does not read the answer;
- when few files are left, strangers are disconnected and no connection is accepted. Connections that wait are in a
  queue of the kernel, where they take no file of the process.

The sockets are accepted here and not by `loop.create_server`, which accepts a hundred at a time, counts none, and
takes another free port for each address of a name. A connection counts until its socket is closed: a transport that
is closing waits without a limit for a peer that does not read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic

DEADLINE = 30.0
"""Seconds that a connection has to become a client's."""
RESERVE = 64
"""Files that are left to the pipeline; a quarter of those that the process may have open, if that is less."""
_BACKLOG = 128  # connections that wait in the kernel; a further one tries again after a second
_log = logging.getLogger("headrace.web")


class Connections:
    """Accepts the connections of a server; used on the server's thread alone.

    Parameters
    ----------
    name
        The name of the page, for the log.
    make_protocol
        Returns the protocol of a new connection.
    most
        The most connections at a time.
    now
        Returns the time, in seconds.
    """

    def __init__(
        self,
        name: str,
        make_protocol: Callable[[], asyncio.Protocol],
        most: int,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._name, self._make_protocol, self._most, self._now = name, make_protocol, most, now
        self._loop = asyncio.get_running_loop()
        self._listening: dict[socket.socket, asyncio.Task[None]] = {}
        self._open: dict[asyncio.Transport, float | None] = {}
        """The deadlines of the connections, the oldest first; None for a client's."""
        self._may_accept = asyncio.Event()
        self._has_warned = False

    def listen(self, host: str, port: int) -> int:
        """Begin to accept connections, and return the port; raise OSError where that is not possible."""
        listening = _bind(host, port)
        self._may_accept.set()
        self._listening = {one: self._loop.create_task(self._accept(one)) for one in listening}
        return int(listening[0].getsockname()[1])

    @property
    def count(self) -> int:
        """The number of open connections."""
        for one in [one for one in self._open if one.get_extra_info("socket").fileno() < 0]:
            del self._open[one]
        return len(self._open)

    def keep(self, transport: asyncio.Transport) -> None:
        """Keep a connection without a deadline: it is a client's."""
        self._open[transport] = None

    def release(self, transport: asyncio.Transport) -> None:
        """Set the deadline of a connection that is a client's no more."""
        self._open[transport] = self._now() + DEADLINE

    def tick(self) -> None:
        """Disconnect strangers whose time is up, and all of them if few files are left; accept again if it can."""
        now, is_scarce = self._now(), not _has_files(0)
        for transport, deadline in self._open.items():
            if deadline is not None and (is_scarce or deadline <= now):
                transport.abort()
        self._may_accept.set()

    def stop(self) -> None:
        """Accept nothing more; what is open goes on."""
        for one, acceptor in self._listening.items():
            acceptor.cancel()
            one.close()

    async def close(self) -> None:
        """Accept nothing more, and disconnect all."""
        self.stop()
        await asyncio.gather(*self._listening.values(), return_exceptions=True)
        for transport in self._open:
            transport.abort()
        await asyncio.sleep(0)  # which closes the sockets

    async def _accept(self, listening: socket.socket) -> None:
        """Accept one connection after the other, each if there is room."""
        while True:
            await self._has_arrived(listening)
            await self._make_room()
            try:
                accepted, _ = await self._loop.sock_accept(listening)
            except OSError as error:  # of the process's files, or the system's memory
                _log.debug("%s cannot accept a connection", self._name, exc_info=error)
                await self._pause()
                continue
            try:
                transport, _ = await self._loop.connect_accepted_socket(self._make_protocol, accepted)
            except OSError:  # the peer has gone
                accepted.close()
            else:
                self._open[transport] = self._now() + DEADLINE

    async def _has_arrived(self, listening: socket.socket) -> None:
        """Wait until a connection waits in the kernel."""
        arrived = asyncio.Event()
        self._loop.add_reader(listening, arrived.set)
        try:
            await arrived.wait()
        finally:
            self._loop.remove_reader(listening)

    async def _make_room(self) -> None:
        """Disconnect the oldest stranger if there is no room; if there is none, wait until a client has left."""
        while self.count >= self._most or not _has_files(1):
            oldest = next((one for one, deadline in self._open.items() if deadline is not None), None)
            if oldest is not None:
                oldest.abort()
                await asyncio.sleep(0)  # which closes its socket
                continue
            if not self._has_warned and not _has_files(1):
                self._has_warned = True
                _log.warning(
                    "%s accepts no connection: the process may open %d files, and the last %d are kept for the "
                    "pipeline; allow more with `ulimit -n`",
                    self._name,
                    _limit(),
                    _reserve(),
                )
            await self._pause()

    async def _pause(self) -> None:
        """Accept nothing until the next tick."""
        self._may_accept.clear()
        await self._may_accept.wait()


def files_left() -> int | None:
    """Return how many more files the process can open; None where that is not known."""
    try:
        # The list itself is one of the files while it is read.
        return _limit() - len(os.listdir("/dev/fd")) + 1
    except OSError as error:
        return 0 if error.errno in (errno.EMFILE, errno.ENFILE) else None


def _limit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def _reserve() -> int:
    return min(RESERVE, _limit() // 4)


def _has_files(count: int) -> bool:
    """Return whether the process can open so many files and the reserve."""
    left = files_left()
    return left is None or left - count >= _reserve()


def _bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; with port 0, on one that is free."""
    listening: list[socket.socket] = []
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
            listening.append(unused.enter_context(one))
            one.setblocking(False)
            port = port or int(one.getsockname()[1])
        unused.pop_all()
    if not listening:
        raise missing
    return listening
