"""Sender: the end that a flow's messages leave from.

A message is sent at once, in the thread that calls `send`, unless memory of a device has to be copied for it first.
Then it waits in the outbox until the device is done, and later messages wait behind it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from headrace.core.errors import LinkError
from headrace.link.carrier import Buffer, Carrier
from headrace.link.codec import encode
from headrace.link.device import DeviceBytes, DeviceCopies, DevicePiece, DeviceSegment
from headrace.link.end import End
from headrace.link.loop import LinkLoop, default_loop
from headrace.link.memory import ALIGNMENT, Bytes, Holder, SenderMemory, Slot, too_large
from headrace.link.protocol import (
    IN_BULK,
    MAX_INLINE,
    Answer,
    Kind,
    Place,
    Sample,
    SendingEnd,
    Terms,
    description_fits,
    frame_body,
)
from headrace.tensor.copies import HostMemory

_log = logging.getLogger("headrace.link")
DEFER = Kind.DEFER  # members of an enumeration are slow to find


class _Outgoing:
    """A frame that is ready to be sent, or will be when the device has copied it."""

    __slots__ = ("body", "bulk", "holders", "inline", "is_ready", "places")

    def __init__(self) -> None:
        self.body = b""
        self.places: list[Place] = []
        self.bulk: list[Any] = []
        self.inline = 0  # the bytes of all bulk
        self.holders: list[Holder] = []
        self.is_ready = True

    def add(self, content: Any, length: int) -> None:
        """Let bytes travel with the message."""
        padding = -self.inline % ALIGNMENT
        self.bulk += (bytes(padding), content)
        self.places.append((IN_BULK, self.inline + padding, length))
        self.inline += padding + length


class Sender(End):
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
        self.credited = 0
        """The credits that came back."""
        self._taken_credits = 0
        self._let_go: deque[Any] = deque()
        # Frames that wait for a device to copy them, and those behind them; and whether the end is behind them.
        self._outbox: deque[_Outgoing] = deque()
        self._is_ending = False
        self._copies = DeviceCopies()
        self._host_memory: HostMemory | None = None
        # Whether a message waits for memory; when to ask the receiver for some, and after how long once more.
        self._is_stalled = False
        self._collect_at = self._pause = 0.0
        self._machine: SendingEnd
        machine = SendingEnd(terms.text(), terms.silence, monotonic(), terms.size)
        self._memory = SenderMemory(terms, machine, self._post, sends_in_place)
        super().__init__(carrier, terms, on_event, machine, loop or default_loop())

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
    def deferred(self) -> int:
        """The messages, from the first on, of which the receiver takes no more before others come."""
        return self._machine.deferred

    def take_credits(self) -> int:
        """Return the credits that came back since the last call."""
        if self.credited == self._taken_credits:
            return 0
        with self._lock:
            new = self.credited - self._taken_credits
            self._taken_credits = self.credited
        return new

    def send(self, sample: Sample) -> bool:
        """Send a message if there is a credit, and memory for it; return whether it was sent.

        Tensors on a device are copied in the order of the work behind them. The message leaves when the copies are
        complete, and later messages after it. If this returns False because the receiver has not answered yet
        whether it can use the memory of the device, `on_event` tells when it has.

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
        data, acq_timestamp, metadata, _ = sample
        text, pieces, is_on_device, extra = encode(data, acq_timestamp, metadata)
        description: bytes | None = text
        if not description_fits(text, len(pieces)):
            pieces, description = [np.frombuffer(text, np.uint8), *pieces], None
        try:
            outgoing = self._place(pieces)
            if outgoing is None:
                return False
            # All is made before the copy, which evicts this code and its data from the caches of the processor.
            outgoing.body = frame_body(outgoing.places, description, extra)
            self._copy(outgoing.holders)
            if is_on_device and self._start_copies(outgoing):
                return True
            with self._lock:
                if self._outbox:
                    self._outbox.append(outgoing)
                else:
                    self._post_frame(outgoing)
            return True
        finally:
            self._after_lock()

    def end(self) -> None:
        """Tell the receiver that everything was sent."""
        with self._lock:
            if self._can_say():
                self._is_ending = True
                self._send_ready()

    # Places for what is sent.

    def _place(self, pieces: list[Any]) -> _Outgoing | None:
        """Return a frame with places for all pieces; None if the message has to wait.

        Raises
        ------
        CrossingError
            If there never will be room for all of them.
        """
        total = sum(piece.nbytes for piece in pieces)
        if not self._is_local:
            if total > self.terms.max_bytes:  # before an array with gaps is copied
                raise too_large(self.terms, total)
            outgoing = _Outgoing()
            for piece in pieces:
                if type(piece) is DevicePiece and piece.nbytes:
                    content = self._pinned(piece.nbytes)
                    outgoing.holders.append((content, piece))
                else:
                    content = _as_bytes(piece)
                outgoing.add(content, piece.nbytes)
            return outgoing
        with self._lock:
            for is_cleared in (False, True):
                outgoing = _Outgoing()
                failed = next((piece for piece in pieces if not self._share(outgoing, piece)), None)
                if failed is None:
                    return outgoing
                self._give_back(outgoing.holders)
                is_on_device = type(failed) is DevicePiece
                if is_on_device and self._machine.unanswered:
                    return None
                if self._machine.leases or self._outbox:
                    self._note_stall(failed.nbytes)
                    return None
                # Nobody will give memory back. Slots of other sizes may be in the way; new ones on a device would
                # have to be answered for first, again and again.
                if is_on_device or is_cleared:
                    break
                self._memory.clear_slots()
        raise too_large(self.terms, total)

    def _share(self, outgoing: _Outgoing, piece: Any) -> bool:
        """Find a place for a piece in shared memory, or for a small one in the message; return whether there is."""
        length, memory, holders = piece.nbytes, self._memory, outgoing.holders
        if type(piece) is DevicePiece and length:
            place = memory.take_device_slot(piece, holders)
        elif outgoing.inline + ALIGNMENT + length <= MAX_INLINE:
            outgoing.add(bytes(_as_bytes(piece)), length)  # which may change when `send` returns
            return True
        else:
            place = memory.find_in_place(piece, holders) or memory.take_slot(piece, holders)
        if place is not None:
            outgoing.places.append(place)
        return place is not None

    def _pinned(self, length: int) -> Any:
        """Return pinned memory of the host for a frame that leaves this host."""
        if self._host_memory is None:
            self._host_memory = HostMemory()
            _log.info(
                "link %r: frames on devices are copied through the host to another host", self.terms.name
            )
        return self._host_memory.array((length,), np.dtype(np.uint8))

    def _give_back(self, holders: list[Holder]) -> None:
        """Return the slots of a message that cannot be sent; with the lock held."""
        for keeper, _ in holders:
            self._memory.give_back(keeper)

    # Copies of the host.

    def _copy(self, holders: list[Holder]) -> None:
        """Copy the arrays of a frame to their slots."""
        try:
            for slot, piece in holders:
                if type(slot) is Slot and type(piece) is not DevicePiece:
                    _copy(slot.memory, piece)
        except BaseException:  # as Ctrl-C in the middle of a long copy
            with self._lock:
                self._give_back(holders)
            raise

    # Copies of devices, and what waits for them.

    def _start_copies(self, outgoing: _Outgoing) -> bool:
        """Copy a frame's memory on its devices, and send the frame when that is done; False if it has none."""
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
        with self._lock:  # until those before it, and its copies, are done
            self._outbox.append(outgoing)

        def is_copied(error: Exception | None) -> None:
            with self._lock:
                outgoing.is_ready = True
                if error is not None:
                    self._fail(error)
                self._send_ready()
                self._release_if_done()
            self._after_lock()
            if error is not None:
                self.on_event()

        try:
            self._copies.start(copies, is_copied)
        except BaseException:
            with self._lock:
                self._outbox.remove(outgoing)
                self._give_back(outgoing.holders)
            raise
        return True

    # With the lock held.

    def _send_ready(self) -> None:
        """Send what no longer waits for a device, in order."""
        while self._outbox and self._outbox[0].is_ready:
            self._post_frame(self._outbox.popleft())
        if self._is_ending and not self._outbox and not self._machine.has_ended and not self._is_peer_gone:
            self._post(self._machine.end())

    def _post_frame(self, outgoing: _Outgoing) -> None:
        machine = self._machine
        if self.failure is not None or machine.has_ended:
            return
        number = machine.frames
        self._post(machine.frame(outgoing.body, outgoing.inline), outgoing.bulk)
        if self._is_local:
            for keeper, _ in outgoing.holders:
                machine.lend((number, keeper))

    def _do(self, asked: Any, bulk: Buffer | None, descriptors: tuple[int, ...]) -> None:
        if type(asked) is Answer:
            self._memory.note_answer(asked)
            return
        if asked is DEFER:
            return
        places, holders = asked
        self.credited += places
        if holders:
            self._is_stalled = False
        for _, keeper in holders:
            if not self._memory.give_back(keeper):
                self._let_go.append(keeper)

    def _note_stall(self, length: int) -> None:
        self._memory.note_stall(length)
        if not self._is_stalled:
            self._is_stalled = True
            self._pause = self._machine.between
            self._collect_at = monotonic() + self._pause

    def _look_after(self, now: float) -> None:
        # A receiver that has no frames any more, and yet holds their memory, has them in circles of references,
        # which Python's collector finds. It may not run by itself, as the receiver waits too. One that keeps its
        # frames is asked less and less often.
        if self._is_stalled and now >= self._collect_at and not self._machine.has_ended:
            self._post(self._machine.collect())
            self._pause *= 2
            self._collect_at = now + self._pause

    def _is_needed(self) -> bool:
        if self._outbox:
            return True
        return any(
            type(keeper) is not Slot or type(keeper.segment) is DeviceSegment
            for _, keeper in self._machine.leases.values()
        )

    def _release(self) -> None:
        self._let_go.extend(self._machine.leases.values())
        self._machine.leases.clear()
        self._memory.release()
        self._outbox.clear()

    # Without the lock.

    def _after_lock(self) -> None:
        # Letting go of an allocator's memory tells whoever waits for it, who must not wait for this lock.
        while self._let_go:
            with suppress(IndexError):  # another thread was faster
                self._let_go.popleft()

    _after_tick = _after_lock


def _as_bytes(piece: Any) -> Any:
    """Return the elements of an array as bytes in row-major order; those of one with gaps are copied."""
    if not piece.nbytes:
        return b""
    if piece.dtype.isbuiltin == 1 and piece.dtype.kind in "biufc" and piece.flags.c_contiguous:
        return memoryview(piece).cast(
            "B"
        )  # an array without dimensions has no len(), and to bytes() it is a count
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8)


def _copy(memory: Bytes, piece: Any) -> None:
    """Copy the elements of an array to memory, in row-major order."""
    if piece.flags.c_contiguous:
        memory[: piece.nbytes] = piece.reshape(-1).view(np.uint8)
    else:
        np.copyto(memory[: piece.nbytes].view(piece.dtype).reshape(piece.shape), piece)
