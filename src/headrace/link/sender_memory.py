"""SenderMemory: the memory that a sender shares with its receiver, and the places of frames in it.

There are three kinds of it: slots in memory of the host, slots in memory of each device, and the memory of
allocators, in which a frame is sent as it lies there. A segment of it is announced with its first frame. If the
receiver cannot map the memory of a device, the frames of that device get slots in pinned memory of the host.

The lock of the sender is held in every method.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, finalize

from headrace.core.byte_sizes import size_text
from headrace.core.errors import CrossingError
from headrace.link.device import DevicePiece, DeviceSegment
from headrace.link.protocol import Answer, Place, SendingEnd
from headrace.link.ring import SHARED, Ring, Segment, Slot, find_shared
from headrace.link.terms import Terms
from headrace.tensor import Tensor

_log = logging.getLogger("headrace.link")
_SAY_AGAIN = 60.0  # seconds until a stall is said again: with little memory, each frame may have to wait

Holder: TypeAlias = tuple[Any, Any]
"""What keeps the memory of a piece of a frame, which is a slot or else the piece itself, and the piece."""


class SenderMemory:
    """The shared memory of a sender.

    Parameters
    ----------
    terms
        Those of the link.
    machine
        The state machine of the sender.
    post
        Sends a message, with descriptors.
    sends_in_place
        Whether what lies in the memory of an allocator is sent as it is.
    """

    def __init__(
        self, terms: Terms, machine: SendingEnd, post: Callable[..., None], sends_in_place: bool
    ) -> None:
        self.ring = Ring(terms.max_bytes)
        self.allocated = 0
        """The bytes of allocators that the receiver has mapped."""
        self.device_rings: dict[int, Ring | None] = {}
        """The slots on each device; None if frames of that device go through the host."""
        self._terms = terms
        self._machine = machine
        self._post = post
        self._sends_in_place = sends_in_place
        self._numbers: WeakKeyDictionary[Segment | DeviceSegment, int] = WeakKeyDictionary()
        self._dropped: deque[tuple[int, int]] = deque()
        self._stall_said = -_SAY_AGAIN

    def find_in_place(self, piece: Any, length: int, holders: list[Holder]) -> Place | None:
        """Return the place of an array or a tensor that an allocator made in shared memory."""
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
            if self.allocated + segment.size > self._terms.max_bytes:
                return None  # it is copied
            self.allocated += segment.size
            number = self._announce(segment)
        holders.append((piece, piece))
        return number, address - segment.address, length

    def take_slot(self, piece: Any, holders: list[Holder]) -> Place | None:
        """Return a place to copy an array to, or None if there is no memory."""
        slot = self.ring.take(piece.nbytes)
        if slot is None:
            return None
        number = self._numbers.get(slot.segment)
        if number is None:
            number = self._announce(slot.segment)
        holders.append((slot, piece))
        return number, slot.offset, piece.nbytes

    def take_device_slot(self, piece: DevicePiece, holders: list[Holder]) -> Place | None:
        """Return a place to copy memory of a device to; None if it has to wait."""
        device_id = piece.device_id
        if device_id not in self.device_rings:
            make = partial(DeviceSegment.create, device_id=device_id)
            self.device_rings[device_id] = Ring(self._terms.max_bytes, make)
        ring = self.device_rings[device_id]
        if ring is not None:
            try:
                slot = ring.take(piece.nbytes)
            except Exception as error:  # whatever a driver without IPC, or without memory, raises
                self._refuse(device_id, str(error))
            else:
                if slot is None:
                    return None
                number = self._numbers.get(slot.segment)
                if number is None:
                    number = self._announce(slot.segment)
                if number in self._machine.unanswered:
                    ring.give_back(slot)
                    return None
                holders.append((slot, piece))
                return number, slot.offset, piece.nbytes
        place = self.take_slot(piece, holders)
        if place is not None:  # the device copies to pinned memory without a wait
            holders[-1][0].segment.pin()
        return place

    def give_back(self, keeper: Any) -> bool:
        """Take back a slot; return False for what is none, and was sent in place."""
        if type(keeper) is not Slot:
            return False
        segment: Any = keeper.segment
        # None if the device was refused meanwhile.
        ring = self.ring if type(segment) is Segment else self.device_rings.get(segment.device_id)
        if ring is not None:
            ring.give_back(keeper)
        return True

    def note_answer(self, answer: Answer) -> None:
        """Note whether the receiver has mapped the memory of a device."""
        segment = next((known for known, number in self._numbers.items() if number == answer.segment), None)
        if answer.refusal and type(segment) is DeviceSegment and self.device_rings.get(segment.device_id):
            self._refuse(segment.device_id, answer.refusal)

    def held(self) -> dict[int, int]:
        """Return the bytes of shared memory that the receiver has, by the number of the message."""
        found: dict[int, int] = {}
        for number, keeper in self._machine.loans.values():
            memory = keeper.memory if type(keeper) is Slot else keeper
            found[number] = found.get(number, 0) + memory.nbytes
        return found

    def note_stall(self, length: int) -> None:
        """Log who has the memory that a piece of a frame waits for.

        Raises
        ------
        CrossingError
            If there never will be as much.
        """
        if not self.ring.can_hold(length):
            raise too_large(self._terms, length)
        now = monotonic()
        if now - self._stall_said > _SAY_AGAIN:
            self._stall_said = now
            held = self.held()
            numbers = ", ".join(map(str, sorted(held)[:8])) + (", ..." if len(held) > 8 else "")
            _log.warning(
                "link %r waits for memory: %s of at most %s are in use, by %d frames that %s keeps (%s). Release "
                "frames there, or raise the bound of the link's memory (HEADRACE_LINK_MEMORY between fragments)",
                self._terms.name,
                size_text(sum(held.values())),
                size_text(self.ring.max_bytes),
                len(held),
                self._terms.name.rpartition("-> ")[2],
                numbers,
            )

    def clear_slots(self) -> None:
        """Let go of the slots of the host, of which none is in use, so that there is room for other sizes."""
        self.ring = Ring(self._terms.max_bytes)

    def release(self) -> None:
        """Let go of all memory that no frame keeps."""
        self.clear_slots()
        self.device_rings.clear()

    def _announce(self, segment: Segment | DeviceSegment) -> int:
        self._drop_segments()
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
            self.allocated -= shared
            self._post(self._machine.drop_segment(number))

    def _refuse(self, device_id: int, reason: str) -> None:
        """Send the frames of a device through the host from now on, and say so."""
        self.device_rings[device_id] = None
        _log.warning(
            "link %r: frames on device %d are copied through the host, since their memory cannot be shared: %s",
            self._terms.name,
            device_id,
            reason,
        )


def too_large(terms: Terms, length: int) -> CrossingError:
    """Return the error for a frame that exceeds the bound of a link's memory."""
    return CrossingError(
        f"link {terms.name!r}: a frame has {size_text(length)}, and the bound of the link's memory is "
        f"{size_text(terms.max_bytes)}; raise it (HEADRACE_LINK_MEMORY between fragments)"
    )
