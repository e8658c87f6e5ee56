"""Sender and Receiver: the two ends of a link, as the rest of headrace uses them.

The thread of the operator encodes, copies into shared memory and sends; the thread of the loop reads and tells by
`on_event` that something came. The lock of an end guards its state machine and its carrier, and is never held while
a frame is copied, an object is unpickled or `on_event` is called.

On one host a large frame is announced before its last bytes are copied, because a process takes as long to wake up
as it takes to copy a megabyte or two. The receiver hands it out when it is complete, which the board says
(`board.py`).

A received frame belongs to its receiver, who may write to it and keep it. Its memory goes back to the sender with
the last reference to any array on it, on whatever thread that happens, also in the garbage collector, which may run
while this thread holds the lock. So a finalizer only notes what came back and sends it if the lock is free. Whoever
holds the lock sends it afterwards.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, finalize

import numpy as np

from headrace.core.byte_sizes import size_text
from headrace.core.errors import CrossingError, LinkError, PeerLost, ProtocolError
from headrace.core.ports import IOSpec
from headrace.gpu.backend import active
from headrace.link.board import Board
from headrace.link.carrier import Buffer, Carrier, CarrierClosed
from headrace.link.codec import (
    Encoded,
    array_at,
    as_data,
    decode,
    decode_array,
    encode,
    encode_array,
    memory_of,
)
from headrace.link.device import (
    DeviceBytes,
    DeviceCopies,
    DevicePiece,
    DeviceSegment,
    ReceivedFrames,
    Uploads,
)
from headrace.link.failures import decode_failure, encode_failure
from headrace.link.loop import LinkLoop, default_loop
from headrace.link.protocol import (
    IN_BULK,
    MOST_PLACES,
    Answer,
    Frame,
    LinkEnd,
    Message,
    ReceivingEnd,
    SendingEnd,
    frame_body,
)
from headrace.link.ring import ALIGNMENT, SHARED, Bytes, Lease, Ring, Segment, Slot, find_shared
from headrace.link.wire import MAX_BODY, MAX_INLINE, Kind
from headrace.tensor import Tensor
from headrace.tensor.copies import HostMemory

_log = logging.getLogger("headrace.link")
_LENGTH = struct.Struct("<I")
_PLACE_SIZE = 20
_NEVER = 3600.0
_SAY_AGAIN = (
    60.0  # seconds after which a stall is said again: with little memory, each frame may have to wait
)
# Bytes of a frame that are copied after it was announced: at first, at most, and how many more with each frame.
# Fewer are not worth it: a receiver wakes up no sooner for them. Where a receiver always had to wait, as on one
# core, some frames are announced when they are complete before it is tried again.
_FRAMES_WITHOUT = 64
_TAIL, _LONGEST_TAIL, _MORE, _SHORTEST_TAIL = 3 << 19, 4 << 20, 4 << 10, 1 << 17
_new = tuple.__new__  # makes a named tuple without a call of Python
# Seconds between two frames after which the receiver may be asleep; at most, to copy a byte.
_PAUSE, _COPY_TIME = 5e-4, 1.5e-10
_BOARD = Kind.BOARD  # members of an enumeration are slow to find
_EMPTY: Bytes = np.empty(0, np.uint8)


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
        The seconds within which a peer that is frozen or cut off is known to be lost.
    epoch
        Which life of the parts the link belongs to.
    allow_pickle
        Whether objects that are not tensors or plain data are pickled. The peer must be known: reading a pickle
        runs what its sender chose.
    """

    name: str
    size: int
    policy: IOSpec.QueuePolicy = IOSpec.QueuePolicy.FAULT
    max_bytes: int = 1 << 30
    silence: float = 3.0
    epoch: int = 0
    allow_pickle: bool = True

    def __post_init__(self) -> None:
        if self.size < 1 or self.max_bytes < 1 or self.silence <= 0 or not 0 <= self.epoch < 1 << 32:
            raise ValueError(f"such a link cannot be: {self}")

    def text(self) -> bytes:
        """Return what the ends compare in their first messages."""
        return f"{self.name}|{self.size}|{self.policy.name}|{self.max_bytes}|{self.silence}".encode()[:4096]


class Parcel(NamedTuple):
    """A message on its way: its data, its acquisition time and its metadata.

    `number` is the number of messages before it on the link, where it was received.
    """

    data: Any
    acq_timestamp: int | None = None
    metadata: dict[str, Any] | None = None
    number: int = -1


class _Outgoing:
    """A frame that is ready to be sent, or will be when the device has copied it.

    `rest` is what is left to be copied after it was sent.
    """

    __slots__ = ("body", "bulk", "holders", "inline", "is_ready", "rest")

    def __init__(
        self, body: bytes, bulk: list[Any], inline: int, holders: list[Any], rest: _Rest | None = None
    ) -> None:
        self.body = body
        self.bulk = bulk
        self.inline = inline
        self.holders = holders
        self.rest = rest
        self.is_ready = True


