"""The memory of a link: what both ends share, and the places of frames in it.

A segment is a memfd. It has no name, so nothing is left of it
when the last process that maps it has ended, however that ended. Its descriptor is needed only until the other
process has mapped it.

The sender alone decides which memory is used next: the receiver only says what it is done with. `Ring` has slots of
a few sizes, and prefers the one that came back last, which is in the caches. It grows up to a bound, and frees
segments that are idle where slots of another size are needed.

A sender has three kinds of memory: slots in memory of the host, slots in memory of each device, and the memory of
allocators, in which a frame is sent as it lies there (`SenderMemory`). A segment is announced with its first frame.
If the receiver cannot map the memory of a device, its frames get slots in pinned memory of the host.
"""

from __future__ import annotations

import logging
import mmap
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, finalize, ref

import numpy as np

from headrace.core.errors import CrossingError
from headrace.core.values import size_text
from headrace.gpu.backend import active
from headrace.link.device import DevicePiece, DeviceSegment
from headrace.link.protocol import Answer, Place, SendingEnd, Terms

_log = logging.getLogger("headrace.link")
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_SAY_AGAIN = 60.0  # seconds until a stall is said again: with little memory, each frame may have to wait

Holder: TypeAlias = tuple[Any, Any]
"""What keeps the memory of a piece of a frame, which is a slot or else the piece itself, and the piece."""

ALIGNMENT = 64  # bytes; what vector instructions like
_PAGE = mmap.PAGESIZE
_SMALLEST_SEGMENT = 1 << 20
_LARGEST_SEGMENT = 64 << 20  # unless one slot is larger


