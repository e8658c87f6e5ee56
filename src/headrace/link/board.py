"""Board: a page of memory that both ends of a link on one host share, for what needs no message.

A message wakes its reader, which costs more than what it says: a heartbeat that nobody waits for woke every idle
process for each of its links. On the board each end notes when it was last alive, and the other end looks at it
when it is awake for its own beat.

The board also says which frames are complete. A large frame is announced before its last bytes are copied, so that
the receiver wakes up meanwhile (`Sender`). The sender notes how many frames are complete. The receiver looks before
it hands such a frame out. If it is too early, it notes that it waits, and the sender sends a BEAT when it is done.

What must be ordered goes through the system, as every message does. The count of complete frames is an eventfd: the
system adds to it and takes from it with one lock held. Whoever takes a count sees all that was written before it
was added, which includes the bytes of the frame, on every processor that the system runs on. The same lock orders
what each end notes and what it looks at. The receiver notes what it waits for, and then takes from the counter; the
sender adds to the counter, and then looks what is waited for. If the receiver takes too early, its note was there
before the sender added.

The words of the page are hints alone, in any order: when an end was alive, and how far it was. Each has one writer.
The lock of an end is held when it uses its board: it keeps the threads of one process apart, and orders nothing
between two.

Decided against: a count on the page, written and read with Python's own locks around it. The two processes share no
such lock, and what happens in one before it acquires its lock may be seen by another after what follows. An x86
processor keeps the order of its writes, and an ARM processor does not.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

from headrace.core.errors import ProtocolError
from headrace.link.ring import Segment

SIZE = mmap.PAGESIZE
# The words: when each end was last alive, its count of frames and its clock; what is waited for.
_SENDER, _RECEIVER, _AWAITED = 0, 8, 11  # in two lines of the caches


def _clock() -> int:
    """Return a number for the clock of this process: a container may have one of its own, by a time namespace."""
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:  # before Linux 5.6 there is one clock
        return 1


class Board:
    """The shared page, as one end sees it."""

    __slots__ = ("_close", "_counter", "_own", "_peer", "_words", "_written")

    def __init__(self, segment: Segment, counter: int, *, is_sender: bool) -> None:
        self._close = os.close  # modules may be gone at the end of the process
        self._counter = (
            counter  # closed with the last reference: nobody uses a number that is that of another file
        )
        self._words = memoryview(segment.mapped).cast("Q")
        self._own, self._peer = (_SENDER, _RECEIVER) if is_sender else (_RECEIVER, _SENDER)
        self._words[self._own + 2] = _clock()
        self._written = 0

    def __del__(self) -> None:
        self._close(self._counter)

    @classmethod
    def create(cls) -> tuple[Board, tuple[int, int]]:
        """Return a new board of a sender, and its descriptors, the first of which the caller closes."""
        segment = Segment.create(SIZE)
        counter = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return cls(segment, counter, is_sender=True), (os.dup(segment.fileno()), counter)

    @classmethod
    def from_peer(cls, page: int, counter: int) -> Board:
        """Return the board that a sender made; its descriptors are not needed any more.

        Raises
        ------
        ProtocolError
            If they are no memory and no counter.
        """
        segment = Segment.from_peer(page, SIZE)
        kind = os.readlink(f"/proc/self/fd/{counter}")
        if kind != "anon_inode:[eventfd]":
            raise ProtocolError(f"a board came with {kind} in the place of a counter")
        os.set_blocking(counter, False)
        return cls(segment, os.dup(counter), is_sender=False)

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

    def note_written(self, frames: int) -> bool:
        """Note how many frames are complete; return whether the receiver waits for the last of them."""
        os.eventfd_write(self._counter, frames - self._written)
        self._written = frames
        return self._words[_AWAITED] == frames

    def is_written(self, number: int) -> bool:
        """Return whether a frame is complete."""
        if self._written <= number:
            with suppress(BlockingIOError):  # nothing was added
                self._written += os.eventfd_read(self._counter)
        return self._written > number

    def wait_for(self, number: int) -> bool:
        """Note that the receiver waits for a frame, unless it is complete; return whether it is."""
        if self.is_written(number):
            return True
        self._words[_AWAITED] = number + 1
        return self.is_written(number)
