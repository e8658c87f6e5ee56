"""TcpCarrier: messages over TCP, as one stream of bytes.

Small messages leave at once (TCP_NODELAY). The system gives up a connection whose other host is gone after the same
time as the link itself (`silence`):

- keepalive finds it when nothing is under way;
- TCP_USER_TIMEOUT finds it when sent bytes are not acknowledged. Linux also gives up a peer that acknowledges but
  does not read for that long. With 2 s, a process that was stopped for 2.7 s was lost although the link allows 3 s.
  So this limit must not be shorter than that of the link.

Decided against: MSG_ZEROCOPY. The frame would have to stay unchanged until the system says that it has been sent,
and on loopback the system copies anyway.

A stream has messages in pieces of any size (`StreamReader`). The reader says where the next bytes belong
(`target`), and is told how many came (`advance`), so that a socket receives straight into it. Headers and bodies go
through a small buffer, many at a time. Bulk bytes go straight into the memory that the receiver of the message will
own: only those that came with the header are copied.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from headrace.core.errors import LinkError
from headrace.link.carrier import Buffer, CarrierClosed, Received
from headrace.link.lingering import linger, note_unsent
from headrace.link.protocol import HEADER_SIZE, MAX_BODY, unpack_header

_AT_ONCE = 8 << 20  # bytes that one call receives, so that one link does not keep the others waiting
_MOST_PARTS = 64  # buffers of one system call, which takes at most 1,024
_TO_CLOSE = 0.2  # seconds within which a link closes a connection when everything is sent
_AT_ONCE_BY_RESET = struct.pack("ii", 1, 0)  # SO_LINGER, for no time
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class TcpCarrier:
    """A connected TCP socket, which it owns from now on.

    Parameters
    ----------
    connected
        The socket, after the handshake.
    silence
        The seconds after which a host that does not answer is given up.
    """

    is_local = False

    def __init__(self, connected: socket.socket, silence: float = 3.0) -> None:
        connected.setblocking(False)
        set_timeouts(connected, silence)
        self._socket = connected
        self._silence = silence
        self._reader = StreamReader()
        self._waiting: deque[memoryview] = deque()
        self._is_broken = False  # nothing can be sent any more
        self._is_noted = False  # a process that exits waits for this carrier
        self._end: str | None = None
        self._lingering: Any = None

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait to be sent."""
        return bool(self._waiting)

    def send(self, message: bytes, bulk: Sequence[Buffer] = (), descriptors: Sequence[int] = ()) -> None:
        """Send a message, or keep what the system does not take for `flush`."""
        assert not descriptors, "descriptors do not travel over TCP"
        was_idle = not self._waiting
        self._waiting.append(memoryview(message))
        self._waiting.extend(memoryview(part).cast("B") for part in bulk if len(part))
        if was_idle:
            self._send_waiting()

    def flush(self) -> None:
        """Send the bytes that wait, until the system takes no more."""
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting:
            try:
                sent = 0 if self._is_broken else self._write()
            except (BlockingIOError, InterruptedError):
                self._is_noted = True
                note_unsent(self, self._silence)
                return
            except OSError:
                # The reader is told, after what the peer sent before.
                self._is_broken = True
            if self._is_broken:
                self._waiting.clear()
                break
            while self._waiting and sent >= len(self._waiting[0]):
                sent -= len(self._waiting.popleft())
            if sent:
                self._waiting[0] = self._waiting[0][sent:]
        if self._is_noted and not self.wants_write:
            self._is_noted = False
            note_unsent(self, _TO_CLOSE)

    def _write(self) -> int:
        """Send some of the bytes that wait, and return how many; raise BlockingIOError if none can be sent."""
        return self._socket.sendmsg(islice(self._waiting, _MOST_PARTS), (), _FLAGS)

    def receive(self) -> list[Received]:
        """Return the messages in the bytes that have arrived, of at most 8 MiB."""
        messages: list[Received] = []
        left = _AT_ONCE
        while self._end is None and (left > 0 or self._holds_bytes()):
            try:
                size = self._read(self._reader.target())
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._end = f"the connection is broken ({error})"
                break
            if not size:
                between = self._reader.is_between_messages
                self._end = "the connection was closed" + ("" if between else " in the middle of a message")
                self._is_broken = True
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)  # tells the peer that everything was read
                break
            left -= size
            messages += self._reader.advance(size)
        if self._end is not None and not messages:
            raise CarrierClosed(self._end)
        return messages

    def _read(self, target: memoryview) -> int:
        """Receive some bytes, and return how many; raise BlockingIOError if there are none."""
        return self._socket.recv_into(target)

    def _holds_bytes(self) -> bool:
        """Whether there are bytes for which the descriptor will not become readable."""
        return False

    def close(self, patience: float | None = None) -> None:
        """Forget what was not sent, and close the connection once the peer has read what was (`lingering`)."""
        self._waiting.clear()
        if self._end is None and not self._is_broken and self._socket.fileno() >= 0:
            seconds = self._silence if patience is None else max(patience, _TO_CLOSE)
            self._lingering = linger(self._socket, seconds)
        self._socket.close()
        note_unsent(self, None)

    def reset(self) -> None:
        """Close the connection by a reset, which waits for no acknowledgement; also after `close`."""
        if self._lingering is not None:
            self._lingering.end()
        self._is_broken = True
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE_BY_RESET)
        self.close()


