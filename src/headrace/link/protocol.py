"""The two ends of a link as state machines: what may be said when, without sockets, memory and clocks.

`SendingEnd` and `ReceivingEnd` are told what arrived and what time it is. They return the messages to send, in the
order in which they have to be sent, and raise `ProtocolError` for what cannot be. These are their rules:

- Each message has the number of messages before it in its direction. A gap, or the same message again, is an error.
- The first message is HELLO, and both ends were given the same terms.
- A **credit** is a place in the receiver's queue. The sender has `size` of them; a frame takes one, and the
  receiver returns it when the consumer has taken the frame. No more come back than are out.
- The receiver may DEFER frames that have arrived: it takes no more of them before others come.
- A **loan** is shared memory that belongs to the receiver until it returns it. Loans are numbered in the order of
  the places in frames, so neither end has to trust a number of the other. No loan comes back twice.
- END says that no frame follows, and how many there were; from a receiver, that it takes no more. ABORT carries the
  exception of a part. After either, a connection that closes is no loss.
- Each end sends a BEAT six times in `silence` seconds. A peer that has said HELLO and of which nothing was heard
  for 19/20 of that time is silent, so that its loss is known within `silence` seconds even if this process is late.
  A peer that is frozen may have been about to beat, so one that is frozen for less than 0.78 of that time
  (19/20 - 1/6) is never taken for lost. Before its HELLO a peer may take its time: it is starting. Where somebody
  else looks after both processes, as the driver of a run does, `silence` is None, and no end beats.

On every carrier, a message is a fixed header, a body and, where the carrier takes them, bulk bytes:

| field | bytes | meaning |
| --- | --- | --- |
| magic, version | 3 | ``HR`` and the version of this format |
| kind | 1 | a :class:`Kind` |
| epoch | 4 | which life of the part the message belongs to |
| number | 8 | the messages before it in this direction, of every kind |
| body | 4 | the length of the body, at most `MAX_BODY` |
| bulk | 8 | the length of the bulk bytes behind the body |

All numbers are little-endian. A body never holds the memory of an array: that lies in shared memory, or is bulk.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from headrace.core.errors import ProtocolError

_new = tuple.__new__  # makes a named tuple without a call of Python


# The wire.

VERSION = 4
"""The version of the handshake and of all that follows it, the messages of drivers and workers included."""
MAX_BODY = 48 << 10
"""The most bytes of a body, so that a message with a small array fits into one packet of a Unix socket."""
MAX_INLINE = 16 << 10
"""The most bytes of a frame's arrays that travel with its message where there is shared memory."""

_MAGIC = b"HR" + bytes([VERSION])
_HEADER = struct.Struct("<3sBIQIQ")
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


_KINDS = frozenset(map(int, Kind))
_FRAME_KIND, _CREDIT_KIND = int(Kind.FRAME), int(Kind.CREDIT)  # members of an enumeration are slow to find


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


# What may be said when.

IN_BULK = 0xFFFF_FFFF
"""The segment of a place in the bulk bytes of the message."""
MOST_SEGMENTS = 4096
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
_LOAN = struct.Struct("<Q")
_LOANS_AT_ONCE = 4096
_LONGEST_DEVICE = 512  # bytes that describe the memory of a device
_LONGEST_REFUSAL = 1024
_DESCRIPTION_IN_PLACE = 1  # a flag of a frame


