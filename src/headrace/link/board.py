"""Board: a page of memory that both ends of a link on one host share, for what needs no message.

A message wakes its reader, which costs more than what it says: a heartbeat that nobody waits for woke every idle
process for each of its links. On the board each end notes when it was last alive, and how far it is. The other end
looks at it when it is awake for its own beat. The words are hints alone, in any order, and each has one writer.
"""

from __future__ import annotations

import mmap
import os

from headrace.link.ring import Segment

SIZE = mmap.PAGESIZE
# The words: when each end was last alive, its count of frames and its clock; in two lines of the caches.
_SENDER, _RECEIVER = 0, 8


def _clock() -> int:
    """Return a number for the clock of this process: a container may have one of its own, by a time namespace."""
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:  # before Linux 5.6 there is one clock
        return 1


class Board:
    """The shared page, as one end sees it."""

    __slots__ = ("_own", "_peer", "_words")

    def __init__(self, segment: Segment, *, is_sender: bool) -> None:
        self._words = memoryview(segment.mapped).cast("Q")
        self._own, self._peer = (_SENDER, _RECEIVER) if is_sender else (_RECEIVER, _SENDER)
        self._words[self._own + 2] = _clock()

    @classmethod
    def create(cls) -> tuple[Board, int]:
        """Return a new board of a sender, and its descriptor, which the caller closes."""
        segment = Segment.create(SIZE)
        return cls(segment, is_sender=True), os.dup(segment.fileno())

    @classmethod
    def from_peer(cls, page: int) -> Board:
        """Return the board that a sender made; its descriptor is not needed any more.

        Raises
        ------
        ProtocolError
            If it is no memory.
        """
        return cls(Segment.from_peer(page, SIZE), is_sender=False)

    def beat(self, now: float, frames: int) -> None:
        """Note that this end is alive, and its count of frames."""
        self._words[self._own + 1] = frames
        self._words[self._own] = int(now * 1e9)

    @property
    def peer_beat(self) -> tuple[float, int]:
        """When the peer was last alive, by its own clock, and its count of frames; 0 if it has not said so."""
        return self._words[self._peer] / 1e9, self._words[self._peer + 1]

    @property
    def has_one_clock(self) -> bool:
        """Whether both ends are known to read the same clock."""
        return self._words[self._own + 2] == self._words[self._peer + 2]
