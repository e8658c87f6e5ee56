"""Shared memory: segments in memory files without a name, and the slots that a link's frames are copied to.

A segment is a memfd, sealed so that nobody can shrink it under a reader. It has no name, so nothing is left of it
when the last process that maps it has ended, however that ended. Its descriptor is needed only until the other
process has mapped it.

The sender alone decides which memory is used next: the receiver only says what it is done with. `Ring` has slots of
a few sizes, and prefers the one that came back last, which is in the caches. It grows up to a bound, and frees
segments that are idle where slots of another size are needed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from headrace.core.errors import ProtocolError
from headrace.gpu.backend import active

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

ALIGNMENT = 64  # bytes; what vector instructions like
_PAGE = mmap.PAGESIZE
_SMALLEST_SEGMENT = 1 << 20
_LARGEST_SEGMENT = 64 << 20  # unless one slot is larger
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


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
        descriptor = os.memfd_create("headrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            return cls(mmap.mmap(descriptor, size), descriptor, is_reused=is_reused)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def from_peer(cls, descriptor: int, size: int, *, is_reused: bool = False) -> Segment:
        """Map memory that another process made; its descriptor, which stays open, is not needed any more.

        Raises
        ------
        ProtocolError
            If it is not sealed memory of that size.
        """
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError:
            raise ProtocolError("a segment is not a memory file") from None
        if not seals & fcntl.F_SEAL_SHRINK:
            raise ProtocolError("a segment is not sealed: its memory could vanish under a reader")
        found = os.fstat(descriptor).st_size
        if found != size:
            raise ProtocolError(f"a segment has {found} bytes, and was announced with {size}")
        try:
            return cls(mmap.mmap(descriptor, size), is_reused=is_reused)
        except (OSError, ValueError, OverflowError) as error:
            raise ProtocolError(f"a segment of {size} bytes cannot be mapped ({error})") from None

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

    `number` is that of the loan.
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
