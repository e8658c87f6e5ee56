"""The two ends of a link as state machines: what is said when, without sockets, memory and clocks.

`SendingEnd` and `ReceivingEnd` are told what arrived and what time it is. They return the messages to send, in the
order in which they have to be sent. These are their rules:

- The first message is HELLO, and both ends were given the same terms.
- A **credit** is a place in the receiver's queue. The sender has `size` of them; a frame takes one, and the
  receiver returns it when the consumer has taken the frame. No more come back than are out.
- The receiver may DEFER frames that have arrived: it takes no more of them before others come.
- A **lease** is shared memory that belongs to the receiver until it returns it. Leases are numbered in the order of
  the places in frames. No lease comes back twice.
- END says that no frame follows, and how many there were; from a receiver, that it takes no more. ABORT carries the
  exception of a part. After either, a connection that closes is no loss.
- Each end sends a BEAT six times in `silence` seconds. A peer that has said HELLO and of which nothing was heard
  for 19/20 of that time is silent, so that its loss is known within `silence` seconds even if this process is late.
  A peer that is frozen may have been about to beat, so one that is frozen for less than 0.78 of that time
  (19/20 - 1/6) is never taken for lost. Before its HELLO a peer may take its time: it is starting. Where somebody
  else looks after both processes, as the driver of a run does, `silence` is None, and no end beats.

On every carrier, a message is a fixed header, a body and, where the carrier takes them, bulk bytes: the kind
(1 byte), the number of descriptors (1 byte), the length of the body (4 bytes, at most `MAX_BODY`) and the length of
the bulk bytes (8 bytes), all little-endian. A body never holds the memory of an array: that lies in shared memory,
or is bulk.

Both ends have proved who they are, speak the same version (`handshake`), and may run what they like in each other
(`codec`). So an end does not defend itself against its peer: it raises `ProtocolError` only where it would go on
with what cannot be, as with terms that differ, credits that were not out, or memory that was not lent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Any, NamedTuple, TypeAlias

from headrace.core.errors import ProtocolError
from headrace.core.ports import IOSpec

_new = tuple.__new__  # makes a named tuple without a call of Python


@dataclass(frozen=True, slots=True)
class Terms:
    """What both ends of a link are given alike.

    Attributes
    ----------
    name
        The name of the link, such as ``"edge.camera.out -> server.detector.frame"``.
    size
        The places in the receiver's queue.
    policy
        What the queue does when it is full.
    max_bytes
        The most shared memory, in bytes: of the link, and as much of allocators, and of each device. Between
        hosts, the most of one frame.
    silence
        The seconds within which a peer that is frozen or cut off is known to be lost; None if whoever began the two
        processes finds that out.
    """

    name: str
    size: int
    policy: IOSpec.QueuePolicy = IOSpec.QueuePolicy.FAULT
    max_bytes: int = 1 << 30
    silence: float | None = 3.0

    def __post_init__(self) -> None:
        is_watched = self.silence is None or self.silence > 0
        if self.size < 1 or self.max_bytes < 1 or not is_watched:
            raise ValueError(f"such a link cannot be: {self}")

    def text(self) -> bytes:
        """Return what the ends compare in their first messages."""
        return f"{self.name}|{self.size}|{self.policy.name}|{self.max_bytes}|{self.silence}".encode()[:4096]


class Sample(NamedTuple):
    """A message on its way: its data, its acquisition time and its metadata.

    `number` is the number of messages before it on the link, where it was received.
    """

    data: Any
    acq_timestamp: int | None = None
    metadata: dict[str, Any] | None = None
    number: int = -1


# The wire.

VERSION = 6
"""The version of the handshake and of all that follows it, the messages of drivers and workers included."""
MAX_BODY = 48 << 10
"""The most bytes of a body, which a carrier reads into a buffer of its own."""
MAX_INLINE = 16 << 10
"""The most bytes of a frame's arrays that travel with its message where there is shared memory."""

_HEADER = struct.Struct("<BBIQ")
HEADER_SIZE = _HEADER.size


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
    """The sender of it is alive."""
    END = 6
    """No more frames come, or no more are taken, and how many there were."""
    ABORT = 7
    """The part has failed, with its exception."""
    MAPPED = 8
    """Whether the receiver can use the memory of a device that was offered to it."""
    COLLECT = 9
    """The sender has waited for memory: frames that nobody can reach any more may hold it, in circles."""
    DEFER = 10
    """How many frames have arrived; the part of the receiver takes no more of them before others come."""
    CONTROL = 11
    """A message of a driver, a worker or the process of a part (`headrace.parts.messages`)."""