class _End:
    """What both ends have in common."""

    def __init__(
        self,
        carrier: Carrier,
        terms: Terms,
        on_event: Callable[[], object],
        machine: LinkEnd,
        loop: LinkLoop | None,
    ) -> None:
        self.terms = terms
        self._carrier = carrier
        self._on_event = on_event
        self._loop = default_loop() if loop is None else loop
        self._lock = threading.Lock()
        self.failure: BaseException | None = None
        """Why the link failed: a PeerLost, a PeerAborted or a ProtocolError; None if it has not."""
        self._is_closing = False
        self._is_peer_gone = False
        self._is_released = False
        self._is_writing = False
        self._machine = machine
        self._is_local = carrier.is_local
        carrier.max_bulk = MAX_INLINE if carrier.is_local else terms.max_bytes
        with self._lock:
            self._post(machine.hello())
        self._loop.add(self)

    @property
    def peer_frames(self) -> int:
        """The frames that the peer has sent or received, as far as its beats have told."""
        return self._machine.peer_frames

    def abort(self, error: BaseException, part: str) -> None:
        """Tell the peer that this part has failed; `close` afterwards."""
        body = encode_failure(error, part)
        with self._lock:
            if self._can_say():
                self._post(self._machine.abort(body))
        self._after_lock()

    def close(self) -> None:
        """Close the link; what was sent still arrives. A second call does nothing.

        Descriptors and memory go at once, except for what is still to be sent, and for frames made in an
        allocator's memory that the receiver still has: these go when it has let go of them or has ended.
        """
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._prepare_close()
                self._release_if_done()
        self._after_lock()

    # What the loop calls.

    def fileno(self) -> int:
        """Return the descriptor of the carrier."""
        return self._carrier.fileno()

    def serve(self, readable: bool, writable: bool) -> None:
        """Read what arrived and send what is left; for the loop."""
        tell = False
        with self._lock:
            if self._is_released or self._is_peer_gone:
                return
            if writable:
                self._carrier.flush()
            if readable:
                tell = self._read(monotonic())
            if self._is_writing:
                self._watch()
            if self._is_closing:
                self._release_if_done()
                tell = False
        try:
            if tell:  # at once: it takes the thread that is told a while to wake up
                self._on_event()
        finally:
            self._after_lock()

    def tick(self, now: float, was_stopped: bool = False) -> float:
        """Send a beat if it is due, and notice silence; for the loop."""
        tell = False
        with self._lock:
            if self._is_released:
                return now + _NEVER
            if was_stopped:  # Ctrl-Z stops all processes of a terminal: the peer has its time once more
                self._machine.heard = now
            if self._machine.is_silent(now):
                # This process itself may have been stopped, and the beats of the peer wait to be read.
                tell = self._read(now)
            if self._machine.is_silent(now) and self.failure is None:
                # Told to the peer too: it may go on some time, and should know why it is alone.
                seconds = f"{self._machine.patience:.3g} s"
                self._fail_and_tell(
                    PeerLost(
                        f"link {self.terms.name!r}: nothing was heard of the peer for {seconds}: it is frozen, or "
                        "cut off"
                    )
                )
                self._reset()
                tell = True
            if self.failure is None:
                for message in self._machine.tick(now):
                    self._post(message)
            self._release_if_done(is_late=self.failure is not None)
            following = now + _NEVER if self.failure is not None else self._machine.next_tick()
            tell = tell and not self._is_closing
        self._after_tick()
        if tell:
            self._on_event()
        return following

    # With the lock held.

    def _read(self, now: float) -> bool:
        """Accept what arrived; return whether the program has to be told."""
        tell = False
        try:
            while received := self._carrier.receive():
                for header, body, bulk, descriptors in received:
                    try:
                        asked = self._machine.receive(header, body, len(descriptors), now)
                        if asked is not None:
                            self._do(asked, bulk, descriptors)
                            tell = tell or asked is not _BOARD
                        elif self._note(header.kind):
                            tell = True
                        asked = None  # a failure of the next message must not keep memory that came back
                    finally:
                        for descriptor in descriptors:
                            os.close(descriptor)
                if not self._reads_on():
                    break
        except CarrierClosed as error:
            self._is_peer_gone = True
            if not self._machine.peer_ended:
                self._fail(
                    PeerLost(f"link {self.terms.name!r}: the peer is gone, and did not say why: {error}")
                )
                tell = True
            self._loop.remove(self)
        except LinkError as error:
            self._break(error)
            tell = True
        except (
            Exception
        ) as error:  # of a carrier, or of a system without memory; the loop has others to serve
            self._break(LinkError(f"link {self.terms.name!r}: {type(error).__name__}: {error}"))
            tell = True
        return tell

    def _reads_on(self) -> bool:
        """Return whether to look for more messages before the program is told of these."""
        return False

    def _note(self, kind: int) -> bool:
        """Note a message that only the state machine had to know of; return whether the program has to be told."""
        if kind == Kind.ABORT:
            assert self._machine.abort_body is not None
            self._fail(decode_failure(self._machine.abort_body, self.terms.name, self.terms.allow_pickle))
        return kind in (Kind.ABORT, Kind.END)

    def _do(self, asked: Any, bulk: Buffer | None, descriptors: tuple[int, ...]) -> None:
        """Do what a message asks for, with the descriptors that it came with."""
        raise NotImplementedError

    def _prepare_close(self) -> None:
        """Send what has to be said before the end."""

    def _is_needed(self) -> bool:
        """Return whether the peer still uses memory that may be written again."""
        return False

    def _can_say(self) -> bool:
        return not (self._is_released or self._is_closing or self._is_peer_gone or self._machine.has_ended)

    def _post(self, message: Message, bulk: Sequence[Buffer] = (), descriptors: Sequence[int] = ()) -> None:
        self._carrier.send(message.header, message.body, bulk, descriptors)
        if self._carrier.wants_write is not self._is_writing:
            self._watch()

    def _watch(self) -> None:
        """Tell the loop whether there is something left to send."""
        wants = self._carrier.wants_write
        if wants is not self._is_writing:
            self._is_writing = wants
            self._loop.watch(self, wants)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    def _fail_and_tell(self, error: BaseException) -> None:
        self._fail(error)
        if not self._machine.has_ended:
            self._post(self._machine.abort(encode_failure(error, self.terms.name)))

    def _break(self, error: BaseException) -> None:
        """Fail because of what the peer said, and hear it no more."""
        self._fail_and_tell(error)
        self._is_peer_gone = True
        self._loop.remove(self)

    def _reset(self) -> None:
        """Break the connection to a peer on another host, so that one that still hears this end knows it now.

        A connection whose packets are lost in one direction sends nothing new in the other, either: its
        acknowledgements are missing. Only a reset passes.
        """
        if not self._is_local:
            self._is_peer_gone = True
            self._loop.remove(self)
            self._carrier.reset()

    def _release_if_done(self, is_late: bool = False) -> None:
        """Let go of everything, if this end is closed and nobody needs it any more."""
        if not self._is_closing or self._is_released:
            return
        if self._is_peer_gone or not (self._is_needed() or (self._carrier.wants_write and not is_late)):
            self._is_released = True
            self._loop.remove(self)
            self._carrier.close()
            self._machine.board = None
            self._release()

    def _release(self) -> None:
        """Let go of memory."""

    # Without the lock.

    def _after_lock(self) -> None:
        """Do what must not be done, or could not be done, with the lock held."""

    def _after_tick(self) -> None:
        """Do now and then what could wait."""


