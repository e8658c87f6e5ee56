"""Processes of parts that the driver did not start: they connect to it, from this host or another.

Somebody starts them where they are to run (`agent`). Each one connects to the driver with the token of the run and
says which part it is. From then on it is treated as one that the driver started, but for three things: it is told
to interrupt itself by a message, it ends itself when its connection is closed, and the end of the connection is the
end of the process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.link.listener import Listener, listen
from headrace.parts.control import Address, Cancel, Channel

if TYPE_CHECKING:
    import socket

    from headrace.link.arrivals import Taker
    from headrace.link.handshake import Purpose

PART = "part"
AGENT = "agent"


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
        self.arrived: deque[tuple[str, str, socket.socket]] = deque()
        """The kind and the name of each connection that nobody has taken yet. The listener appends."""
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable after a connection has arrived."""
        self._listener = Listener(
            listen(*address), token=token, identity=identity, find_taker=self._find_taker
        )

    @property
    def address(self) -> Address:
        """Where it listens."""
        address = self._listener.address
        assert not isinstance(address, str)
        return address

    def take(self) -> list[tuple[str, str, socket.socket]]:
        """Return the connections that have arrived."""
        os.eventfd_read(self.descriptor)
        return [self.arrived.popleft() for _ in range(len(self.arrived))]

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        os.close(self.descriptor)
        while self.arrived:
            self.arrived.popleft()[2].close()

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        return partial(self._take, purpose) if purpose.kind in (PART, AGENT) else None

    def _take(self, purpose: Purpose, carrier: Any) -> None:
        self.arrived.append((purpose.kind, purpose.name, carrier.detach()))
        os.eventfd_write(self.descriptor, 1)


class RemoteProcess:
    """The process of a part somewhere else; until it has connected, there is none.

    Parameters
    ----------
    part
        The part that it runs.
    start
        Called once, to have it started.
    """

    def __init__(self, part: str, start: Callable[[], None]) -> None:
        self.part = part
        self.channel: Channel | None = None
        self.where = ""
        self.address: Address | None = None
        self._was_given_up = False
        start()

    def attach(self, connection: socket.socket) -> None:
        """Use the connection of the process."""
        host, port = connection.getpeername()[:2]
        self.where = f"{host}:{port}"
        self.channel = Channel.over(connection)

    @property
    def sources(self) -> tuple[Any, ...]:
        """What the driver waits for."""
        return () if self.channel is None else (self.channel,)

    def composed(self, address: Address | None) -> None:
        """Note where the process listens for links."""
        self.address = address

    def has_data(self) -> bool:
        """Return whether something waits in the channel."""
        return self.channel is not None and self.channel.wait(0)

    def tell(self, message: Any) -> None:
        """Send a message, if there is a process."""
        if self.channel is not None:
            self.channel.send(message)

    def interrupt(self) -> bool:
        """Send Ctrl-C; return False if there is no process that could end because of it."""
        self.tell(Cancel())
        return self.channel is not None

    def kill(self) -> bool:
        """Close its connection, on which it ends; return False, since nothing more is heard of it."""
        self._was_given_up = True
        return False

    def close(self) -> None:
        """Let go of the connection."""
        if self.channel is not None:
            self.channel.close()

    def how(self) -> str:
        """Return in words how it ended."""
        if not self.where:
            return "nobody ran it"
        return f"the connection to its process at {self.where} was closed"

    def interrupt_of_exit(self) -> BaseException | None:
        """Return None: an interrupted process says so before it ends."""
        return None