_FRAME_KIND, _CREDIT_KIND = int(Kind.FRAME), int(Kind.CREDIT)  # members of an enumeration are slow to find


class Header(NamedTuple):
    """The header of a message."""

    kind: int
    descriptors: int
    body: int
    bulk: int


def pack_message(kind: int, body: bytes, bulk: int = 0, descriptors: int = 0) -> bytes:
    """Return a message but for its bulk bytes and descriptors."""
    return _HEADER.pack(kind, descriptors, len(body), bulk) + body


def unpack_header(data: bytes | bytearray | memoryview) -> Header:
    """Return the header at the beginning of at least `HEADER_SIZE` bytes."""
    return _new(Header, _HEADER.unpack_from(data))


# What may be said when.

IN_BULK = 0xFFFF_FFFF
"""The segment of a place in the bulk bytes of the message."""
MOST_PLACES = 1024
# Of `silence`: between two beats, and without any until a peer is silent. With more beats, a freeze that is never a
# loss and one that always is would lie closer together; each beat wakes the process, which takes 0.1 ms.
_BEAT, _PATIENCE = 1 / 6, 19 / 20
_LOOK = 0.5  # seconds between two calls of `tick` without beats

_FRAME = struct.Struct("<HHI")  # flags, places, length of the description
_PLACE = struct.Struct("<IQQ")
_SEGMENT = struct.Struct("<IQB")
_CREDIT = struct.Struct("<I")
_MAPPED = struct.Struct("<I")
_PROGRESS = struct.Struct("<Q")
_LEASE = struct.Struct("<Q")
_LEASES_AT_ONCE = 4096
_DESCRIPTION_IN_PLACE = 1  # a flag of a frame

Place: TypeAlias = tuple[int, int, int]
"""Where one piece of a frame's memory is: the number of a segment or `IN_BULK`, the offset, and the length."""


class Answer(NamedTuple):
    """Whether the receiver has mapped the memory of a device; if not, why."""

    segment: int
    refusal: str


class OfferedSegment(NamedTuple):
    """Shared memory that the sender offers, or drops where its size is 0.

    Attributes
    ----------
    number, size
        Its number and its bytes.
    is_reused
        Whether its memory may be written again after the link has ended.
    device
        What describes the memory of a device; empty for memory of the host.
    """

    number: int
    size: int
    is_reused: bool
    device: bytes


class Frame(NamedTuple):
    """A frame that arrived.

    Attributes
    ----------
    number
        The frames before it.
    places
        The pieces of its memory.
    lease
        The number of the first lease among them, in order; places in bulk are none.
    description, extra
        What the codec wrote; None if it is what lies in the first place.
    """

    number: int
    places: list[Place]
    lease: int
    description: bytes | None
    extra: bytes


def frame_body(places: Sequence[Place], description: bytes | None, extra: bytes) -> bytes:
    """Return the body of a frame; without a description, that lies in its first place."""
    packed = [_PLACE.pack(*place) for place in places]
    if description is None:
        return b"".join((_FRAME.pack(_DESCRIPTION_IN_PLACE, len(places), 0), *packed))
    return b"".join((_FRAME.pack(0, len(places), len(description)), *packed, description, extra))


def description_fits(description: bytes, places: int) -> bool:
    """Return whether a description fits into the body of a frame with so many places."""
    return _FRAME.size + places * _PLACE.size + len(description) <= MAX_BODY