class Sender(_End):
    """The end that a flow's messages leave from.

    One thread at a time sends.

    Parameters
    ----------
    carrier
        The connection, which belongs to this end from now on. Its peer is authenticated.
    terms
        What both ends were given.
    on_event
        Called by the thread of the loop, without arguments, when credits or memory came back, the receiver takes no
        more, or the link failed. It must not block, and may call every method of this object.
    loop
        The loop that serves the link; by default that of the process.
    sends_in_place
        Whether what lies in the memory of a `RingAllocator` is sent as it is; otherwise it is copied, as all else.
    """

    def __init__(
        self,
        carrier: Carrier,
        terms: Terms,
        on_event: Callable[[], object],
        *,
        loop: LinkLoop | None = None,
        sends_in_place: bool = True,
    ) -> None:
        self._sends_in_place = sends_in_place
        self.credited = 0
        """The credits that came back."""
        self._taken_credits = 0
        self._ring = Ring(terms.max_bytes)
        self._allocated = 0  # bytes of allocators that the receiver has mapped
        self._numbers: WeakKeyDictionary[Segment | DeviceSegment, int] = WeakKeyDictionary()
        self._dropped: deque[tuple[int, int]] = deque()
        self._let_go: deque[Any] = deque()
        self._is_stalled = False
        self._stall_said = -_SAY_AGAIN
        # Frames that wait for a device to copy them, and those behind them; and whether the end is behind them.
        self._outbox: deque[_Outgoing] = deque()
        self._is_ending = False
        self._copies: DeviceCopies | None = None
        # The slots on each device, or None if frames of that device go through the host.
        self._device_rings: dict[int, Ring | None] = {}
        self._host_memory: HostMemory | None = None
        self._machine: SendingEnd
        self._tail = _TAIL
        self._split_at = 0.0  # when a large array was last looked at
        machine = SendingEnd(terms.text(), terms.epoch, terms.silence, monotonic(), terms.size)
        super().__init__(carrier, terms, on_event, machine, loop)
        if carrier.is_local:
            board, descriptors = Board.create()
            with self._lock:
                self._post(machine.offer_board(board), descriptors=descriptors)
            os.close(descriptors[0])

    @property
    def sent(self) -> int:
        """The messages that were sent, or that are sent as soon as a device has copied them."""
        return self._machine.frames + len(self._outbox)

    @property
    def credits(self) -> int:
        """The messages that may be sent now."""
        return self._machine.credits - len(self._outbox)

    @property
    def has_ended(self) -> bool:
        """Whether the receiver has said that it takes no more."""
        return self._machine.peer_ended and self.failure is None

    @property
    def held(self) -> dict[int, int]:
        """The bytes of shared memory that the receiver has, by the number of the message."""
        found: dict[int, int] = {}
        with self._lock:
            for number, holder in self._machine.loans.values():
                found[number] = found.get(number, 0) + _memory_of(holder).nbytes
        return found

    def take_credits(self) -> int:
        """Return the credits that came back since the last call."""
        if self.credited == self._taken_credits:
            return 0
        with self._lock:
            new = self.credited - self._taken_credits
            self._taken_credits = self.credited
        return new

    def send(self, parcel: Parcel, after: Any = None) -> bool:
        """Send a message if there is a credit, and memory for it; return whether it was sent.

        Tensors on a device are copied in the order of the work behind them, and of `after`, a stream of this
        process, if one is given. The message leaves when the copies are complete, and later messages after it. If
        this returns False because the receiver has not answered yet whether it can use the memory of the device,
        `on_event` tells when it has.

        What the message holds may be changed or let go when this returns True, on one host. Only what lies in the
        memory of a `RingAllocator` is sent as it is and belongs to the receiver from then on. Between hosts, arrays
        are kept until the network has taken them, and must not be changed.

        Raises
        ------
        CrossingError
            If the message cannot be sent to another process.
        LinkError
            If the link has failed (`failure`).
        """
        if self.failure is not None:
            raise self.failure
        machine = self._machine
        if machine.has_ended or self._is_ending or self._is_closing:
            raise LinkError(f"link {self.terms.name!r}: a message is sent after the end")
        if machine.peer_ended or machine.credits <= len(self._outbox):
            return False
        data, acq_timestamp, metadata, _ = parcel
        if not metadata:
            usual = encode_array(data, acq_timestamp)
            if usual is not None and (self._is_local or usual[3] <= MAX_INLINE):
                return self._send_array(*usual)
        encoded = encode(data, acq_timestamp, metadata, allow_pickle=self.terms.allow_pickle)
        description, pieces = _fit(encoded)
        try:
            if not self._carrier.is_local:
                outgoing = self._as_bulk(description, encoded.extra, pieces)
            else:
                made = self._in_memory(description, encoded.extra, pieces, not encoded.is_on_device)
                if made is None:
                    return False
                outgoing = made
            if encoded.is_on_device and self._start_copies(outgoing, after):
                return True
            with self._lock:
                if self._outbox:
                    self._keep(outgoing)
                else:
                    self._post_frame(outgoing.body, outgoing.bulk, outgoing.inline, outgoing.holders)
            if outgoing.rest is not None:
                self._complete(outgoing.rest)
        finally:
            self._after_lock()
        return True

    def send_at_once(self, data: Any, acq_timestamp: int | None, metadata: dict[str, Any] | None) -> bool:
        """Send a message if that takes a moment: an array of the host that is small, or lies in shared memory.

        Return whether it was sent. If not, `send` may still send it.
        """
        machine = self._machine
        if metadata or self.failure is not None or machine.has_ended or machine.peer_ended:
            return False
        if self._is_ending or self._is_closing or machine.credits <= len(self._outbox):
            return False
        usual = encode_array(data, acq_timestamp)
        if usual is None or not (self._is_local or usual[3] <= MAX_INLINE):
            return False
        return self._send_array(*usual, may_copy=False)

    def _send_array(
        self, description: bytes, extra: bytes, piece: Any, length: int, may_copy: bool = True
    ) -> bool:
        """Send a message that is one array, as `send` does every other, in one pass.

        If it may not copy a large one, it returns False for that.
        """
        machine = self._machine
        rest: _Rest | None = None
        if length <= MAX_INLINE:
            place = (IN_BULK, 0, length)
            content = (memory_of(piece) if type(piece) is Tensor else piece).tobytes()
            holder = None
            holders: list[Any] = []
        else:
            content = b""
            holders = []
            with self._lock:
                found = self._find_in_place(piece, length, holders)
                if found is None and may_copy:
                    piece = memory_of(piece) if type(piece) is Tensor else piece
                    found = self._take_slot(piece, holders)
            if found is None:
                if may_copy:
                    self._stall(length, holders)
                    self._after_lock()
                return False
            place, holder = found, holders[0][0]
            if type(holder) is Slot:
                if length >= _SHORTEST_TAIL:
                    rest = self._split(holder, piece, length)
                try:
                    _copy(holder.memory, piece, length if rest is None else length - len(rest[0]))
                except BaseException:  # as Ctrl-C in the middle of a long copy
                    self._give_back_slots(holders)
                    raise
            self._is_stalled = False
        with self._lock:
            if self._outbox:
                body = frame_body((place,), description, extra)
                self._keep(_Outgoing(body, [content], len(content), holders))
            elif self.failure is None and not machine.has_ended:
                carrier = self._carrier
                if holders:
                    machine.lend((machine.frames, holder if type(holder) is Slot else piece))
                carrier.send(machine.small_frame(place, description, extra, content, rest is not None))
                if carrier.wants_write is not self._is_writing:
                    self._watch()
        if rest is not None:
            self._complete(rest)
        if self._let_go:
            self._after_lock()
        return True

    def end(self) -> None:
        """Tell the receiver that everything was sent."""
        with self._lock:
            if self._can_say():
                self._is_ending = True
                self._send_ready()

    # Sending.

    def _as_bulk(self, description: bytes | None, extra: bytes, pieces: list[Any]) -> _Outgoing:
        """Return a message whose memory travels with it."""
        places, bulk, holders, at = [], [], [], 0
        length = sum(piece.nbytes for piece in pieces)
        if length > self.terms.max_bytes:  # before an array with gaps is copied
            raise self._too_large(length)
        for piece in pieces:
            padding = -at % ALIGNMENT
            if padding:
                bulk.append(bytes(padding))
            if type(piece) is DevicePiece:
                content = self._pinned(piece.nbytes)
                holders.append((content, piece))
            else:
                content = _as_bytes(piece)
            places.append((IN_BULK, at + padding, piece.nbytes))
            bulk.append(content)
            at += padding + piece.nbytes
        if at > self.terms.max_bytes:
            raise self._too_large(at)
        return _Outgoing(frame_body(places, description, extra), bulk, at, holders)

    def _in_memory(
        self, description: bytes | None, extra: bytes, pieces: list[Any], is_early: bool
    ) -> _Outgoing | None:
        """Return a message whose larger arrays lie in shared memory; None if it has to wait.

        If it may be sent early, the end of the last array may be left to be copied.
        """
        places: list[tuple[int, int, int]] = []
        bulk: list[Any] = []
        holders: list[Any] = []
        inline = 0
        for piece in pieces:
            length = piece.nbytes
            padding = -inline % ALIGNMENT
            if type(piece) is DevicePiece and length:
                with self._lock:
                    place = self._take_device_slot(piece, holders)
                if place is None:
                    if not self._machine.unanswered:
                        self._stall(length, holders)
                    else:
                        self._give_back_slots(holders)
                    return None
                places.append(place)
                continue
            if inline + padding + length <= MAX_INLINE:
                if padding:
                    bulk.append(bytes(padding))
                bulk.append(_as_bytes(piece) if length else _EMPTY)
                places.append((IN_BULK, inline + padding, length))
                inline += padding + length
                continue
            with self._lock:
                place = self._find_in_place(piece, length, holders) or self._take_slot(piece, holders)
            if place is None:
                self._stall(length, holders)
                return None
            places.append(place)
        # All is made before the copy, which evicts this code and its data from the caches of the processor.
        rest: _Rest | None = None
        if is_early and holders and type(holders[-1][0]) is Slot:
            slot, piece = holders[-1]
            rest = self._split(slot, piece, piece.nbytes)
        body = frame_body(places, description, extra, rest is not None)
        outgoing = _Outgoing(body, bulk, inline, holders, rest)
        try:
            for slot, piece in holders:
                if type(slot) is Slot and type(piece) is not DevicePiece:
                    left = 0 if rest is None or slot is not holders[-1][0] else len(rest[0])
                    _copy(slot.memory, piece, piece.nbytes - left)
        except BaseException:  # as Ctrl-C in the middle of a long copy
            self._give_back_slots(holders)
            raise
        self._is_stalled = False
        return outgoing

    def _split(self, slot: Slot, piece: Any, length: int) -> _Rest | None:
        """Return the end of the last array of a frame, if it is to be copied after the frame was sent.

        The receiver then wakes up, which takes as long as to copy a megabyte or two, while the rest is copied. The
        length of the rest follows the receiver: it is shorter after a frame that the receiver had to wait for.
        """
        now = monotonic()
        since, self._split_at = now - self._split_at, now
        # A receiver that frames come to one after the other is awake.
        if since < _PAUSE + length * _COPY_TIME or length < _SHORTEST_TAIL or not piece.flags.c_contiguous:
            return None
        if self._machine.board is None or self._outbox:
            return None
        if self._tail < _SHORTEST_TAIL:  # the processes share a core, perhaps; it is tried again
            self._tail += _MORE
            return None
        begin = max(length - self._tail, 0)
        return slot.memory[begin:length], piece.reshape(-1).view(np.uint8)[begin:]

    def _complete(self, rest: _Rest) -> None:
        """Copy the rest of the last frame that was sent."""
        memory, content = rest
        is_whole = False
        try:
            memory[:] = content
            is_whole = True
        finally:
            if not is_whole:  # as after Ctrl-C: the frame is on its way, and `content` may change from now on
                memory[:] = content
            self._note_written()

    def _note_written(self) -> None:
        machine = self._machine
        board = machine.board
        if board is None:  # the link was closed meanwhile
            return
        with self._lock:
            if not board.note_written(machine.frames):
                self._tail = min(self._tail + _MORE, _LONGEST_TAIL)
                return
            self._tail -= self._tail >> 2
            if self._tail < _SHORTEST_TAIL:
                self._tail -= _FRAMES_WITHOUT * _MORE
            if not (self._is_released or self._is_peer_gone or machine.has_ended):
                self._post(machine.beat())

    def _post_frame(self, body: bytes, bulk: Sequence[Any], inline: int, holders: list[Any]) -> None:
        """Send a frame; with the lock held."""
        machine = self._machine
        if self.failure is not None or machine.has_ended:
            return
        number = machine.frames
        carrier = self._carrier
        carrier.send(machine.frame_header(len(body), inline), body, bulk)
        if carrier.wants_write is not self._is_writing:
            self._watch()
        if self._is_local:
            for holder in holders:
                machine.lend((number, holder[0] if type(holder[0]) is Slot else holder[1]))

    # Frames on devices.

    def _keep(self, outgoing: _Outgoing) -> None:
        """Keep a frame until those before it, and its copies, are done; with the lock held."""
        if self._carrier.is_local:  # what `send` was given may change when it returns
            outgoing.bulk = [bytes(part) for part in outgoing.bulk]
        self._outbox.append(outgoing)

    def _start_copies(self, outgoing: _Outgoing, after: Any) -> bool:
        """Copy a frame's memory on its devices, and send the frame when that is done; False if it has none."""
        if self._copies is None:
            self._copies = DeviceCopies()
        copies = [
            (
                piece,
                place.memory if type(place) is Slot else DeviceBytes(int(place.ctypes.data), place.nbytes),
            )
            for place, piece in outgoing.holders
            if type(piece) is DevicePiece and piece.nbytes
        ]
        if not copies:
            return False
        outgoing.is_ready = False
        with self._lock:
            self._keep(outgoing)

        def is_copied(error: Exception | None) -> None:
            with self._lock:
                outgoing.is_ready = True
                if error is not None:
                    self._fail(error)
                self._send_ready()
                self._release_if_done()
            self._after_lock()
            if error is not None:
                self._on_event()

        try:
            self._copies.start(copies, after, is_copied)
        except BaseException:
            with self._lock:
                self._outbox.remove(outgoing)
            self._give_back_slots(outgoing.holders)
            raise
        return True

    def _send_ready(self) -> None:
        """Send what no longer waits for a device, in order; with the lock held."""
        while self._outbox and self._outbox[0].is_ready:
            ready = self._outbox.popleft()
            self._post_frame(ready.body, ready.bulk, ready.inline, ready.holders)
        if self._is_ending and not self._outbox and not self._machine.has_ended and not self._is_peer_gone:
            self._post(self._machine.end())

    def _take_device_slot(self, piece: DevicePiece, holders: list[Any]) -> tuple[int, int, int] | None:
        """Return a place to copy memory of a device to; None if it has to wait. With the lock held."""
        device_id = piece.device_id
        if device_id not in self._device_rings:
            make = partial(DeviceSegment.create, device_id=device_id)
            self._device_rings[device_id] = Ring(self.terms.max_bytes, make)
        ring = self._device_rings[device_id]
        if ring is not None:
            try:
                slot = ring.take(piece.nbytes)
            except Exception as error:  # whatever a driver without IPC, or without memory, raises
                self._refuse(device_id, str(error))
                return self._take_pinned_slot(piece, holders)
            if slot is None:
                return None
            number = self._numbers.get(slot.segment)
            if number is None:
                self._drop_segments()
                number = self._announce(slot.segment)
            if number not in self._machine.unanswered:
                holders.append((slot, piece))
                return number, slot.offset, piece.nbytes
            ring.give_back(slot)
            return None
        return self._take_pinned_slot(piece, holders)

    def _take_pinned_slot(self, piece: DevicePiece, holders: list[Any]) -> tuple[int, int, int] | None:
        """Return a place in memory of the host that the device can copy to without a wait."""
        place = self._take_slot(piece, holders)
        if place is not None:
            holders[-1][0].segment.pin()
        return place

    def _pinned(self, length: int) -> Any:
        """Return pinned memory of the host for a frame that leaves this host."""
        if self._host_memory is None:
            self._host_memory = HostMemory()
            _log.info(
                "link %r: frames on devices are copied through the host to another host", self.terms.name
            )
        return self._host_memory.array((length,), np.dtype(np.uint8))

    def _refuse(self, device_id: int, reason: str) -> None:
        """Send the frames of a device through the host from now on, and say so."""
        self._device_rings[device_id] = None
        _log.warning(
            "link %r: frames on device %d are copied through the host, since their memory cannot be shared: %s",
            self.terms.name,
            device_id,
            reason,
        )

    def _ring_of(self, slot: Slot) -> Ring | None:
        """Return the ring that a slot belongs to; None if its device was refused meanwhile."""
        segment: Any = slot.segment
        return self._ring if type(segment) is Segment else self._device_rings.get(segment.device_id)

    def _give_back_slots(self, holders: list[Any]) -> None:
        """Return the slots that a message took that cannot be sent now."""
        with self._lock:
            for holder, _ in holders:
                ring = self._ring_of(holder) if type(holder) is Slot else None
                if ring is not None:
                    ring.give_back(holder)

    def _find_in_place(self, piece: Any, length: int, holders: list[Any]) -> tuple[int, int, int] | None:
        """Return the place of an array or a tensor that an allocator made in shared memory; with the lock held."""
        if not (SHARED and self._sends_in_place):
            return None
        if type(piece) is Tensor:
            address = piece.data
        elif piece.flags.c_contiguous:
            address = piece.__array_interface__["data"][0]
        else:
            return None
        segment = find_shared(address, length)
        if segment is None:
            return None
        number = self._numbers.get(segment)
        if number is None:
            self._drop_segments()
            if self._allocated + segment.size > self.terms.max_bytes:
                return None  # it is copied
            self._allocated += segment.size
            number = self._announce(segment)
        holders.append((segment, piece))
        return number, address - segment.address, length

    def _take_slot(self, piece: Any, holders: list[Any]) -> tuple[int, int, int] | None:
        """Return a place to copy an array to, or None if there is no memory; with the lock held."""
        slot = self._ring.take(piece.nbytes)
        if slot is None:
            return None
        number = self._numbers.get(slot.segment)
        if number is None:
            self._drop_segments()
            number = self._announce(slot.segment)
        holders.append((slot, piece))
        return number, slot.offset, piece.nbytes

    def _announce(self, segment: Segment | DeviceSegment) -> int:
        is_on_device = type(segment) is DeviceSegment
        described = segment.description if type(segment) is DeviceSegment else b""
        number, message = self._machine.segment(segment.size, segment.is_reused, described)
        self._post(message, descriptors=(segment.fileno(),))
        self._numbers[segment] = number
        shared = 0 if is_on_device else segment.size * segment.is_reused
        finalize(segment, self._dropped.append, (number, shared)).atexit = False
        return number

    def _drop_segments(self) -> None:
        """Tell the receiver of segments that are gone."""
        while self._dropped:
            number, shared = self._dropped.popleft()
            self._allocated -= shared
            self._post(self._machine.drop_segment(number))

    def _stall(self, length: int, holders: list[Any]) -> None:
        """Return the slots of a message that cannot be sent now, and log who has the memory."""
        self._give_back_slots(holders)
        with self._lock:
            bound = self._ring.max_bytes
            can_hold = self._ring.can_hold(length)
        if not can_hold:
            raise self._too_large(length)
        now = monotonic()
        if not self._is_stalled and now - self._stall_said > _SAY_AGAIN:
            self._is_stalled, self._stall_said = True, now
            held = self.held
            numbers = ", ".join(map(str, sorted(held)[:8])) + (", ..." if len(held) > 8 else "")
            _log.warning(
                "link %r waits for memory: %s of at most %s are in use, by %d frames that %s keeps (%s). Release "
                "frames there, or raise the bound of the link's memory (HEADRACE_LINK_MEMORY between fragments)",
                self.terms.name,
                size_text(sum(held.values())),
                size_text(bound),
                len(held),
                self.terms.name.rpartition("-> ")[2],
                numbers,
            )

    def _too_large(self, length: int) -> CrossingError:
        return CrossingError(
            f"link {self.terms.name!r}: a frame has {size_text(length)}, and the bound of the link's memory is "
            f"{size_text(self.terms.max_bytes)}; raise it (HEADRACE_LINK_MEMORY between fragments)"
        )

    # What arrives.

    def _do(self, asked: Any, bulk: Buffer | None, descriptors: tuple[int, ...]) -> None:
        if type(asked) is Answer:
            self._note_answer(asked)
            return
        places, holders = asked
        self.credited += places
        for _, holder in holders:
            if type(holder) is not Slot:
                self._let_go.append(holder)
            elif (ring := self._ring_of(holder)) is not None:
                ring.give_back(holder)

    def _reads_on(self) -> bool:
        # A worker that waits for a credit, gets one and uses it would leave the others unread for ever, and wait
        # for each of them: frames would go one by one, with however many places.
        return self._machine.credits < 2 <= self.terms.size

    def _note_answer(self, answer: Answer) -> None:
        segment = next((known for known, number in self._numbers.items() if number == answer.segment), None)
        if answer.refusal and type(segment) is DeviceSegment and self._device_rings.get(segment.device_id):
            self._refuse(segment.device_id, answer.refusal)

    def _is_needed(self) -> bool:
        if self._outbox:
            return True
        return any(
            type(holder) is not Slot or type(holder.segment) is DeviceSegment
            for _, holder in self._machine.loans.values()
        )

    def _release(self) -> None:
        self._let_go.extend(self._machine.loans.values())
        self._machine.loans.clear()
        self._ring = Ring(self.terms.max_bytes)
        self._device_rings.clear()
        self._outbox.clear()

    def _after_lock(self) -> None:
        # Letting go of an allocator's memory tells whoever waits for it, who must not wait for this lock.
        while self._let_go:
            with suppress(IndexError):  # another thread was faster
                self._let_go.popleft()

    _after_tick = _after_lock


