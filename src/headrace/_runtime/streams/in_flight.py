"""InFlight: the unfinished computes of one operator, and the frames that must live until they are finished.

The frames that a compute received must live until the operator's stream has completed a fence after the compute.
The next `emit` inserts such a fence anyway. For an operator that emits nothing, a fence is inserted after every
other compute.

Fences are checked every few computes of the operator. Querying an event costs less than a callback, and checking at
every compute would free frames slightly sooner at far more cost.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import Fences

__all__ = ["InFlight"]

_STRIDE = 6  # computes between two checks


class InFlight:
    """The frames that must live until one stream has completed its work on them.

    Only the thread that runs the operator changes it, in a compute or between two computes.

    Parameters
    ----------
    fences
        The fences of the operator on the stream.
    limit
        The maximum number of unfinished computes.

    Attributes
    ----------
    release_at
        The number of unfinished computes at which to release completed ones again.
    """

    __slots__ = ("_frames", "_limit", "_numbers", "fences", "release_at")

    def __init__(self, fences: Fences, limit: int) -> None:
        self.fences = fences
        self.release_at = min(_STRIDE, limit)
        self._limit = limit
        # The frames that each compute received, oldest first, and the number of the fence that releases them.
        self._frames: list[list[Any] | None] = []
        self._numbers: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of computes is unfinished."""
        return len(self._numbers) >= self._limit

    @property
    def frames(self) -> int:
        """The number of frames that are kept alive."""
        return sum(len(frames) for frames in self._frames if frames is not None)

    def add(self, frames: list[Any] | None) -> int:
        """Keep frames alive until the next fence is complete, and return the number of unfinished computes.

        The next `emit` inserts that fence. If none was inserted since the last call, one is inserted now; for an
        operator that emits nothing, this happens at every other call.
        """
        numbers = self._numbers
        number = self.fences.last + 1
        if numbers and numbers[-1] == number:
            self.fences.insert()
        numbers.append(number)
        self._frames.append(frames)
        return len(numbers)

    def release_completed(self) -> None:
        """Release the frames that the stream no longer reads."""
        fences, numbers = self.fences, self._numbers
        if self.is_full and numbers[0] > fences.last:
            fences.insert()  # otherwise no fence would show that the oldest compute is complete
        if numbers:
            fences.update(numbers[0])
            completed = bisect_right(numbers, fences.completed)
            del numbers[:completed], self._frames[:completed]
        self.release_at = min(len(numbers) + _STRIDE, self._limit)

    def settle(self) -> bool:
        """Release what the stream no longer reads, where no compute follows; return whether nothing is left."""
        if self._numbers and self._numbers[-1] > self.fences.last:
            self.fences.insert()
        self.release_completed()
        return not self._numbers

    def oldest_event(self) -> Any:
        """Return the event of the fence that the oldest unfinished compute waits for; call it when full."""
        return self.fences.event(self._numbers[0])

    def clear(self) -> None:
        """Release everything, because the device has finished."""
        self._numbers.clear()
        self._frames.clear()