def set_timeouts(connected: socket.socket, silence: float) -> None:
    """Let small messages leave at once, and let the system give up a host that is silent."""
    if connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence * 1000))


_BUFFER = 64 << 10
assert _BUFFER >= HEADER_SIZE + MAX_BODY


class StreamReader:
    """Puts messages together from the bytes of a stream."""

    __slots__ = ("_begin", "_buffer", "_end", "_missing", "_whole")

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER))
        self._begin = self._end = 0  # the bytes of the buffer that belong to no message yet
        self._missing = self._buffer[:0]  # the part of the bulk of a message that has not arrived,
        self._whole: Received | None = None  # and what it will be

    @property
    def is_between_messages(self) -> bool:
        """Whether the last message that began has arrived as a whole."""
        return not self._missing and self._begin == self._end

    def target(self) -> memoryview:
        """Return where the next bytes belong; there is room for one at least."""
        return self._missing or self._buffer[self._end :]

    def advance(self, size: int) -> list[Received]:
        """Return the messages that are complete, now that so many bytes have been written to `target`.

        Raises
        ------
        LinkError
            If there is no memory for a message.
        """
        messages: list[Received] = []
        if self._missing:
            self._missing = self._missing[size:]
            if not self._missing and self._whole is not None:
                messages.append(self._whole)
                self._whole = None
            return messages
        self._end += size
        while not self._missing and self._parse(messages):
            pass
        if self._begin:
            rest = self._end - self._begin
            self._buffer[:rest] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, rest
        return messages

    def _parse(self, messages: list[Received]) -> bool:
        """Take a message off the buffer, or the beginning of one with bulk bytes; return False if there is none."""
        have = self._end - self._begin
        if have < HEADER_SIZE:
            return False
        kind, length, size = unpack_header(self._buffer[self._begin : self._end])
        whole = HEADER_SIZE + length
        if have < whole:
            return False
        body = bytes(self._buffer[self._begin + HEADER_SIZE : self._begin + whole])
        self._begin += whole
        if not size:
            messages.append(Received(kind, body))
            return True
        try:
            bulk = np.empty(size, np.uint8)
        except MemoryError:
            raise LinkError(f"there is no memory for a frame of {size} bytes") from None
        present = min(size, have - whole)
        target = bulk.data
        target[:present] = self._buffer[self._begin : self._begin + present]
        self._begin += present
        if present == size:
            messages.append(Received(kind, body, bulk))
        else:
            self._whole, self._missing = Received(kind, body, bulk), target[present:]
        return True