class Receiver(_End):
    """The end that a flow's messages arrive at.

    One thread at a time takes messages.

    Parameters
    ----------
    carrier, terms, loop
        As for the sender.
    on_event
        Called by the thread of the loop, without arguments, when a message arrived, the sender has sent everything,
        or the link failed. It must not block, and may call every method of this object.
    device_id
        The device that frames of devices are copied to that come through the host.
    """

    def __init__(
        self,
        carrier: Carrier,
        terms: Terms,
        on_event: Callable[[], object],
        *,
        loop: LinkLoop | None = None,
        device_id: int = 0,
    ) -> None:
        self._device_id = device_id
        self._arrived: deque[tuple[Frame, Buffer | None]] = deque()
        self._returned: deque[int] = deque()
        self._segments: dict[int, Segment | DeviceSegment] = {}
        self._leases: dict[int, Lease] = {}
        # Frames that are decoded and wait for a device to copy them; the oldest first.
        self._uploading: deque[tuple[Parcel, list[bool]]] = deque()
        self._uploads: Uploads | None = None
        self._has_no_device = False
        self._received_frames = ReceivedFrames(
            self._give_back, (default_loop() if loop is None else loop).call_soon
        )
        self._machine: ReceivingEnd
        machine = ReceivingEnd(
            terms.text(), terms.epoch, terms.silence, monotonic(), terms.size, terms.max_bytes
        )
        super().__init__(carrier, terms, on_event, machine, loop)

    @property
    def received(self) -> int:
        """The messages that arrived."""
        return self._machine.frames

    @property
    def arrived(self) -> int:
        """How many messages arrived, taken or not, and the end of the stream."""
        return self._machine.frames + self._machine.peer_ended

    @property
    def has_ended(self) -> bool:
        """Whether the sender has sent everything, and all of it was taken."""
        is_over = self._machine.peer_ended and self.failure is None
        return is_over and not self._arrived and not self._uploading

    def take(self) -> Parcel | None:
        """Return the next message that arrived, or None.

        Raises
        ------
        CrossingError
            If an object of the message cannot be unpickled here. The message is lost, which the caller gives a
            credit for, and the next can be taken.
        """
        uploading = self._uploading
        if not self._arrived and not uploading:
            return None
        while True:
            if uploading and uploading[0][1]:
                return uploading.popleft()[0]
            parcel = self._decode_next()
            if parcel is None:
                return None
            if self._uploads is None and not uploading:
                return parcel
            uploaded: list[bool] = []
            is_late = self._uploads is not None and self._uploads.then(partial(self._is_uploaded, uploaded))
            if not is_late and not uploading:
                return parcel
            if not is_late:
                uploaded.append(True)
            uploading.append((parcel, uploaded))

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to take, and no end or failure to note."""
        is_over = self._machine.peer_ended or self.failure is not None
        return not (self._arrived or self._uploading or is_over)

    def take_at_once(self) -> Parcel | None:
        """Return the next message that arrived, if it is one array of the host, which takes a moment; or None."""
        if self._uploading or not self._arrived:
            return None
        try:
            frame, bulk = self._arrived[0]
            if frame.is_unfinished and not self._is_written(frame.number):
                return None
            parcel = self._decode_array(frame, bulk)
            if parcel is not None:
                self._arrived.popleft()
        # Another thread closes the link; or `take` meets the error again.
        except (IndexError, KeyError, ProtocolError):
            return None
        return parcel

    def _decode_array(self, frame: Frame, bulk: Buffer | None) -> Parcel | None:
        """Return a message that is one array of the host; None if it is another."""
        number, places, loan, description, extra, _ = frame
        if description is None or len(places) != 1:
            return None
        segment, offset, length = places[0]
        usual = decode_array(description, extra, length)
        if usual is None:
            return None
        layout, acq_timestamp = usual
        if segment == IN_BULK:
            data = as_data(layout, array_at(layout, bulk, offset))
        else:
            shared = self._segments[segment]
            if type(shared) is not Segment:
                return None
            array = array_at(layout, shared.mapped, offset)
            self._lease(array, loan)
            data = as_data(layout, array, shared.address + offset)
        return _new(Parcel, (data, acq_timestamp, None, number))

    def _decode_next(self) -> Parcel | None:
        """Return the next message that arrived, whose copies to a device may be under way; or None."""
        try:
            frame = self._arrived[0][0]
            if frame.is_unfinished and not self._is_written(frame.number):
                return None
            frame, bulk = self._arrived.popleft()
        except IndexError:
            return None
        number, _, _, description, extra, _ = frame
        try:
            parcel = self._decode_array(frame, bulk)
            if parcel is not None:
                return parcel
            pieces = self._pieces(frame, bulk)
            if description is None:
                content = pieces.pop(0).tobytes()
                (length,) = _LENGTH.unpack_from(content)
                description, extra = content[4 : 4 + length], content[4 + length :]
            data, acq_timestamp, metadata = decode(
                description, extra, pieces, allow_pickle=self.terms.allow_pickle, to_device=self._to_device
            )
            return Parcel(data, acq_timestamp, metadata, number)
        except (ProtocolError, struct.error) as error:
            with self._lock:
                self._arrived.clear()
                self._break(error if isinstance(error, ProtocolError) else ProtocolError(str(error)))
            self._after_lock()
            return None

    def _is_written(self, number: int) -> bool:
        """Return whether a frame is complete; if not, the sender will tell."""
        board = self._machine.board
        if board is None:  # the link was closed
            return False
        with self._lock:
            return board.wait_for(number)

    def give_credits(self, count: int) -> None:
        """Tell the sender that the consumer took so many messages, so that as many places are free."""
        with self._lock:
            if not self._is_released and not self._is_peer_gone and self.failure is None:
                for message in self._machine.give(count, self._all_returned()):
                    self._post(message)
        self._after_lock()

    def _pieces(self, frame: Frame, bulk: Buffer | None) -> list[Any]:
        """Return the memory of a frame, as arrays of bytes."""
        pieces: list[Any] = []
        loan = frame.loan
        content = _EMPTY if bulk is None else np.frombuffer(bulk, np.uint8)
        for segment, offset, length in frame.places:
            if segment == IN_BULK:
                pieces.append(content[offset : offset + length])
                continue
            memory = self._segments[segment]
            if type(memory) is Segment:
                piece: Bytes = np.ndarray((length,), np.uint8, memory.mapped, offset)
                self._lease(piece, loan)
                pieces.append(piece)
            elif type(memory) is DeviceSegment:
                pieces.append(self._received_frames.receive(memory, offset, length, loan))
            loan += 1
        return pieces

    def _to_device(self, memory: Any, element: Any, shape: Any, strides: Any) -> Tensor | None:
        """Copy memory of the host to a device, if there is one."""
        if not active().has_devices:
            if not self._has_no_device:
                self._has_no_device = True
                _log.warning(
                    "link %r: frames on devices arrive on the host: here is no device", self.terms.name
                )
            return None
        if self._uploads is None:
            self._uploads = Uploads(self._device_id, self._received_frames)
        return self._uploads.add(memory, element, shape, strides)

    def _is_uploaded(self, uploaded: list[bool], error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
        uploaded.append(True)
        self._on_event()

    # What arrives, with the lock held.

    def _do(self, asked: Any, bulk: Buffer | None, descriptors: tuple[int, ...]) -> None:
        if type(asked) is Frame:
            self._arrived.append((asked, bulk))
            return
        if asked is _BOARD:
            self._machine.board = Board.from_peer(*descriptors)
            return
        number, size, is_reused, device = asked
        if device:
            (descriptor,) = descriptors
            threading.Thread(
                target=self._map_device, args=(number, os.dup(descriptor), size, device), daemon=True
            ).start()  # the first use of a device may take a second, and other links have to be served
        elif size:
            (descriptor,) = descriptors
            self._segments[number] = Segment.from_peer(descriptor, size, is_reused=is_reused)
        else:
            self._segments.pop(number, None)

    def _note(self, kind: int) -> bool:
        with suppress(IndexError):  # all were taken
            frame = self._arrived[-1][0]
            board = self._machine.board
            if frame.is_unfinished and board is not None:
                if kind == Kind.BEAT:
                    return True
                if kind == Kind.END and not board.is_written(frame.number):
                    raise ProtocolError(f"an END came before frame {frame.number} was complete")
        return super()._note(kind)

    def _map_device(self, number: int, descriptor: int, size: int, description: bytes) -> None:
        """Map memory of a device, and answer whether that was possible."""
        segment, refusal = None, ""
        try:
            segment = DeviceSegment.from_peer(descriptor, size, description)
        except Exception as error:  # whatever a device, or the lack of one, raises
            refusal = str(error) or type(error).__name__
        finally:
            os.close(descriptor)
        with self._lock:
            if segment is not None:
                self._segments[number] = segment
            if not (self._is_released or self._is_peer_gone):
                self._post(self._machine.answer(number, refusal))
        self._after_lock()

    def _prepare_close(self) -> None:
        self._arrived.clear()
        if not self._is_peer_gone and self.failure is None and not self._machine.has_ended:
            self._post(self._machine.end())

    def _is_needed(self) -> bool:
        return any(
            (known := self._segments.get(segment)) is not None and known.is_reused
            for segment, _ in self._machine.loans.values()
        )

    def _release(self) -> None:
        self._segments.clear()

    # What goes back.

    def _lease(self, array: Any, loan: int) -> None:
        """Return memory to the sender when an array on it is gone."""
        lease = self._leases[loan] = Lease(array, self._end_lease)
        lease.number = loan

    def _end_lease(self, lease: Lease) -> None:
        del self._leases[lease.number]
        self._give_back(lease.number)

    def _give_back(self, loan: int) -> None:
        """Return memory to the sender; called by finalizers.

        It goes with the next credit, or with the next beat: a message of its own would wake the sender for each
        frame. Only a sender that may be waiting for it gets it at once.
        """
        self._returned.append(loan)
        if self._is_urgent():
            self._return_memory()

    def _is_urgent(self) -> bool:
        """Return whether the sender may be waiting for memory, or this end to be released."""
        return self._is_closing or self._machine.lent * 2 > self.terms.max_bytes

    def _all_returned(self) -> Sequence[int]:
        if not self._returned:
            return ()
        returned = []
        with suppress(IndexError):
            while True:
                returned.append(self._returned.popleft())
        return returned

    def _after_lock(self) -> None:
        # What another thread notes while this one holds the lock is seen here, after the release.
        if self._returned and self._is_urgent():
            self._return_memory()

    def _after_tick(self) -> None:
        self._return_memory()

    def _return_memory(self) -> None:
        while self._returned and self._lock.acquire(blocking=False):
            try:
                returned = self._all_returned()
                if returned and not (self._is_released or self._is_peer_gone):
                    for message in self._machine.give(0, returned):
                        self._post(message)
                    self._release_if_done()
            finally:
                self._lock.release()


def _fit(encoded: Encoded) -> tuple[bytes | None, list[Any]]:
    """Return the description and the pieces of a message; a long description becomes the first piece itself."""
    description, extra, pieces, _ = encoded
    count = len(pieces)
    if 8 + count * _PLACE_SIZE + len(description) + len(extra) > MAX_BODY:
        content = _LENGTH.pack(len(description)) + description + extra
        pieces, description_or_none = [np.frombuffer(content, np.uint8), *pieces], None
    else:
        description_or_none = description
    if len(pieces) > MOST_PLACES:
        raise CrossingError(f"a message has {count} arrays; the most that a link takes is {MOST_PLACES - 1}")
    return description_or_none, pieces


def _as_bytes(piece: Any) -> Any:
    """Return the elements of an array as bytes in row-major order; those of one with gaps are copied."""
    if not piece.nbytes:
        return _EMPTY
    if piece.dtype.isbuiltin == 1 and piece.dtype.kind in "biufc" and piece.flags.c_contiguous:
        return piece  # whose bytes can be read as they are
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8)


def _copy(memory: Bytes, piece: Any, length: int) -> None:
    """Copy the elements of an array to memory, in row-major order; so many bytes, if they lie in this order."""
    if piece.flags.c_contiguous:
        memory[:length] = piece.reshape(-1).view(np.uint8)[:length]
    else:
        np.copyto(memory[: piece.nbytes].view(piece.dtype).reshape(piece.shape), piece)


_Rest: TypeAlias = tuple[Bytes, Bytes]
"""Memory, and the bytes that are to be copied there."""


def _memory_of(holder: Any) -> Any:
    return holder.memory if type(holder) is Slot else holder
