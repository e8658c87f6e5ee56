"""Where processes of a run connect: to the driver (`Reception`), and to each other (`LinkPort`)."""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from headrace.link.channel import Channel, finish_all
from headrace.link.handshake import Purpose
from headrace.parts.access import AGENT, LINK, PART
from headrace.parts.messages import Address, Gone, Refused

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier
    from headrace.link.listener import Taker
    from headrace.parts.access import Access


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
        self._arrived: deque[tuple[Purpose, Channel] | Gone] = deque()
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

    def post(self, what: tuple[Purpose, Channel] | Gone) -> bool:
        """Hand the driver something, from any thread; return False if it does not listen any more."""
        with self._lock:
            if not self._is_closed:
                self._arrived.append(what)
                os.eventfd_write(self.descriptor, 1)
            return not self._is_closed

    def take(self) -> list[tuple[Purpose, Channel] | Gone]:
        """Return what has arrived: what a connection is for with its channel, or what was posted."""
        os.eventfd_read(self.descriptor)
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        with self._lock:
            self._is_closed = True
            os.close(self.descriptor)
        late = [what for what in self._arrived if not isinstance(what, Gone)]
        self._arrived.clear()
        agents = [channel for purpose, channel in late if purpose.kind == AGENT]
        finish_all(agents, Refused("the driver refused this worker: its run is over"))
        for _, channel in late:
            channel.close()

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        return partial(self._take, purpose) if purpose.kind in (PART, AGENT) else None

    def _take(self, purpose: Purpose, carrier: Carrier) -> None:
        channel = Channel(carrier)
        if not self.post((purpose, channel)):
            channel.close()


class LinkPort:
    """Where the links of a part with the others arrive.

    The process of the receiver listens, and that of the sender connects. The driver tells both at the same time, so
    a link may arrive before it is expected here: it is kept until then.

    Parameters
    ----------
    host
        The address of this host in the network of the others; empty if all of them are on this one.
    access
        Who may connect.
    """

    def __init__(self, host: str, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._links: dict[Purpose, Future[Carrier]] = {}
        self._listener = access.listen((host, 0) if host else "", self._find_taker, is_for_links=True)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    def send_to(self, address: Address, flow: str, epoch: int) -> Future[Carrier]:
        """Connect a flow with the process of its receiver; return a future of the link.

        A host that is cut off keeps the thread of an attempt waiting, and nobody else.
        """
        coming: Future[Carrier] = Future()

        def attempt() -> None:
            try:
                _bring(coming, self._access.connect(address, Purpose(LINK, flow, epoch)))
            except BaseException as error:
                if coming.set_running_or_notify_cancel():
                    coming.set_exception(error)

        threading.Thread(target=attempt, name="headrace link", daemon=True).start()
        return coming

    def arrival(self, flow: str, epoch: int) -> Future[Carrier]:
        """Return a future of the link of a flow into this part."""
        return self._link(Purpose(LINK, flow, epoch))

    def _link(self, purpose: Purpose) -> Future[Carrier]:
        with self._lock:
            return self._links.setdefault(purpose, Future())

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        if purpose.kind != LINK or self._link(purpose).done():
            return None
        return partial(_bring, self._link(purpose))


def _bring(coming: Future[Carrier], carrier: Carrier) -> None:
    """Hand over a link, unless nobody wants it any more."""
    if coming.set_running_or_notify_cancel():
        coming.set_result(carrier)
    else:
        carrier.close()
