"""Connections: which ones a page's server accepts, and how long it keeps them.

Whoever reaches the port can open connections, long before a request shows the token. Each of them takes one of the
files that the process may have open, and the pipeline needs these files. So

- the number of connections is limited. When the limit is reached, the oldest connection of a stranger makes room
  for a new one: whoever holds them all open locks nobody out;
- a connection that has not become a client's by its deadline is closed, whether it has sent nothing or half a
  request, or does not read the answer;
- when few files are left, strangers are disconnected and no connection is accepted. Connections that wait are in a
  queue of the kernel, where they take no file of the process.

The sockets are accepted here and not by `loop.create_server`, which accepts a hundred at a time and counts none. A
connection counts until its socket is closed: a transport that is closing waits without a limit for a peer that does
not read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

DEADLINE = 30.0
"""Seconds that a connection has to become a client's."""
RESERVE = 64
"""Files that are left to the pipeline; a quarter of those that the process may have open, if that is less."""
_BACKLOG = 128  # connections that wait in the kernel; a further one tries again after a second
_TRANSIENT = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_log = logging.getLogger("headrace.web")


@dataclass(eq=False, slots=True)
class _Connection:
    """An accepted connection: a stranger's while it has a deadline, a client's without one."""

    deadline: float | None
    transport: asyncio.Transport | None = None


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
        self._listening: list[socket.socket] = []
        self._is_accepting = False
        self._has_warned = False
        self._open: dict[socket.socket, _Connection] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, host: str, port: int) -> int:
        """Begin to accept connections, and return the port; raise OSError where that is not possible."""
        self._listening = _bind(host, port)
        self._accept_more()
        return int(self._listening[0].getsockname()[1])

    @property
    def count(self) -> int:
        """The number of open connections."""
        self._forget_closed()
        return len(self._open)

    def keep(self, transport: Any) -> None:
        """Keep a connection without a deadline: it is a client's."""
        self._set_deadline(transport, None)

    def release(self, transport: Any) -> None:
        """Set the deadline of a connection that is a client's no more."""
        self._set_deadline(transport, self._now() + DEADLINE)

    def tick(self) -> None:
        """Disconnect strangers whose time is up, and all of them if few files are left; accept again if it can."""
        self._forget_closed()
        now, is_scarce = self._now(), not _has_files(0)
        for connection in tuple(self._open.values()):
            if connection.deadline is not None and (is_scarce or connection.deadline <= now):
                _abort(connection)
        if self._listening and not self._is_accepting:
            self._accept_more()

    def stop(self) -> None:
        """Accept nothing more; what is open goes on."""
        self._pause()
        for one in self._listening:
            one.close()
        self._listening = []

    async def close(self) -> None:
        """Accept nothing more, and disconnect all."""
        self.stop()
        await asyncio.gather(*self._tasks)
        for connection in self._open.values():
            _abort(connection)
        await asyncio.sleep(0)  # which closes the sockets

    # Inside.

    def _set_deadline(self, transport: Any, deadline: float | None) -> None:
        for connection in self._open.values():
            if transport is not None and connection.transport is transport:
                connection.deadline = deadline

    def _forget_closed(self) -> None:
        for one in [one for one in self._open if one.fileno() < 0]:
            del self._open[one]

    def _accept_more(self) -> None:
        self._is_accepting = True
        for one in self._listening:
            self._loop.add_reader(one, self._accept, one)

    def _pause(self) -> None:
        """Accept nothing until the next tick."""
        self._is_accepting = False
        for one in self._listening:
            self._loop.remove_reader(one)

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection, if there is room; called again while one waits."""
        self._forget_closed()
        if len(self._open) >= self._most or not _has_files(1):
            self._make_room()
            return
        try:
            accepted, _ = listening.accept()
        except _TRANSIENT:
            return
        except OSError as error:  # of the process's files, or the system's memory
            _log.debug("%s cannot accept a connection", self._name, exc_info=error)
            self._pause()
            return
        accepted.setblocking(False)
        connection = self._open[accepted] = _Connection(self._now() + DEADLINE)
        task = self._loop.create_task(self._begin(accepted, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, accepted: socket.socket, connection: _Connection) -> None:
        try:
            connection.transport, _ = await self._loop.connect_accepted_socket(self._make_protocol, accepted)
        except OSError:  # the peer has gone
            accepted.close()

    def _make_room(self) -> None:
        """Disconnect the oldest stranger, whose socket is closed before this is asked for again; or pause."""
        for connection in self._open.values():
            if connection.deadline is not None:
                _abort(connection)
                return
        if not self._has_warned and not _has_files(1):
            self._has_warned = True
            _log.warning(
                "%s accepts no connection: the process may open %d files, and the last %d are kept for the "
                "pipeline; allow more with `ulimit -n`",
                self._name,
                _limit(),
                _reserve(),
            )
        self._pause()


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


def _abort(connection: _Connection) -> None:
    # Without a transport it was accepted a moment ago; the next time it has one.
    if connection.transport is not None:
        connection.transport.abort()


def _bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; with port 0, on one that is free.

    `loop.create_server` would take another free port for each address.
    """
    listening: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, f"{host} has no address")
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            one = socket.create_server((address[0], port), family=family, backlog=_BACKLOG)
        except OSError as error:
            # An address of IPv6 on a machine without it is left out.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for other in listening:
                    other.close()
                raise
            missing = error
            continue
        one.setblocking(False)
        listening.append(one)
        port = port or int(one.getsockname()[1])
    if not listening:
        raise missing
    return listening