class LinkEnd:
    """What both ends have in common.

    Parameters
    ----------
    terms
        What HELLO says; both ends must have been given the same.
    silence
        Within how many seconds it is known that the peer is silent; None if somebody else finds that out.
    now
        The time, in seconds of any clock that never goes back.
    """

    role = ""
    peer = ""

    def __init__(self, terms: bytes, silence: float | None, now: float) -> None:
        self.patience = inf if silence is None else silence * _PATIENCE
        self.between = _LOOK if silence is None else silence * _BEAT
        """The seconds between two calls of `tick`."""
        self.heard = now
        self.received = 0
        """The messages that were received, of every kind."""
        self.frames = 0
        """The frames that were sent or received."""
        self.is_open = False
        """Whether the peer has said HELLO."""
        self.has_ended = False
        self.peer_ended = False
        self._terms = terms
        self._next_beat = now + self.between

    def hello(self) -> bytes:
        """Return the first message."""
        return pack_message(Kind.HELLO, self.role.encode() + b"\n" + self._terms)

    def end(self) -> bytes:
        """Return the message that says that this end has sent, or will take, its last frame."""
        self.has_ended = True
        return pack_message(Kind.END, _PROGRESS.pack(self.frames))

    def abort(self, length: int) -> bytes:
        """Return the message that says that this end's part has failed; so many bulk bytes say how."""
        self.has_ended = True
        return pack_message(Kind.ABORT, b"", length)

    def tick(self, now: float) -> bytes:
        """Return the beat, if it is due."""
        if now < self._next_beat:
            return b""
        self._next_beat = now + self.between
        return b"" if self.patience == inf else pack_message(Kind.BEAT, b"")

    def next_tick(self) -> float:
        """Return when to call `tick`, or to ask for silence, next."""
        return min(self._next_beat, self.heard + self.patience) if self.is_open else self._next_beat

    def is_silent(self, now: float) -> bool:
        """Return whether nothing was heard of the peer for too long."""
        return self.is_open and now >= self.heard + self.patience

    def patience_left(self, now: float) -> float:
        """Return for how many seconds the peer may still say nothing: all before its HELLO."""
        return self.heard + self.patience - now if self.is_open else self.patience

    def receive(self, kind: int, body: bytes, now: float) -> Any:
        """Accept a message that arrived; return what the end has to do about it, if anything."""
        self.received += 1
        self.heard = now
        return self._accept(kind, body)

    def _accept(self, kind: int, body: bytes) -> Any:
        if kind == Kind.HELLO:
            expected = self.peer.encode() + b"\n" + self._terms
            if body != expected:
                raise ProtocolError(
                    f"the peer's terms are {body!r:.300}, and they should be {expected!r:.300}"
                )
            self.is_open = True
        elif kind == Kind.ABORT:
            self.peer_ended = True
        elif kind == Kind.END:
            self._check_end(*_PROGRESS.unpack(body))
            self.peer_ended = True
        elif kind != Kind.BEAT:
            raise ProtocolError(f"a {self.peer} sends no message of kind {kind}")
        return None

    def _check_end(self, frames: int) -> None:
        """Raise if the peer cannot have so many frames at its end."""


class SendingEnd(LinkEnd):
    """The end that frames leave from.

    Attributes
    ----------
    credits
        The places in the receiver's queue.
    leases
        What keeps the memory of each lease, by its number.
    """

    role, peer = "sender", "receiver"

    def __init__(self, terms: bytes, silence: float | None, now: float, size: int) -> None:
        super().__init__(terms, silence, now)
        self.credits = size
        self.leases: dict[int, Any] = {}
        self._size = size
        self._lease = 0
        self._segments = 0
        self.deferred = 0
        """The frames, from the first on, of which the receiver takes no more before others come."""
        self.unanswered: set[int] = set()
        """The segments of devices of which the receiver has not said whether it can map them."""

    def segment(self, size: int, is_reused: bool = False, device: bytes = b"") -> tuple[int, bytes]:
        """Return the number of a new segment, and the message that its descriptor goes with.

        A segment `is_reused` if its memory may be written again after this link has ended. `device` describes the
        memory of a device, which no frame may lie in before the receiver has answered.
        """
        number = self._segments
        self._segments += 1
        if device:
            self.unanswered.add(number)
        body = _SEGMENT.pack(number, size, is_reused) + device
        return number, pack_message(Kind.SEGMENT, body, descriptors=1)

    def collect(self) -> bytes:
        """Return the message that asks the receiver to let go of frames that nobody can reach any more."""
        return pack_message(Kind.COLLECT, b"")

    def drop_segment(self, number: int) -> bytes:
        """Return the message that says that a segment is not used any more."""
        return pack_message(Kind.SEGMENT, _SEGMENT.pack(number, 0, 0))

    def frame(self, body: bytes, bulk: int) -> bytes:
        """Return the message of a frame; the caller adds its leases with `lend`."""
        assert self.credits
        self.credits -= 1
        self.frames += 1
        return _HEADER.pack(_FRAME_KIND, 0, len(body), bulk) + body

    def lend(self, holder: Any) -> None:
        """Note what keeps the memory of the next place in a segment until it comes back."""
        self.leases[self._lease] = holder
        self._lease += 1

    def _accept(self, kind: int, body: bytes) -> Any:
        """Return credits and the holders of memory that came back, an `Answer`, or a kind to note."""
        if kind == _CREDIT_KIND:
            return self._take_back(body)
        if kind == Kind.DEFER:
            (self.deferred,) = _PROGRESS.unpack(body)
            return Kind.DEFER
        if kind != Kind.MAPPED:
            return super()._accept(kind, body)
        (number,) = _MAPPED.unpack_from(body)
        self.unanswered.discard(number)
        return Answer(number, body[_MAPPED.size :].decode(errors="replace"))

    def _take_back(self, body: bytes) -> tuple[int, list[Any]]:
        """Return the credits and the holders of the memory that came back."""
        (places,) = _CREDIT.unpack_from(body)
        if self.credits + places > self._size:
            raise ProtocolError(
                f"{places} credits came back, and {self._size - self.credits} of {self._size} were out"
            )
        self.credits += places
        holders: list[Any] = []
        if len(body) > _CREDIT.size:
            for (lease,) in _LEASE.iter_unpack(memoryview(body)[_CREDIT.size :]):
                if lease not in self.leases:
                    raise ProtocolError(f"memory came back that is not lent: lease {lease}")
                holders.append(self.leases.pop(lease))
        return places, holders


