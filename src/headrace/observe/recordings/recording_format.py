"""The format of recordings: files of the messages of ports.

A file begins with 16 bytes: ``\\x89headrace-rec\\r\\n`` and the version, 1. Records follow, one after the other. A
record is a head of 45 bytes and a body. All integers are little-endian.

| head | |
| --- | --- |
| 4 bytes | CRC-32 of the rest of the head |
| 4 bytes | CRC-32 of the body |
| 8 bytes | the length of the body |
| 1 byte | the kind: ``H`` header, ``T`` times, ``M`` message, ``E`` end |
| 4 bytes | of a message, as are the next three (0 in other records): the port, by its position in the header |
| 8 bytes | its number among the messages of the port, from 0 |
| 8 bytes | the compute that emitted or received it: its number among all computes of the operator, from 0 |
| 8 bytes | when it was emitted or received, in nanoseconds of the time line |

The first record is the header: JSON with the application, the recorded ports, and the flows that begin at recorded
outputs. The second has two integers of 8 bytes: the beginning of the run on its time line, and what to add to a
time for the time since the epoch. Messages follow. The body of a message is a payload (`payloads`): the tuple of
its acquisition timestamp, metadata and data.

The last record is the end: JSON with the number of messages. Nothing follows it. A file without it is incomplete:
its process was killed. Every record before that is readable, since each is handed to the operating system as a
whole, and nothing in the file points forward.

A head has a checksum of its own because opening a file reads heads and skips bodies, which may be gigabytes.
Otherwise a length with one wrong bit would look like a file whose process was killed, and the messages behind it
would be lost without a word. The numbers of the messages of each port, and their total in the end record, show that
no record is missing.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

__all__ = [
    "HEAD_SIZE",
    "LONGEST_HEADER",
    "MAGIC",
    "TIMES",
    "VERSION",
    "Head",
    "RecordingError",
]

MAGIC = b"\x89headrace-rec\r\n"
VERSION = 1
_HEAD = struct.Struct("<IIQcIQQq")
HEAD_SIZE = _HEAD.size
TIMES = struct.Struct("<qq")
LONGEST_HEADER = 1 << 24
"""The number of bytes that the header of a recording may have; a longer one is neither written nor read."""


class RecordingError(ValueError):
    """A file that is no recording, or a damaged one; or a recording that cannot be written."""


class Head(NamedTuple):
    """The head of a record."""

    checksum: int
    """That of the body."""
    length: int
    """The number of bytes of the body."""
    kind: bytes
    port: int = 0
    sequence: int = 0
    step: int = 0
    time: int = 0

    def pack(self) -> bytes:
        """Return its bytes."""
        rest = _HEAD.pack(0, *self)[4:]
        return struct.pack("<I", zlib.crc32(rest)) + rest

    @staticmethod
    def unpack(content: bytes) -> Head | None:
        """Return the head of these bytes; None if they are damaged."""
        checksum, *fields = _HEAD.unpack(content)
        return Head(*fields) if zlib.crc32(content[4:]) == checksum else None
