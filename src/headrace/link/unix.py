"""UnixCarrier: messages over a Unix socket with message boundaries, and descriptors with them.

One packet is one message (SOCK_SEQPACKET), so nothing has to be put together again. The system accepts or refuses
a packet as a whole.
"""

from __future__ import annotations

import os
import resource
import socket
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.core.errors import LinkError, ProtocolError
from headrace.link.carrier import Buffer, CarrierClosed, Received
from headrace.link.protocol import HEADER_SIZE, MAX_BODY, MAX_INLINE, unpack_header

_LARGEST_PACKET = HEADER_SIZE + MAX_BODY + MAX_INLINE
_MOST_DESCRIPTORS = 4
_ANCILLARY = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array("i").itemsize)
# As plain numbers: an operation on members of an enumeration takes longer than the rest of a call.
_SENT_WITH = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_RECEIVED_WITH = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_TOO_LONG, _DESCRIPTORS_MISSING = int(socket.MSG_TRUNC), int(socket.MSG_CTRUNC)
_NEVER = 3600.0  # seconds


_new = tuple.__new__  # makes a named tuple without a call of Python


class _Waiting(NamedTuple):
    """A packet that the system did not take, with its own copies of the descriptors."""

    packet: bytes
    descriptors: tuple[int, ...]


class UnixCarrier:
    """A connected Unix socket of the kind SOCK_SEQPACKET, which it owns from now on."""

    is_local = True
    max_bulk = MAX_INLINE

    def __init__(self, connected: socket.socket) -> None:
        kind = connected.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        if connected.family != socket.AF_UNIX or kind != socket.SOCK_SEQPACKET:
            raise ValueError(f"a UnixCarrier takes a Unix socket of the kind SOCK_SEQPACKET, not {connected}")
        connected.setblocking(False)
        self._socket = connected
        self._waiting: deque[_Waiting] = deque()
        self._buffer = memoryview(bytearray(_LARGEST_PACKET))
        self._buffers = [self._buffer]
        self._is_broken = False
        self.wants_write = False
        """Whether packets wait to be sent."""

    def detach(self) -> socket.socket:
        """Return the socket, for something else than a link; only before anything was sent or received."""
        connected = self._socket
        self._socket = socket.socket()
        self._socket.close()
        connected.settimeout(None)
        return connected

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def send(
        self,
        header: bytes,
        body: bytes = b"",
        bulk: Sequence[Buffer] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        """Send a message as one packet, or keep a copy of it for `flush`."""
        packet = b"".join((header, body, *bulk)) if body or bulk else header
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
        descriptors = _descriptors_in(ancillary) if ancillary else ()
        try:
            if not size:
                raise CarrierClosed("the connection was closed")
            if flags & _TOO_LONG:
                raise ProtocolError(f"a packet is larger than {_LARGEST_PACKET} bytes")
            if flags & _DESCRIPTORS_MISSING:
                raise _missing(len(descriptors))
            packet = self._buffer
            header = unpack_header(packet if size >= HEADER_SIZE else packet[:size], self.max_bulk)
            _, _, _, body, bulk = header
            end = HEADER_SIZE + body
            if size != end + bulk:
                raise ProtocolError(f"a packet has {size} bytes, and its header says {end + bulk}")
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        content = bytearray(packet[end:size]) if bulk else None
        return [_new(Received, (header, bytes(packet[HEADER_SIZE:end]), content, descriptors))]

    def look(self) -> float | None:
        """Return when to look again, which is never: there is no other host."""
        return _NEVER

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


def _missing(came: int) -> LinkError:
    """Return the error for a packet of which only some descriptors came."""
    if came >= _MOST_DESCRIPTORS:
        return ProtocolError(f"a packet has more than {_MOST_DESCRIPTORS} descriptors")
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LinkError(
        f"this process could not take the shared memory that came with a packet: it may have {most} files open, "
        "and has; allow more with `ulimit -n`"
    )


_PASSING = frozenset((105, 109))  # ENOBUFS, ETOOMANYREFS
