"""LeftFrames: what operators had kept when they left a shared stream, while others may still read it there.

An operator that receives frames from outside of its branch keeps them, for itself and for those that it passes
them on to: these work on the same stream, and keep nothing (`in_order`). When it leaves, the others may still hold
such a frame, or find it in their queues. So the frames that it kept are also kept here, until nobody holds them and
the streams of all operators of the branch have completed their work.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace._runtime.messages.fences import Fences
from headrace._runtime.streams.watch import Watched, no_longer_held

if TYPE_CHECKING:
    from headrace._runtime.messages.managed_stream import ManagedStream


class LeftFrames:
    """The frames of operators that have left a shared stream.

    Any of the operators may call it; a signal that raises would leave its lock held, so the handler waits.

    Parameters
    ----------
    shared
        The stream that they shared.
    """

    __slots__ = ("_fences", "_lock", "_released", "_streams", "_watched")

    def __init__(self, shared: ManagedStream) -> None:
        self._lock = threading.Lock()
        self._fences = Fences(shared)
        self._streams: list[ManagedStream] = []
        self._watched: dict[int, Watched] = {}
        # Those that nobody held any more; the last fence completes the work on them.
        self._released: list[Any] = []

    @waits.shielded
    def add(self, frames: dict[int, Watched], stream: ManagedStream) -> None:
        """Keep the frames of an operator that leaves for a stream of its own."""
        with self._lock:
            self._streams.append(stream)
            self._watched.update(frames)

    @waits.shielded
    def settle(self) -> bool:
        """Release what nobody holds or reads any more; return whether nothing is left."""
        if not self._lock.acquire(blocking=False):
            return False  # another operator is about it
        try:
            fences, watched = self._fences, self._watched
            if not fences.has_passed(fences.last):
                return False
            self._released = [watched.pop(key) for key in no_longer_held(watched)]
            if self._released:
                for stream in self._streams:
                    fences.stream.wait(stream.now())
                fences.insert()
            return not (self._released or watched)
        finally:
            self._lock.release()

    @waits.shielded
    def clear(self) -> None:
        """Release everything, because the streams have finished."""
        with self._lock:
            self._released.clear()
            self._watched.clear()