class Message(NamedTuple):
    """A message to send."""

    header: bytes
    body: bytes


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
    loan
        The number of the first loan among them, in order; places in bulk are none.
    description, extra
        What the codec wrote; None if it is what lies in the first place.
    """

    number: int
    places: list[Place]
    loan: int
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
    epoch
        The epoch of every message.
    silence
        Within how many seconds it is known that the peer is silent; None if somebody else finds that out.
    now
        The time, in seconds of any clock that never goes back.
    """

    role = ""
    peer = ""
    _usual = 0

    def __init__(self, terms: bytes, epoch: int, silence: float | None, now: float) -> None:
        self.epoch = epoch
        self.patience = None if silence is None else silence * _PATIENCE
        self.between = _LOOK if silence is None else silence * _BEAT
        """The seconds between two calls of `tick`."""
        self.heard = now
        self.frames = 0
        """The frames that were sent or received."""
        self.is_open = False
        """Whether the peer has said HELLO."""
        self.has_ended = False
        self.peer_ended = False
        self.abort_body: bytes | None = None
        """What the ABORT of the peer says."""
        self._terms = terms
        self._out = 0
        self._in = 0
        self._next_beat = now + self.between

    @property
    def received(self) -> int:
        """The messages that were received."""
        return self._in

    def hello(self) -> Message:
        """Return the first message."""
        return self._message(Kind.HELLO, self.role.encode() + b"\n" + self._terms)

    def end(self) -> Message:
        """Return the message that says that this end has sent, or will take, its last frame."""
        self.has_ended = True
        return self._message(Kind.END, _PROGRESS.pack(self.frames))

    def abort(self, body: bytes) -> Message:
        """Return the message that says that this end's part has failed."""
        self.has_ended = True
        return self._message(Kind.ABORT, body)

    def tick(self, now: float) -> list[Message]:
        """Return the beat, if it is due."""
        if self.patience is None:
            self._next_beat = now + self.between
        elif now >= self._next_beat:
            self._next_beat = now + self.between
            return [self._message(Kind.BEAT, b"")]
        return []

    def next_tick(self) -> float:
        """Return when to call `tick`, or to ask for silence, next."""
        if self.patience is None or not self.is_open:
            return self._next_beat
        return min(self._next_beat, self.heard + self.patience)

    def is_silent(self, now: float) -> bool:
        """Return whether nothing was heard of the peer for too long."""
        return self.patience is not None and self.is_open and now >= self.heard + self.patience

    def patience_left(self, now: float) -> float | None:
        """Return for how many seconds the peer may still say nothing: all before its HELLO; None without limit."""
        if self.patience is None or not self.is_open:
            return self.patience
        return self.heard + self.patience - now

    def receive(self, header: Header, body: bytes, descriptors: int, now: float) -> Any:
        """Accept a message that arrived; return what the end has to do about it, if anything."""
        kind, epoch, number, length, bulk = header
        if number != self._in or epoch != self.epoch or len(body) != length:
            raise self._refusal(header, body)
        self._in = number + 1
        self.heard = now
        try:
            if kind == self._usual and self.is_open and not descriptors:
                return self._accept_usual(body, bulk)
            return self._accept(Kind(kind), body, descriptors, bulk)
        except struct.error:
            raise ProtocolError(f"the body of a {Kind(kind).name} has {len(body)} bytes") from None

    def _refusal(self, header: Header, body: bytes) -> ProtocolError:
        """Return the error for a message that is not the next one."""
        _, epoch, number, length, _ = header
        if epoch != self.epoch:
            return ProtocolError(f"a message is of epoch {epoch}, and this link is of {self.epoch}")
        if number != self._in:
            what = "is missing or out of order" if number > self._in else "came again"
            return ProtocolError(f"a message {what}: number {number} arrived, and {self._in} was expected")
        return ProtocolError(f"a body has {len(body)} bytes, and its header says {length}")

    def _accept(self, kind: Kind, body: bytes, descriptors: int, bulk: int) -> Any:
        """Accept a message that is not of the usual kind."""
        if (kind is Kind.HELLO) is self.is_open:
            raise ProtocolError(f"a {kind.name} came {'again' if self.is_open else 'before HELLO'}")
        if bulk:
            raise ProtocolError(f"a {kind.name} came with bulk bytes")
        if descriptors and kind is not Kind.SEGMENT:
            raise ProtocolError(f"a {kind.name} came with {descriptors} descriptors")
        if kind is Kind.HELLO:
            expected = self.peer.encode() + b"\n" + self._terms
            if body != expected:
                raise ProtocolError(
                    f"the peer's terms are {body!r:.300}, and they should be {expected!r:.300}"
                )
            self.is_open = True
        elif kind is Kind.ABORT:
            self.abort_body = body
            self.peer_ended = True
        elif kind is Kind.BEAT:
            if body:
                raise ProtocolError(f"the body of a BEAT has {len(body)} bytes")
        elif kind is Kind.END:
            (frames,) = _PROGRESS.unpack(body)
            if not self._can_end_at(frames):
                raise ProtocolError(
                    f"the {self.peer} says that it ends at frame {frames}, and this end is at {self.frames}"
                )
            if self.peer_ended:
                raise ProtocolError("an END came again")
            self.peer_ended = True
        else:
            return self._accept_own(kind, body, descriptors)
        return None

    def _can_end_at(self, frames: int) -> bool:
        """Return whether the peer may have so many frames at its end."""
        raise NotImplementedError

    def _accept_usual(self, body: bytes, bulk: int) -> Any:
        """Accept a message of the kind that most messages of the peer are of."""
        raise NotImplementedError

    def _accept_own(self, kind: Kind, body: bytes, descriptors: int) -> Any:
        """Accept a message of a kind that only one of the ends sends."""
        raise ProtocolError(f"a {self.peer} sends no {kind.name}")

    def _message(self, kind: Kind, body: bytes) -> Message:
        return Message(self._header(kind, len(body)), body)

    def _header(self, kind: int, body: int, bulk: int = 0) -> bytes:
        number = self._out
        self._out += 1
        return pack_header(kind, self.epoch, number, body, bulk)


