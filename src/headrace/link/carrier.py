"""Carrier: what takes the messages of a link from one end to the other, in order; over a Unix socket, here.

A carrier knows headers (`protocol`), because they say where a message ends, and nothing else of the protocol. It is
non-blocking. One thread at a time uses it, which the end of the link sees to by a lock.

Over a Unix socket with message boundaries (SOCK_SEQPACKET) one packet is one message, so nothing has to be put
together again. The system accepts or refuses a packet as a whole. `stream` carries messages over TCP.
"""

from __future__ import annotations

import os
import resource
import socket
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeAlias

from headrace.core.errors import LinkError
from headrace.link.protocol import HEADER_SIZE, MAX_BODY, MAX_INLINE, unpack_header

Buffer: TypeAlias = Any
"""An object with contiguous bytes: bytes, bytearray, a memoryview or an array of NumPy."""

_new = tuple.__new__  # makes a named tuple without a call of Python


class CarrierClosed(Exception):
    """The peer has closed its end, or the connection is broken: no message comes any more; the text says how."""


class Received(NamedTuple):
    """A message that arrived.

    Attributes
    ----------
    kind
        What it says.
    body
        Its body.
    bulk
        Its bulk bytes, writable, in memory that belongs to whoever takes the message; None if there are none.
    descriptors
        The file descriptors that came with it, which whoever takes the message has to close.
    """

    kind: int
    body: bytes
    bulk: Buffer | None = None
    descriptors: tuple[int, ...] = ()


class Carrier(Protocol):
    """One end of a connection that carries whole messages."""

    is_local: bool
    """Whether descriptors travel, so that frames lie in shared memory. If not, frames travel as bulk bytes."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when messages arrive, and writable when more can be sent."""

    @property
    def wants_write(self) -> bool:
        """Whether something is left to be sent by `flush`."""

    def send(self, message: bytes, bulk: Sequence[Buffer] = (), descriptors: Sequence[int] = ()) -> None:
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
        LinkError
            If what arrived cannot be received.
        """

    def close(self, patience: float | None = None) -> None:
        """Close the descriptor, and all that was kept; a second call does nothing.

        Between hosts, the peer has so many seconds to read the last that was said, or the carrier's own limit.
        """

    def reset(self) -> None:
        """Close the descriptor, and let the peer know at once: what it has not received is lost.

        After `close`, let go of what waits for the peer.
        """


_LARGEST_PACKET = HEADER_SIZE + MAX_BODY + MAX_INLINE
_MOST_DESCRIPTORS = 4
_ANCILLARY = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array("i").itemsize)
# As plain numbers: an operation on members of an enumeration takes longer than the rest of a call.
_SENT_WITH = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_RECEIVED_WITH = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_DESCRIPTORS_MISSING = int(socket.MSG_CTRUNC)
_PASSING = frozenset((105, 109))  # ENOBUFS, ETOOMANYREFS


class _Waiting(NamedTuple):
    """A packet that the system did not take, with its own copies of the descriptors."""

    packet: bytes
    descriptors: tuple[int, ...]


class UnixCarrier:
    """A connected Unix socket of the kind SOCK_SEQPACKET, which it owns from now on."""

    is_local = True

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._waiting: deque[_Waiting] = deque()
        self._buffer = memoryview(bytearray(_LARGEST_PACKET))
        self._buffers = [self._buffer]
        self._is_broken = False
        self.wants_write = False
        """Whether packets wait to be sent."""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def send(self, message: bytes, bulk: Sequence[Buffer] = (), descriptors: Sequence[int] = ()) -> None:
        """Send a message as one packet, or keep a copy of it for `flush`."""
        packet = b"".join((message, *bulk)) if bulk else message
        if self.wants_write or not self._try(packet, descriptors):
            self._waiting.append(_Waiting(packet, tuple(map(os.dup, descriptors))))
            self.wants_write = True

    def flush(self) -> None:
        """Send the packets that wait, until the system takes no more."""
        while self._waiting and self._try(*self._waiting[0]):
            for descriptor in self._waiting.popleft().descriptors:
                os.close(descriptor)
        self.wants_write = bool(self._waiting)

    def _try(self, packet: bytes, descriptors: Sequence[int]) -> bool:
        """Send a packet; return False if the system takes none now. A packet for a lost peer counts as sent."""
        if self._is_broken:
            return True
        try:
            if descriptors:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))]
                self._socket.sendmsg((packet,), rights, _SENT_WITH)
            else:
                self._socket.send(packet, _SENT_WITH)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            # ENOBUFS and ETOOMANYREFS pass; any other error is for ever, and the reader is told of it.
            if error.errno in _PASSING:
                return False
            self._is_broken = True
        return True

    def receive(self) -> list[Received]:
        """Return the message of the next packet, if there is one.

        One at a time: to look for another costs a call of the system, while the program could be told of this one.
        """
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into(self._buffers, _ANCILLARY, _RECEIVED_WITH)
        except (BlockingIOError, InterruptedError):
            return []
        except ConnectionResetError:
            return self.receive()  # said once, and before the packets that are still there
        except OSError as error:
            raise CarrierClosed(f"the connection is broken ({error})") from error
        if not size:
            raise CarrierClosed("the connection was closed")
        descriptors = _descriptors_in(ancillary) if ancillary else ()
        if flags & _DESCRIPTORS_MISSING:
            for descriptor in descriptors:
                os.close(descriptor)
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            raise LinkError(
                "this process could not take the shared memory that came with a packet: it may have "
                f"{most} files open, and has; allow more with `ulimit -n`"
            )
        packet = self._buffer
        kind, body, bulk = unpack_header(packet)
        end = HEADER_SIZE + body
        content = bytearray(packet[end:size]) if bulk else None
        return [_new(Received, (kind, bytes(packet[HEADER_SIZE:end]), content, descriptors))]

    def close(self, patience: float | None = None) -> None:
        """Close the socket and the descriptors of what was not sent."""
        while self._waiting:
            for descriptor in self._waiting.popleft().descriptors:
                os.close(descriptor)
        self.wants_write = False
        with suppress(OSError):
            self._socket.close()

    reset = close


def _descriptors_in(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    """Return the descriptors that came with a packet."""
    descriptors = array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return tuple(descriptors)
