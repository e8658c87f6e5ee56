"""Processes of parts that the driver did not start: they connect to it, from this host or another.

Somebody starts them where they are to run (`agent`). Each one connects to the driver with the token of the run and
says which part it is. From then on it is treated as one that the driver started, but for three things: it is told
to interrupt itself by a message, it ends itself when its connection is closed, and the end of the connection is the
end of the process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.link.listener import Listener, listen
from headrace.parts.control import Address, Cancel, Channel, Gone, Printed, Refused
from headrace.parts.lines import write
from headrace.parts.process import interrupt_of

if TYPE_CHECKING:
    import socket

    from headrace.link.arrivals import Taker
    from headrace.link.handshake import Purpose

PART = "part"
AGENT = "agent"
GONE = "gone"
"""What `Reception.post` tells of a part: its process has ended, or cannot be started."""
STARTING = "starting"
"""What `Reception.post` tells of a part: its process is being started."""


class Reception:
    """Where the processes of parts, and the agents that start them, connect to the driver.

    Parameters
    ----------
    address
        The address and the port to listen at.
    token
        The token of the run.
    encrypted
        Whether connections use TLS.
    """

    def __init__(self, address: Address, token: bytes, *, encrypted: bool = False) -> None:
        identity = None
        if encrypted:
            from headrace.link.tls import ServerIdentity

            identity = ServerIdentity.make()
        listening = listen(*address)
        self._lock = threading.Lock()
        self._is_closed = False
        self._arrived: deque[tuple[str, str, Any]] = deque()
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable after something has arrived."""
        self._listener = Listener(listening, token=token, identity=identity, find_taker=self._find_taker)

    @property
    def address(self) -> Address:
        """Where it listens."""
        address = self._listener.address
        assert not isinstance(address, str)
        return address

    def post(self, kind: str, name: str, what: Any) -> bool:
        """Hand the driver something, from any thread; return False if it does not listen any more."""
        with self._lock:
            if not self._is_closed:
                self._arrived.append((kind, name, what))
                os.eventfd_write(self.descriptor, 1)
            return not self._is_closed

    def take(self) -> list[tuple[str, str, Any]]:
        """Return what has arrived: a kind, a name, and a connection or what was posted."""
        os.eventfd_read(self.descriptor)
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        with self._lock:
            self._is_closed = True
            os.close(self.descriptor)
        for kind, _, what in self._arrived:
            if kind == AGENT:
                Channel.over(what).send(Refused("the driver refused this worker: its run is over"))
            if kind not in (GONE, STARTING):
                what.close()
        self._arrived.clear()

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        return partial(self._take, purpose) if purpose.kind in (PART, AGENT) else None

    def _take(self, purpose: Purpose, carrier: Any) -> None:
        connection = carrier.detach()
        if not self.post(purpose.kind, purpose.name, connection):
            connection.close()


class RemoteProcess:
    """The process of a part somewhere else; until it has connected, there is none.

    Parameters
    ----------
    part
        The part that it runs.
    number
        Which start it is, for those who report that it failed.
    """

    def __init__(self, part: str, number: int) -> None:
        self.part = part
        self.number = number
        self.channel: Channel | None = None
        self.address: Address | None = None
        """Where the process listens for links."""
        self.where = ""
        """Where it is connected from."""
        self.reason = "nobody ran it"
        """How it ended, in words."""
        self.status = 0
        """Its exit status, if whoever started it has said so."""
        self.was_attached = False
        """Whether it has connected, perhaps to be gone since."""
        self.is_gone = False
        """Whether whoever started it has said that it ended."""
        self._lines = {1: b"", 2: b""}

    def attach(self, connection: socket.socket) -> Channel:
        """Use the connection of the process."""
        host, port = connection.getpeername()[:2]
        self.where = f"{host}:{port}"
        self.reason = f"the connection to its process at {self.where} was closed"
        self.channel = Channel.over(connection)
        self.was_attached = True
        return self.channel

    def note_end(self, gone: Gone) -> None:
        """Note how it ended, as whoever started it says."""
        self.reason, self.status, self.is_gone = gone.how, gone.status, True

    @property
    def beat(self) -> float:
        """When the process was last heard of: it sends beats, and other messages in their way."""
        return 0.0 if self.channel is None else self.channel.heard_at

    @property
    def sources(self) -> tuple[Any, ...]:
        """What the driver waits for."""
        return () if self.channel is None else (self.channel,)

    def composed(self, address: Address | None) -> None:
        """Note where the process listens for links."""
        self.address = address

    def hear(self, printed: Printed) -> None:
        """Print in whole lines what the process has printed, so that those of several are not mixed."""
        whole, newline, rest = (self._lines[printed.stream] + printed.data).rpartition(b"\n")
        self._lines[printed.stream] = rest
        _print(printed.stream, whole + newline)

    def interrupt(self) -> None:
        """Tell it to interrupt itself, if it is there."""
        if self.channel is not None:
            self.channel.post(Cancel())

    def kill(self) -> None:
        """Do nothing: it ends when its connection is closed."""

    def close(self) -> None:
        """Let go of the connection."""
        for stream, rest in self._lines.items():
            _print(stream, rest)
            self._lines[stream] = b""
        if self.channel is not None:
            self.channel.close()

    def how(self) -> str:
        """Return in words how it ended."""
        return self.reason

    def interrupt_of_exit(self) -> BaseException | None:
        """Return what an interrupted program raises, if the process was interrupted before it had composed.

        Later it says so before it ends.
        """
        return interrupt_of(self.status)


def _print(stream: int, data: bytes) -> None:
    write(sys.stdout if stream == 1 else sys.stderr, data)
