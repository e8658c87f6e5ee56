"""LinkPort: where the links of a part arrive.

The process of the receiver listens, and that of the sender connects. The driver tells both at the same time, so a
link may arrive before it is expected here: it is kept until then.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from headrace.link.handshake import Purpose

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier
    from headrace.link.listener import Taker
    from headrace.parts.access import Access
    from headrace.parts.control import Address

_LINK = "link"


class LinkPort:
    """The links of a part with the others.

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
        self._listener = access.listen((host, 0) if host else "", self._find_taker)

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
                _bring(coming, self._access.connect(address, Purpose(_LINK, flow, epoch)))
            except BaseException as error:
                if coming.set_running_or_notify_cancel():
                    coming.set_exception(error)

        threading.Thread(target=attempt, name="headrace link", daemon=True).start()
        return coming

    def arrival(self, flow: str, epoch: int) -> Future[Carrier]:
        """Return a future of the link of a flow into this part."""
        return self._link(Purpose(_LINK, flow, epoch))

    def _link(self, purpose: Purpose) -> Future[Carrier]:
        with self._lock:
            return self._links.setdefault(purpose, Future())

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        if purpose.kind != _LINK or self._link(purpose).done():
            return None
        return partial(self._take, purpose)

    def _take(self, purpose: Purpose, carrier: Carrier) -> None:
        _bring(self._link(purpose), carrier)


def _bring(coming: Future[Carrier], carrier: Carrier) -> None:
    """Hand over a link, unless nobody wants it any more."""
    if coming.set_running_or_notify_cancel():
        coming.set_result(carrier)
    else:
        carrier.close()
