"""Carrier: what takes the messages of a link from one end to the other, in order.

A carrier knows headers (`protocol.py`), because they say where a message ends, and nothing else of the protocol. It
is non-blocking. One thread at a time uses it, which the end of the link sees to by a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from headrace.link.protocol import Header

Buffer: TypeAlias = Any
"""An object with contiguous bytes: bytes, bytearray, a memoryview or an array of NumPy."""


class CarrierClosed(Exception):
    """The peer has closed its end, or the connection is broken: no message comes any more; the text says how."""


class Received(NamedTuple):
    """A message that arrived.

    Attributes
    ----------
    header
        Its header, which `unpack_header` has checked.
    body
        As many bytes as the header says.
    bulk
        As many bytes as the header says, writable, in memory that belongs to whoever takes the message; None if
        there are none.
    descriptors
        The file descriptors that came with it, which whoever takes the message has to close.
    """

    header: Header
    body: bytes
    bulk: Buffer | None = None
    descriptors: tuple[int, ...] = ()


class Carrier(Protocol):
    """One end of a connection that carries whole messages."""

    is_local: bool
    """Whether descriptors travel, so that frames lie in shared memory. If not, frames travel as bulk bytes."""
    max_bulk: int
    """The most bulk bytes of a message that arrives; the end sets it. A header that announces more is refused
    before memory for it is allocated."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when messages arrive, and writable when more can be sent."""

    @property
    def wants_write(self) -> bool:
        """Whether something is left to be sent by `flush`."""

    def send(
        self,
        header: bytes,
        body: bytes = b"",
        bulk: Sequence[Buffer] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        """Send a message without waiting. What the system does not take now is kept, and `flush` sends it.

        The buffers are kept as they are, not copied; descriptors are duplicated. A lost peer is not reported here
        but by `receive`, because what the peer said before it went can still be read.
        """

    def flush(self) -> None:
        """Send as much as the system takes of what is left; report nothing, as `send`."""

    def receive(self) -> list[Received]:
        """Return some messages that have arrived, without waiting; an empty list if there are none.

        It is called again as long as the descriptor is readable. A carrier that has read more than it returned
        returns the rest at the next call, and must not leave a whole message unreturned when the descriptor is not
        readable.

        Raises
        ------
        CarrierClosed
            If there is nothing left to read and the peer is gone.
        ProtocolError
            If what arrived is not a message.
        """

    def look(self) -> float | None:
        """Look whether the other host answers; return the seconds until the next check, None if it is cut off."""

    def close(self, patience: float | None = None) -> None:
        """Close the descriptor, and all that was kept; a second call does nothing.

        Between hosts, the peer has so many seconds to read the last that was said, or the carrier's own limit.
        """

    def reset(self) -> None:
        """Close the descriptor, and let the peer know at once: what it has not received is lost.

        After `close`, let go of what waits for the peer.
        """