class Segment:
    """Shared memory that is mapped in this process, as long as anything refers to it.

    Attributes
    ----------
    mapped, memory
        Its bytes, as they are mapped and as an array.
    address
        The address of the first of them.
    size
        Their number.
    is_reused
        Whether the memory may be written again after a link that it was sent over has ended.
    """

    __slots__ = ("__weakref__", "_descriptor", "_unpin", "address", "is_reused", "mapped", "memory", "size")

    def __init__(self, mapped: mmap.mmap, descriptor: int = -1, *, is_reused: bool = False) -> None:
        self._descriptor = descriptor
        self.mapped = mapped
        self.memory: Bytes = np.frombuffer(mapped, np.uint8)
        self.address = int(self.memory.__array_interface__["data"][0])
        self.size = len(mapped)
        self.is_reused = is_reused
        self._unpin: Callable[[Any], None] | None = None

    def pin(self) -> None:
        """Make it known to the devices of this process, which copy faster to and from such memory."""
        if self._unpin is None:
            backend = active()
            backend.pin(self.memory)
            self._unpin = backend.unpin

    @classmethod
    def create(cls, size: int, *, is_reused: bool = False) -> Segment:
        """Return new memory of at least that size, filled with zeros."""
        size = -(-size // _PAGE) * _PAGE
        descriptor = os.memfd_create("headrace")
        try:
            os.ftruncate(descriptor, size)
            return cls(mmap.mmap(descriptor, size), descriptor, is_reused=is_reused)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def from_peer(cls, descriptor: int, size: int, *, is_reused: bool = False) -> Segment:
        """Map memory that another process made; its descriptor, which stays open, is not needed any more."""
        return cls(mmap.mmap(descriptor, size), is_reused=is_reused)

    def fileno(self) -> int:
        """Return its descriptor, in the process that made it."""
        return self._descriptor

    def __del__(self) -> None:
        if self._unpin is not None:
            self._unpin(self.memory)
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Lease(ref[Any]):
    """Memory that was received, as long as the array on it exists, which every view and every export of it keeps.

    `number` is that of the lease.
    """

    __slots__ = ("number",)
    number: int


class Slot:
    """A piece of a segment that one frame's array is copied to."""

    __slots__ = ("memory", "offset", "segment")

    def __init__(self, segment: Any, offset: int, size: int) -> None:
        self.segment = segment
        self.offset = offset
        self.memory: Any = segment.memory[offset : offset + size]


class Ring:
    """The slots of a sender.

    Parameters
    ----------
    max_bytes
        The most bytes of all its segments.
    make
        Makes a segment of at least a size; by default, in memory of the host.
    """

    def __init__(self, max_bytes: int, make: Callable[[int], Any] | None = None) -> None:
        self.max_bytes = max_bytes
        self._create = Segment.create if make is None else make
        self.size = 0
        """The bytes of all segments."""
        self._idle: dict[int, list[Slot]] = {}
        self._segments: dict[Any, int] = {}  # with the size of their slots

    def take(self, length: int) -> Slot | None:
        """Return a slot for so many bytes; None if all memory within the bound is in use."""
        size = _slot_size(length)
        idle = self._idle.get(size)
        if idle:
            return idle.pop()
        return self._make(size) or self._larger(size) or (self._make(size) if self._trim(size) else None)

    def give_back(self, slot: Slot) -> None:
        """Take back a slot."""
        self._idle[len(slot.memory)].append(slot)

    def can_hold(self, length: int) -> bool:
        """Return whether a slot for so many bytes can exist at all."""
        return _slot_size(length) <= self.max_bytes

    def _make(self, size: int) -> Slot | None:
        """Return a slot of a new segment; None if there may be no more."""
        left = self.max_bytes - self.size
        if size > left:
            return None
        wanted = min(max(_SMALLEST_SEGMENT, self.size // 4), _LARGEST_SEGMENT, left)
        count = max(wanted // size, 1)
        segment = self._create(size * count)
        self.size += segment.size
        self._segments[segment] = size
        slots = [Slot(segment, number * size, size) for number in range(count)]
        self._idle.setdefault(size, []).extend(reversed(slots[1:]))
        return slots[0]

    def _larger(self, size: int) -> Slot | None:
        """Return an idle slot of the next larger size."""
        larger = min((other for other, idle in self._idle.items() if idle and other > size), default=None)
        return None if larger is None else self._idle[larger].pop()

    def _trim(self, size: int) -> bool:
        """Free segments that are all idle until there is room for a slot; return whether there is."""
        for segment, slot_size in list(self._segments.items()):
            if self.max_bytes - self.size >= size:
                break
            idle = self._idle[slot_size]
            if sum(slot.segment is segment for slot in idle) == segment.size // slot_size:
                self._idle[slot_size] = [slot for slot in idle if slot.segment is not segment]
                del self._segments[segment]
                self.size -= segment.size
        return self.max_bytes - self.size >= size


def _slot_size(length: int) -> int:
    """Return the size of a slot: pages, and at most a quarter more than needed."""
    step = max(_PAGE, 1 << max(length.bit_length() - 3, 0))
    return -(-length // step) * step


SHARED: dict[int, ref[Segment]] = {}
"""Memory that allocators made, by its address: frames in it are sent without a copy."""


def share(segment: Segment) -> None:
    """Let frames that lie in a segment be sent from where they are."""
    address = segment.address
    SHARED[address] = ref(segment, lambda _: SHARED.pop(address, None))


def find_shared(address: int, length: int) -> Segment | None:
    """Return the segment of an allocator that holds so many bytes at an address."""
    known = SHARED.get(address)
    if known is None:  # it does not lie at the beginning
        starts = sorted(SHARED)
        at = bisect_right(starts, address)
        known = SHARED.get(starts[at - 1]) if at else None
    segment = None if known is None else known()
    return segment if segment is not None and address + length <= segment.address + segment.size else None


# What a sender shares.


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

    def find_in_place(self, piece: Any, holders: list[Holder]) -> Place | None:
        """Return the place of an array that an allocator made in shared memory."""
        if not (SHARED and self._sends_in_place and piece.flags.c_contiguous):
            return None
        address = piece.__array_interface__["data"][0]
        segment = find_shared(address, piece.nbytes)
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
        return number, address - segment.address, piece.nbytes

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
        for number, keeper in self._machine.leases.values():
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