class SendingEnd(LinkEnd):
    """The end that frames leave from.

    Attributes
    ----------
    credits
        The places in the receiver's queue.
    loans
        What keeps the memory of each loan, by its number.
    """

    role, peer = "sender", "receiver"
    _usual = _CREDIT_KIND

    def __init__(self, terms: bytes, epoch: int, silence: float | None, now: float, size: int) -> None:
        super().__init__(terms, epoch, silence, now)
        self.credits = size
        self.loans: dict[int, Any] = {}
        self._size = size
        self._loan = 0
        self._segments = 0
        self.deferred = 0
        """The frames, from the first on, of which the receiver takes no more before others come."""
        self.unanswered: set[int] = set()
        """The segments of devices of which the receiver has not said whether it can map them."""

    def segment(self, size: int, is_reused: bool = False, device: bytes = b"") -> tuple[int, Message]:
        """Return the number of a new segment, and the message that its descriptor goes with.

        A segment `is_reused` if its memory may be written again after this link has ended. `device` describes the
        memory of a device, which no frame may lie in before the receiver has answered.
        """
        number = self._segments
        self._segments += 1
        if device:
            self.unanswered.add(number)
        return number, self._message(Kind.SEGMENT, _SEGMENT.pack(number, size, is_reused) + device)

    def collect(self) -> Message:
        """Return the message that asks the receiver to let go of frames that nobody can reach any more."""
        return self._message(Kind.COLLECT, b"")

    def drop_segment(self, number: int) -> Message:
        """Return the message that says that a segment is not used any more."""
        return self._message(Kind.SEGMENT, _SEGMENT.pack(number, 0, 0))

    def frame_header(self, body: int, bulk: int) -> bytes:
        """Return the header of a frame, whose body was written before; the caller adds its loans with `lend`."""
        assert self.credits
        self.credits -= 1
        self.frames += 1
        return self._header(_FRAME_KIND, body, bulk)

    def small_frame(self, place: Place, description: bytes, extra: bytes, content: bytes = b"") -> bytes:
        """Return the whole message of a frame with one place, in shared memory or, if it has content, in that."""
        assert self.credits
        self.credits -= 1
        self.frames += 1
        number = self._out
        self._out = number + 1
        return pack_frame(self.epoch, number, place, description, extra, content)

    def lend(self, holder: Any) -> None:
        """Note what keeps the memory of the next place in a segment until it comes back."""
        self.loans[self._loan] = holder
        self._loan += 1

    def _accept_usual(self, body: bytes, bulk: int) -> tuple[int, list[Any]]:
        """Return the credits and the holders of the memory that came back."""
        if bulk:
            raise ProtocolError("a CREDIT came with bulk bytes")
        (places,) = _CREDIT.unpack_from(body)
        if self.credits + places > self._size:
            raise ProtocolError(
                f"{places} credits came back, and {self._size - self.credits} of {self._size} were out"
            )
        holders: list[Any] = []
        if len(body) == _CREDIT.size:
            self.credits += places
            return places, holders
        if (len(body) - _CREDIT.size) % _LOAN.size:
            raise ProtocolError(f"the body of a CREDIT has {len(body)} bytes")
        for (loan,) in _LOAN.iter_unpack(memoryview(body)[_CREDIT.size :]):
            if loan not in self.loans:
                state = "came back before" if loan < self._loan else "was never lent"
                raise ProtocolError(f"memory came back that {state}: loan {loan}")
            holders.append(self.loans.pop(loan))
        self.credits += places
        return places, holders

    def _accept_own(self, kind: Kind, body: bytes, descriptors: int) -> Any:
        if kind is Kind.DEFER:
            (frames,) = _PROGRESS.unpack(body)
            if not self.deferred <= frames <= self.frames:
                raise ProtocolError(f"{frames} frames are deferred, of {self.frames}, after {self.deferred}")
            self.deferred = frames
            return kind
        if kind is not Kind.MAPPED:
            return super()._accept_own(kind, body, descriptors)
        (number,) = _MAPPED.unpack_from(body)
        if number not in self.unanswered:
            raise ProtocolError(f"an answer came about segment {number}, which was not asked for")
        self.unanswered.discard(number)
        return Answer(number, body[_MAPPED.size :].decode(errors="replace"))

    def _can_end_at(self, frames: int) -> bool:
        return frames <= self.frames


