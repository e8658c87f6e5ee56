"""Reception: where the processes of parts, and the agents that start them, connect to the driver."""

from __future__ import annotations

import os
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.link.handshake import Purpose
from headrace.parts.control import Address, Channel, Gone, Refused, Starting

if TYPE_CHECKING:
    from headrace.link.listener import Taker
    from headrace.parts.access import Access

PART = "part"
"""The purpose of a connection of a process: the name is that of its part, the epoch the number of its start."""
AGENT = "agent"
"""The purpose of a connection of an agent: the name has the fragments that it runs."""


class Reception:
    """What arrives at the driver, from any thread: connections, and what becomes of processes.

    Parameters
    ----------
    address
        Where to listen; an empty one is a new Unix socket.
    access
        Who may connect.
    """

    def __init__(self, address: Address, access: Access) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._arrived: deque[tuple[Purpose, Any] | Starting | Gone] = deque()
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable after something has arrived."""
        try:
            self._listener = access.listen(address, self._find_taker)
        except BaseException:
            os.close(self.descriptor)
            raise

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    def post(self, what: tuple[Purpose, Any] | Starting | Gone) -> bool:
        """Hand the driver something, from any thread; return False if it does not listen any more."""
        with self._lock:
            if not self._is_closed:
                self._arrived.append(what)
                os.eventfd_write(self.descriptor, 1)
            return not self._is_closed

    def take(self) -> list[tuple[Purpose, Any] | Starting | Gone]:
        """Return what has arrived: what a connection is for with the connection, or what was posted."""
        os.eventfd_read(self.descriptor)
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        with self._lock:
            self._is_closed = True
            os.close(self.descriptor)
        for what in self._arrived:
            if not isinstance(what, (Starting, Gone)):
                purpose, connection = what
                if purpose.kind == AGENT:
                    Channel.over(connection).send(Refused("the driver refused this worker: its run is over"))
                connection.close()
        self._arrived.clear()

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        return partial(self._take, purpose) if purpose.kind in (PART, AGENT) else None

    def _take(self, purpose: Purpose, carrier: Any) -> None:
        connection = carrier.detach()
        if not self.post((purpose, connection)):
            connection.close()
