"""InFlight: the computes of one operator that the device has not finished, and the frames that live until then.

What a compute received must live until the operator's stream has completed a fence that comes after the compute.
That is the fence which the next `emit` inserts anyway or, for an operator that emits nothing, one that is inserted
for the purpose after every other compute.

Fences are checked when the operator runs, every few computes. Querying an event costs less than a callback, and
checking at every compute would free frames a little sooner at far more cost.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock._runtime.streams.fences import Fences

__all__ = ["InFlight"]

_STRIDE = 6  # computes between two checks


class InFlight:
    """What must live until one stream has completed it.

    Only the thread that runs the operator changes it, in a compute or between two of them.

    Parameters
    ----------
    fences
        The fences of the operator on the stream.
    limit
        How many computes may be unfinished at once.

    Attributes
    ----------
    release_at
        The number of unfinished computes at which it is time to release again.
    """

    __slots__ = ("_frames", "_limit", "_numbers", "fences", "release_at")

    def __init__(self, fences: Fences, limit: int) -> None:
        self.fences = fences
        self.release_at = min(_STRIDE, limit)
        self._limit = limit
        # What each compute received, oldest first, and the number of the fence that ends its life.
        self._frames: list[list[Any] | None] = []
        self._numbers: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether as many computes are unfinished as may be."""
        return len(self._numbers) >= self._limit

    @property
    def frames(self) -> int:
        """The number of frames that are kept alive."""
        return sum(len(frames) for frames in self._frames if frames is not None)

    def add(self, frames: list[Any] | None) -> int:
        """Keep frames alive until a fence after now is complete, and return how many computes are unfinished.

        That is the next fence, which the next `emit` inserts. If none was inserted since the last time, one is
        inserted now: for an operator that emits nothing, every other time.
        """
        numbers = self._numbers
        number = self.fences.last + 1
        if numbers and numbers[-1] == number:
            self.fences.insert()
        numbers.append(number)
        self._frames.append(frames)
        return len(numbers)

    def release_completed(self) -> None:
        """Release what the stream does not read any more."""
        fences, numbers = self.fences, self._numbers
        if self.is_full and numbers[0] > fences.last:
            fences.insert()  # or nothing would ever tell that the oldest is complete
        if numbers:
            fences.update(numbers[0])
            completed = bisect_right(numbers, fences.completed)
            del numbers[:completed], self._frames[:completed]
        self.release_at = min(len(numbers) + _STRIDE, self._limit)

    def oldest_event(self) -> Any:
        """Return the event of the fence that the oldest unfinished compute waits for, where it is full."""
        return self.fences.event(self._numbers[0])

    def clear(self) -> None:
        """Release everything: the device is done."""
        self._numbers.clear()
        self._frames.clear()
