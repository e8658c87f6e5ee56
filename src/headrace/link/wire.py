"""The wire: how one message of a link looks, on every carrier.

A message is a fixed header, a body and, where the carrier takes them, bulk bytes:

| field | bytes | meaning |
| --- | --- | --- |
| magic, version | 3 | ``HR`` and the version of this format |
| kind | 1 | a :class:`Kind` |
| epoch | 4 | which life of the part the message belongs to |
| number | 8 | the messages before it in this direction, of every kind |
| body | 4 | the length of the body, at most `MAX_BODY` |
| bulk | 8 | the length of the bulk bytes behind the body |

All numbers are little-endian. A body never holds the memory of an array: that lies in shared memory, or is bulk.
Nothing here reads a socket, and nothing that arrives is believed: what cannot be is a `ProtocolError`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from headrace.core.errors import ProtocolError

VERSION = 3
"""The version of the handshake and of all that follows it, the messages of drivers and workers included."""
MAX_BODY = 48 << 10
"""The most bytes of a body, so that a message with a small array fits into one packet of a Unix socket."""
MAX_INLINE = 16 << 10
"""The most bytes of a frame's arrays that travel with its message where there is shared memory."""

_MAGIC = b"HR" + bytes([VERSION])
_HEADER = struct.Struct("<3sBIQIQ")
HEADER_SIZE = _HEADER.size
_new = tuple.__new__  # makes a named tuple without a call of Python


class Kind(IntEnum):
    """What a message says."""

    HELLO = 1
    """The first message of each end: the terms that it was given."""
    SEGMENT = 2
    """Shared memory, whose descriptor comes with it; or that it is not used any more."""
    FRAME = 3
    """A frame: where its arrays are, and what they are."""
    CREDIT = 4
    """Places in the receiver's queue, and memory that the receiver is done with."""
    BEAT = 5
    """The sender of it is alive, and how far it is."""
    END = 6
    """No more frames come, or no more are taken, and how many there were."""
    ABORT = 7
    """The part has failed, with its exception."""
    MAPPED = 8
    """Whether the receiver can use the memory of a device that was offered to it."""
    BOARD = 9
    """The page that both ends share on one host, whose descriptor comes with it."""
    COLLECT = 10
    """The sender has waited for memory: frames that nobody can reach any more may hold it, in circles."""
    DEFER = 11
    """How many frames have arrived; the part of the receiver takes no more of them before others come."""


_KINDS = frozenset(map(int, Kind))
_FRAME_KIND = int(Kind.FRAME)  # members of an enumeration are slow to find


class Header(NamedTuple):
    """The header of a message."""

    kind: int
    epoch: int
    number: int
    body: int
    bulk: int


def pack_header(kind: int, epoch: int, number: int, body: int, bulk: int = 0) -> bytes:
    """Return the bytes of a header."""
    return _HEADER.pack(_MAGIC, kind, epoch, number, body, bulk)


_FRAME_AT = struct.Struct(_HEADER.format + "HHIIQQ")
_FRAME_AND_PLACE_SIZE = _FRAME_AT.size - HEADER_SIZE


def pack_frame(
    epoch: int,
    number: int,
    place: tuple[int, int, int],
    description: bytes,
    extra: bytes,
    content: bytes,
) -> bytes:
    """Return the bytes of a frame with one place, as most have: its header, its body, and its bulk bytes."""
    length = len(description)
    body = _FRAME_AND_PLACE_SIZE + length + len(extra)
    packed = _FRAME_AT.pack(
        _MAGIC, _FRAME_KIND, epoch, number, body, len(content), 0, 1, length, place[0], place[1], place[2]
    )
    return packed + description + extra + content


def unpack_header(data: bytes | bytearray | memoryview, max_bulk: int) -> Header:
    """Return the header at the beginning of some bytes.

    Parameters
    ----------
    data
        At least `HEADER_SIZE` bytes.
    max_bulk
        The most bulk bytes that the carrier accepts.

    Raises
    ------
    ProtocolError
        If this is not a header, or it announces more than may be.
    """
    if len(data) < HEADER_SIZE:
        raise ProtocolError(f"a message has {len(data)} bytes, and a header has {HEADER_SIZE}")
    magic, kind, epoch, number, body, bulk = _HEADER.unpack_from(data)
    if magic != _MAGIC or kind not in _KINDS or body > MAX_BODY or bulk > max_bulk:
        raise _refusal(magic, kind, body, bulk, max_bulk)
    return _new(Header, (kind, epoch, number, body, bulk))


def _refusal(magic: bytes, kind: int, body: int, bulk: int, max_bulk: int) -> ProtocolError:
    """Return the error for a header that cannot be."""
    if magic[:2] != _MAGIC[:2]:
        return ProtocolError(f"the peer does not speak this protocol: a message begins with {magic!r}")
    if magic != _MAGIC:
        return ProtocolError(
            f"the peer speaks version {magic[2]} of the link, and this process version {VERSION}"
        )
    if kind not in _KINDS:
        return ProtocolError(f"there is no message of kind {kind}")
    if body > MAX_BODY:
        return ProtocolError(f"a {Kind(kind).name} announces a body of {body} bytes; the most is {MAX_BODY}")
    return ProtocolError(f"a {Kind(kind).name} announces {bulk} bulk bytes; the most is {max_bulk}")