class ReceivingEnd(LinkEnd):
    """The end that frames arrive at.

    Attributes
    ----------
    segments
        The sizes of the segments that were announced, by their numbers.
    loans
        The segment and the size of each loan that was not returned, by the number of the loan.
    lent
        The bytes of these loans.
    """

    role, peer = "receiver", "sender"
    _usual = _FRAME_KIND

    def __init__(
        self, terms: bytes, epoch: int, silence: float | None, now: float, size: int, max_bytes: int
    ) -> None:
        super().__init__(terms, epoch, silence, now)
        self.segments: dict[int, int] = {}
        self.loans: dict[int, tuple[int, int]] = {}
        self.lent = 0
        self._owners: dict[int, tuple[bool, bool]] = {}  # of segments: an allocator, a device, or the link
        self._size = size
        self._credits = size
        self._max_bytes = max_bytes
        self._loan = 0
        self._next_segment = 0
        # What the last frame with one place, in its bulk bytes, began with: most are the same in this.
        self._known: tuple[bytes, int, int, list[Place]] = (b"", -1, 0, [])

    def give(self, places: int, loans: Sequence[int] = ()) -> list[Message]:
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
        for loan in loans:
            self.lent -= self.loans.pop(loan)[1]
        messages = []
        for first in range(0, max(len(loans), 1), _LOANS_AT_ONCE):
            some = loans[first : first + _LOANS_AT_ONCE]
            body = _CREDIT.pack(0 if first else places) + b"".join(map(_LOAN.pack, some))
            messages.append(self._message(Kind.CREDIT, body))
        return messages

    def defer(self, frames: int) -> Message:
        """Return the message that says that no more of so many frames are taken before others come."""
        return self._message(Kind.DEFER, _PROGRESS.pack(frames))

    def answer(self, segment: int, refusal: str) -> Message:
        """Return the message that says whether the memory of a device could be mapped, or why not."""
        return self._message(Kind.MAPPED, _MAPPED.pack(segment) + refusal.encode()[:_LONGEST_REFUSAL])

    def _accept_usual(self, body: bytes, bulk: int) -> Frame:
        """Return the frame that arrived."""
        if self.peer_ended:
            raise ProtocolError("a frame came after the end")
        if not self._credits:
            raise ProtocolError(f"a frame came without a credit: all {self._size} places are taken")
        head, known_bulk, text, places = self._known
        if bulk == known_bulk and len(body) >= text and body.startswith(head):
            self._credits -= 1
            self.frames = number = self.frames + 1
            start = _FRAME.size + _PLACE.size
            return _new(Frame, (number - 1, places, self._loan, body[start:text], body[text:]))
        flags, count, length = _FRAME.unpack_from(body)
        start = _FRAME.size + count * _PLACE.size
        if count > MOST_PLACES or start + length > len(body) or flags > (count > 0):
            raise ProtocolError(
                f"a frame of {len(body)} bytes has {count} places, {length} bytes of text and flags {flags}"
            )
        if count == 1:
            places = [_PLACE.unpack_from(body, _FRAME.size)]
        else:
            places = [*_PLACE.iter_unpack(memoryview(body)[_FRAME.size : start])]
        loan, reached = self._loan, 0
        for segment, offset, size in places:
            if segment == IN_BULK:
                if not reached <= offset <= offset + size <= bulk:
                    raise ProtocolError(
                        f"a piece of a frame lies at {offset} with {size} bytes, of {bulk} in all, of which "
                        f"{reached} are taken"
                    )
                reached = offset + size
            elif offset + size > self.segments.get(segment, -1):
                raise ProtocolError(
                    f"a piece of a frame reaches to byte {offset + size} of segment {segment}, which "
                    + (f"has {self.segments[segment]}" if segment in self.segments else "does not exist")
                )
        for segment, _, size in places:
            if segment != IN_BULK:
                self.loans[self._loan] = (segment, size)
                self._loan += 1
                self.lent += size
        self._credits -= 1
        self.frames += 1
        text = start + length
        described = None if flags & _DESCRIPTION_IN_PLACE else body[start:text]
        if reached and count == 1 and not flags:
            self._known = body[:start], bulk, text, places
        return _new(Frame, (self.frames - 1, places, loan, described, body[text:]))

    def _accept_own(self, kind: Kind, body: bytes, descriptors: int) -> Any:
        if kind is Kind.SEGMENT:
            number, size, is_reused = _SEGMENT.unpack_from(body)
            return self._accept_segment(number, size, is_reused, body[_SEGMENT.size :], descriptors)
        if kind is Kind.COLLECT and not body:
            return kind
        return super()._accept_own(kind, body, descriptors)

    def _accept_segment(
        self, number: int, size: int, is_reused: int, device: bytes, descriptors: int
    ) -> OfferedSegment:
        """Return a segment that is new, or that is dropped."""
        if descriptors != bool(size):
            raise ProtocolError(f"a SEGMENT of {size} bytes came with {descriptors} descriptors")
        if len(device) > _LONGEST_DEVICE or (device and not size):
            raise ProtocolError(f"the body of a SEGMENT has {len(device)} bytes too many")
        if not size:
            if number not in self.segments or any(number == lent for lent, _ in self.loans.values()):
                state = "is in use" if number in self.segments else "does not exist"
                raise ProtocolError(f"segment {number} is dropped, which {state}")
            del self.segments[number]
            del self._owners[number]
        else:
            if number != self._next_segment or len(self.segments) >= MOST_SEGMENTS:
                raise ProtocolError(f"segment {number} came, and {self._next_segment} was expected")
            # The bound holds for the link's own memory, for that of allocators, and for that of devices.
            owner = (bool(is_reused), bool(device))
            others = sum(self.segments[other] for other, its in self._owners.items() if its == owner)
            if others + size > self._max_bytes:
                raise ProtocolError(
                    f"a segment of {size} bytes came; with the others that is more than {self._max_bytes}"
                )
            self._next_segment += 1
            self.segments[number] = size
            self._owners[number] = owner
        return OfferedSegment(number, size, bool(is_reused), device)

    def _can_end_at(self, frames: int) -> bool:
        return frames == self.frames


assert _CREDIT.size + _LOANS_AT_ONCE * _LOAN.size <= MAX_BODY
