"""Tail: the end of a large frame, which is copied after the frame was announced.

A process takes as long to wake up as it takes to copy a megabyte or two. So on one host the sender announces a
large frame before its last bytes are copied, and the receiver wakes up meanwhile. The receiver hands the frame out
when it is complete, which the board says (`board.py`).
"""

from __future__ import annotations

from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from headrace.link.ring import Bytes, Slot

Rest: TypeAlias = tuple[Bytes, Bytes]
"""Memory, and the bytes that are to be copied there."""

# Bytes that are copied after the frame was announced: at first, at most, and how many more with each frame. Fewer
# than the shortest are not worth it: a receiver wakes up no sooner for them. Where a receiver always had to wait,
# as on one core, some frames are announced when they are complete before it is tried again.
_FIRST, _LONGEST, _MORE, SHORTEST = 3 << 19, 4 << 20, 4 << 10, 1 << 17
_FRAMES_WITHOUT = 64
# Seconds between two frames after which the receiver may be asleep; at most, to copy a byte.
_PAUSE, _COPY_TIME = 5e-4, 1.5e-10


class Tail:
    """How much of a frame is left to be copied; it follows the receiver."""

    __slots__ = ("_length", "_looked_at")

    def __init__(self) -> None:
        self._length = _FIRST
        self._looked_at = 0.0  # when a large array was last looked at

    def split(self, slot: Slot, piece: Any) -> Rest | None:
        """Return the end of an array that goes to a slot, if it is to be copied after the frame was announced.

        The array has at least `SHORTEST` bytes.
        """
        length = piece.nbytes
        now = monotonic()
        since, self._looked_at = now - self._looked_at, now
        # A receiver that frames come to one after the other is awake.
        if since < _PAUSE + length * _COPY_TIME or not piece.flags.c_contiguous:
            return None
        if self._length < SHORTEST:  # the processes share a core, perhaps; it is tried again
            self._length += _MORE
            return None
        begin = max(length - self._length, 0)
        return slot.memory[begin:length], piece.reshape(-1).view(np.uint8)[begin:]

    def adapt(self, was_awaited: bool) -> None:
        """Leave less to be copied after a frame that the receiver had to wait for, and more after another."""
        if not was_awaited:
            self._length = min(self._length + _MORE, _LONGEST)
            return
        self._length -= self._length >> 2
        if self._length < SHORTEST:
            self._length -= _FRAMES_WITHOUT * _MORE