class ReceivingEnd(LinkEnd):
    """The end that frames arrive at.

    Attributes
    ----------
    leases
        The segment and the size of each lease that was not returned, by the number of the lease.
    lent
        The bytes of these leases.
    """

    role, peer = "receiver", "sender"

    def __init__(self, terms: bytes, silence: float | None, now: float, size: int) -> None:
        super().__init__(terms, silence, now)
        self.leases: dict[int, tuple[int, int]] = {}
        self.lent = 0
        self._size = size
        self._credits = size
        self._lease = 0

    def give(self, places: int, leases: Sequence[int] = ()) -> list[bytes]:
        """Return the messages that give back credits and memory.

        Raises
        ------
        ValueError
            If more credits are given than frames were received.
        """
        if self._credits + places > self._size:
            raise ValueError(
                f"{places} credits are given back, and {self._size - self._credits} frames are out"
            )
        self._credits += places
        for lease in leases:
            self.lent -= self.leases.pop(lease)[1]
        messages = []
        for first in range(0, max(len(leases), 1), _LEASES_AT_ONCE):
            some = leases[first : first + _LEASES_AT_ONCE]
            body = _CREDIT.pack(0 if first else places) + b"".join(map(_LEASE.pack, some))
            messages.append(pack_message(_CREDIT_KIND, body))
        return messages

    def defer(self, frames: int) -> bytes:
        """Return the message that says that no more of so many frames are taken before others come."""
        return pack_message(Kind.DEFER, _PROGRESS.pack(frames))

    def answer(self, segment: int, refusal: str) -> bytes:
        """Return the message that says whether the memory of a device could be mapped, or why not."""
        return pack_message(Kind.MAPPED, _MAPPED.pack(segment) + refusal.encode())

    def _accept(self, kind: int, body: bytes) -> Any:
        """Return a `Frame`, an `OfferedSegment`, or a kind to note."""
        if kind == _FRAME_KIND:
            return self._take_frame(body)
        if kind == Kind.SEGMENT:
            number, size, is_reused = _SEGMENT.unpack_from(body)
            return OfferedSegment(number, size, bool(is_reused), body[_SEGMENT.size :])
        return Kind.COLLECT if kind == Kind.COLLECT else super()._accept(kind, body)

    def _take_frame(self, body: bytes) -> Frame:
        """Return the frame that arrived."""
        if not self._credits:
            raise ProtocolError(f"a frame came without a credit: all {self._size} places are taken")
        self._credits -= 1
        flags, count, length = _FRAME.unpack_from(body)
        start = _FRAME.size + count * _PLACE.size
        if count == 1:
            places = [_PLACE.unpack_from(body, _FRAME.size)]
        else:
            places = [*_PLACE.iter_unpack(memoryview(body)[_FRAME.size : start])]
        lease = self._lease
        for segment, _, size in places:
            if segment != IN_BULK:
                self.leases[self._lease] = (segment, size)
                self._lease += 1
                self.lent += size
        number = self.frames
        self.frames = number + 1
        text = start + length
        described = None if flags & _DESCRIPTION_IN_PLACE else body[start:text]
        return _new(Frame, (number, places, lease, described, body[text:]))

    def _check_end(self, frames: int) -> None:
        if frames != self.frames:
            raise ProtocolError(f"the sender ended after {frames} frames, and {self.frames} have come")


assert _CREDIT.size + _LEASES_AT_ONCE * _LEASE.size <= MAX_BODY
