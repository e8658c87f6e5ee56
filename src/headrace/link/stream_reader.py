"""StreamReader: the messages in a stream of bytes, which come in pieces of any size.

The reader says where the next bytes belong (`target`), and is told how many came (`advance`), so that a socket
receives straight into it. Headers and bodies go through a small buffer, many at a time. Bulk bytes go straight into
the memory that the receiver of the message will own: only those that came with the header are copied.

Memory for bulk bytes is allocated when their header has arrived and fits `max_bulk`, which is 0 until the end of
the link has set it. There are no sockets here.
"""

from __future__ import annotations

import numpy as np

from headrace.core.errors import LinkError
from headrace.link.carrier import Received
from headrace.link.wire import HEADER_SIZE, MAX_BODY, Header, unpack_header

_BUFFER = 64 << 10
assert _BUFFER >= HEADER_SIZE + MAX_BODY


class StreamReader:
    """Puts messages together from the bytes of a stream."""

    __slots__ = ("_begin", "_body", "_buffer", "_bulk", "_end", "_header", "_missing", "max_bulk")

    def __init__(self) -> None:
        self.max_bulk = 0
        self._buffer = memoryview(bytearray(_BUFFER))
        self._begin = self._end = 0  # the bytes of the buffer that belong to no message yet
        self._header: Header | None = None  # of a message whose bulk bytes are under way,
        self._body = b""  # with its body,
        self._bulk: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None  # all of its bulk
        self._missing = self._buffer[:0]  # and the part of the bulk that has not arrived

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
        ProtocolError
            If the bytes are no message, or one that is too large. The reader is of no use then.
        LinkError
            If there is no memory for a message.
        """
        messages: list[Received] = []
        if self._missing:
            self._missing = self._missing[size:]
            if not self._missing and self._header is not None:
                messages.append(Received(self._header, self._body, self._bulk))
                self._header = self._bulk = None
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
        header = unpack_header(self._buffer[self._begin : self._end], self.max_bulk)
        whole = HEADER_SIZE + header.body
        if have < whole:
            return False
        body = bytes(self._buffer[self._begin + HEADER_SIZE : self._begin + whole])
        self._begin += whole
        if not header.bulk:
            messages.append(Received(header, body))
            return True
        try:
            bulk = np.empty(header.bulk, np.uint8)
        except MemoryError:
            raise LinkError(f"there is no memory for a frame of {header.bulk} bytes") from None
        present = min(header.bulk, have - whole)
        target = bulk.data
        target[:present] = self._buffer[self._begin : self._begin + present]
        self._begin += present
        if present == header.bulk:
            messages.append(Received(header, body, bulk))
        else:
            self._header, self._body, self._bulk = header, body, bulk
            self._missing = target[present:]
        return True
