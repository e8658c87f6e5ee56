"""Board: a page of memory that both ends of a link on one host share, for what needs no message.

A message wakes its reader, which costs more than what it says: a heartbeat that nobody waits for woke every idle
process for each of its links. On the board each end notes when it was last alive, and the other end looks at it
when it is awake for its own beat.

The board also says which frames are complete. A large frame is announced before its last bytes are copied, so that
the receiver wakes up meanwhile (`Sender`). The sender notes how many frames are complete. The receiver looks before
it hands such a frame out. If it is too early, it notes that it waits, and the sender sends a BEAT when it is done.

Each word has one writer. Words are read and written with the lock of the end held. Releasing a lock and acquiring
it again orders what is done before and after, as the system orders its own locks: whoever reads that a frame is
complete reads all of its bytes, and of a note and a look at the other's note, one end sees the other's.
"""

from __future__ import annotations

import mmap
import os

from headrace.link.ring import Segment

SIZE = mmap.PAGESIZE
# The words: when each end was last alive, and its count of frames; what is complete; what is waited for.
_SENDER, _WRITTEN, _RECEIVER, _AWAITED = 0, 2, 8, 10  # in two lines of the caches


class Board:
    """The shared page, as one end sees it."""

    __slots__ = ("_own", "_peer", "_words")

    def __init__(self, segment: Segment, *, is_sender: bool) -> None:
        self._words = memoryview(segment.mapped).cast("Q")
        self._own, self._peer = (_SENDER, _RECEIVER) if is_sender else (_RECEIVER, _SENDER)

    @classmethod
    def create(cls) -> tuple[Board, int]:
        """Return a new board of a sender, and its descriptor, which the caller closes."""
        segment = Segment.create(SIZE)
        return cls(segment, is_sender=True), os.dup(segment.fileno())

    @classmethod
    def from_peer(cls, descriptor: int) -> Board:
        """Return the board that a sender made; its descriptor is not needed any more."""
        return cls(Segment.from_peer(descriptor, SIZE), is_sender=False)

    def beat(self, now: float, frames: int) -> None:
        """Note that this end is alive, and its count of frames."""
        self._words[self._own + 1] = frames
        self._words[self._own] = int(now * 1e9)

    @property
    def peer_beat(self) -> tuple[float, int]:
        """When the peer was last alive, by its own clock, and its count of frames; 0 if it has not said so."""
        return self._words[self._peer] / 1e9, self._words[self._peer + 1]

    @property
    def written(self) -> int:
        """How many frames are complete, if the last of them was announced before it was."""
        return self._words[_WRITTEN]

    @written.setter
    def written(self, frames: int) -> None:
        self._words[_WRITTEN] = frames

    @property
    def awaited(self) -> int:
        """How many frames have to be complete before the receiver can go on."""
        return self._words[_AWAITED]

    @awaited.setter
    def awaited(self, frames: int) -> None:
        self._words[_AWAITED] = frames
