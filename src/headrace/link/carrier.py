"""Carrier: what takes the messages of a link from one end to the other, in order, as one stream of bytes.

A carrier knows headers (`protocol`), because they say where a message ends, and nothing else of the protocol. It is
non-blocking. One thread at a time uses it, which the end of the link sees to by a lock. The stream is a Unix socket
on one host, where descriptors travel beside the bytes, and TCP between hosts; `tls` has one that is encrypted.

Between hosts, small messages leave at once (TCP_NODELAY). The system gives up a connection whose other host is gone
after the same time as the link itself (`silence`):

- keepalive finds it when nothing is under way;
- TCP_USER_TIMEOUT finds it when sent bytes are not acknowledged. Linux also gives up a peer that acknowledges but
  does not read for that long. With 2 s, a process that was stopped for 2.7 s was lost although the link allows 3 s.
  So this limit must not be shorter than that of the link.

Decided against: packets (SOCK_SEQPACKET) on one host. Nothing has to be put together there, but it is a second
carrier, with a bound on each message. MSG_ZEROCOPY: the frame would have to stay unchanged until the system says
that it has been sent, and on loopback the system copies anyway.

A stream has messages in pieces of any size (`StreamReader`). The reader says where the next bytes belong
(`target`), and is told how many came (`advance`), so that a socket receives straight into it. Headers and bodies go
through a small buffer, many at a time. Bulk bytes go straight into the memory that the receiver of the message will
own: only those that came with the header are copied.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.core.errors import LinkError
from headrace.link.protocol import HEADER_SIZE, MAX_BODY, unpack_header

Buffer: TypeAlias = Any
"""An object with contiguous bytes: bytes, bytearray, a memoryview or an array of NumPy."""

_AT_ONCE = 8 << 20  # bytes that one call receives, so that one link does not keep the others waiting
_READS_AT_ONCE = 64  # so that a peer that says much does not keep the links waiting
_MOST_PARTS = 64  # buffers of one system call, which takes at most 1,024
_AT_ONCE_BY_RESET = struct.pack("ii", 1, 0)  # SO_LINGER, for no time
# As plain numbers: an operation on members of an enumeration takes longer than the rest of a call.
_SENT_WITH = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_RECEIVED_WITH = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_DESCRIPTORS_MISSING = int(socket.MSG_CTRUNC)
_ANCILLARY = socket.CMSG_SPACE(4 * array("i").itemsize)
_PASSING = frozenset((105, 109))  # ENOBUFS, ETOOMANYREFS
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


class Carrier:
    """One end of a connection that carries whole messages.

    Parameters
    ----------
    connected
        The socket, after the handshake, which it owns from now on.
    silence
        The seconds after which a host that does not answer is given up.
    """

    def __init__(self, connected: socket.socket, silence: float = 3.0) -> None:
        connected.setblocking(False)
        self.is_local = connected.family == socket.AF_UNIX
        """Whether descriptors travel, so that frames lie in shared memory. If not, frames travel as bulk bytes."""
        if not self.is_local:
            set_timeouts(connected, silence)
        self._socket = connected
        self.silence = silence
        self._reader = StreamReader()
        self._waiting: deque[memoryview] = deque()
        self._gone = 0  # buffers that were sent
        # Copies of descriptors that wait, each with the number of the buffer that they go with.
        self._rights: deque[tuple[int, array[int]]] = deque()
        self._is_broken = False  # nothing can be sent any more
        self._end: str | None = None

    def fileno(self) -> int:
        """Return the descriptor that is readable when messages arrive, and writable when more can be sent."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something is left to be sent by `flush`."""
        return bool(self._waiting)

    def send(self, message: bytes, bulk: Sequence[Buffer] = (), descriptors: Sequence[int] = ()) -> None:
        """Send a message without waiting. What the system does not take now is kept, and `flush` sends it.

        The buffers are kept as they are, not copied; descriptors are duplicated. A lost peer is not reported here
        but by `receive`, because what the peer said before it went can still be read.
        """
        assert self.is_local or not descriptors, "descriptors do not travel between hosts"
        was_idle = not self._waiting
        if descriptors:
            self._rights.append((self._gone + len(self._waiting), array("i", map(os.dup, descriptors))))
        self._waiting.append(memoryview(message))
        for part in bulk:
            if len(part):
                self._waiting.append(memoryview(part).cast("B"))
        if was_idle:
            self.flush()

    def flush(self) -> None:
        """Send as much as the system takes of what is left; report nothing, as `send`."""
        waiting = self._waiting
        while waiting:
            try:
                sent = 0 if self._is_broken else self._write()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # The reader is told, after what the peer sent before.
                self._is_broken = True
            if self._is_broken:
                self._forget_waiting()
                break
            while waiting and sent >= len(waiting[0]):
                sent -= len(waiting.popleft())
                self._gone += 1
            if sent:
                waiting[0] = waiting[0][sent:]

    def _write(self) -> int:
        """Send some of the bytes that wait, and return how many; raise BlockingIOError if none can be sent."""
        if not self._rights:
            return self._socket.sendmsg(islice(self._waiting, _MOST_PARTS), (), _SENT_WITH)
        number, descriptors = self._rights[0]
        before = number - self._gone
        if before:
            return self._socket.sendmsg(islice(self._waiting, min(before, _MOST_PARTS)), (), _SENT_WITH)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        try:
            sent = self._socket.sendmsg((self._waiting[0],), rights, _SENT_WITH)
        except OSError as error:
            if error.errno in _PASSING:
                raise BlockingIOError from error
            raise
        self._rights.popleft()
        _close(descriptors)
        return sent

    def receive(self) -> list[Received]:
        """Return some messages that have arrived, without waiting; an empty list if there are none.

        It is called again as long as the descriptor is readable.

        Raises
        ------
        CarrierClosed
            If there is nothing left to read and the peer is gone.
        LinkError
            If what arrived cannot be received.
        """
        messages: list[Received] = []
        left = _AT_ONCE
        while self._end is None and (left > 0 or self._holds_bytes()):
            target = self._reader.target()
            try:
                size = self._read(target)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if self.is_local and isinstance(error, ConnectionResetError):
                    continue  # said once, and before the bytes that are still there
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
            if size < len(target) and not self._holds_bytes():
                break  # there is no more: to be told so would cost a call of the system
        if self._end is not None and not messages:
            raise CarrierClosed(self._end)
        return messages

    def _read(self, target: memoryview) -> int:
        """Receive some bytes, and return how many; raise BlockingIOError if there are none."""
        if not self.is_local:
            return self._socket.recv_into(target)
        size, ancillary, flags, _ = self._socket.recvmsg_into((target,), _ANCILLARY, _RECEIVED_WITH)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._reader.descriptors.extend(
                    array("i", data[: len(data) - len(data) % array("i").itemsize])
                )
        if flags & _DESCRIPTORS_MISSING:
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            raise LinkError(
                "this process could not take the shared memory that came with a message: it may have "
                f"{most} files open, and has; allow more with `ulimit -n`"
            )
        return size

    def _holds_bytes(self) -> bool:
        """Whether there are bytes for which the descriptor will not become readable."""
        return False

    def say_end(self) -> bool:
        """Tell the peer that nothing more comes; return whether to wait until it has read everything (`is_read`).

        Between hosts, a connection that is closed resets its peer if the peer still says something, and what was
        under way to the peer is lost: its last frames, or why this end has failed.
        """
        self._forget_waiting()
        if self.is_local or self._end is not None or self._is_broken or self._socket.fileno() < 0:
            return False
        with suppress(OSError):
            # Below TLS, if there is any: nobody cares what is read from now on.
            socket.socket.shutdown(self._socket, socket.SHUT_WR)
            return True
        return False

    def is_read(self) -> bool:
        """Return whether the peer has read everything, and closed its direction, too; without waiting."""
        try:
            for _ in range(_READS_AT_ONCE):
                if not socket.socket.recv(self._socket, 1 << 16):
                    return True
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    def close(self) -> None:
        """Close the descriptor, and all that was kept; a second call does nothing."""
        self._forget_waiting()
        _close(self._reader.descriptors)
        with suppress(OSError):
            self._socket.close()

    def reset(self) -> None:
        """Close the descriptor, and let the peer know at once: what it has not received is lost."""
        self._is_broken = True
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE_BY_RESET)
        self.close()

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        while self._rights:
            _close(self._rights.popleft()[1])


def _close(descriptors: array[int] | deque[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def set_timeouts(connected: socket.socket, silence: float) -> None:
    """Let small messages leave at once, and let the system give up a host that is silent."""
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

    __slots__ = ("_begin", "_buffer", "_end", "_missing", "_whole", "descriptors")

    def __init__(self) -> None:
        self.descriptors: deque[int] = deque()
        """Those that have come: each with the first byte of its message, or before."""
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
        kind, count, length, size = unpack_header(self._buffer[self._begin : self._end])
        whole = HEADER_SIZE + length
        if have < whole:
            return False
        body = bytes(self._buffer[self._begin + HEADER_SIZE : self._begin + whole])
        self._begin += whole
        if not size:
            own = tuple([self.descriptors.popleft() for _ in range(count)]) if count else ()
            messages.append(_new(Received, (kind, body, None, own)))
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
