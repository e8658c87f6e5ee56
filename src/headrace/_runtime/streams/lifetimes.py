"""Lifetimes: how long received frames stay alive, and how far the host may run ahead of the device.

A received frame stays alive until the program has released it and every stream that may read it has completed a
fence after that (`held_frames`).

The frames that a compute received must live until the operator's stream has completed a fence after the compute.
The next `emit` inserts such a fence anyway. For an operator that emits nothing, a fence is inserted after every
other compute.

Fences are checked every few computes of the operator. Querying an event costs less than a callback, and checking at
every compute would free frames slightly sooner at far more cost.

An operator with `Operator.max_in_flight` unfinished computes is not ready until the device has finished the oldest.
Only in this case is a callback requested.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime.streams.held_frames import HeldFrames
from headrace._runtime.streams.owners import only_kept
from headrace.core.whole_numbers import whole_number
from headrace.gpu.allocation import in_use

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import Fences
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace._runtime.streams.running_operator import RunningOperator

_STRIDE = 6  # computes between two checks


class Lifetimes:
    """The frames that one operator received, while its streams may read them.

    All fields are changed in the operator's computes or between two computes, and never concurrently.

    Attributes
    ----------
    held
        The received frames, and the frames that the program still holds.
    readers
        The unfinished computes on each stream that may read received frames.
    full
        A stream with the maximum number of unfinished computes; the engine then throttles the operator.
    """

    __slots__ = ("_limit", "_node", "_streams", "full", "held", "readers")

    def __init__(self, run: RunStreams, node: RunningOperator) -> None:
        self._node = node
        self._streams = ReaderStreams()
        self.held = HeldFrames(run.watch, self._streams)
        self.readers: list[InFlight] = []
        self.full: InFlight | None = None
        limit = node.operator.max_in_flight
        given = node.operator.fragment.max_in_flight if limit is None else limit
        self._limit = whole_number(given, f"operator {node.name!r}: max_in_flight", 1)

    def add_reader(self, fences: Fences) -> None:
        """From now on, also keep received frames until this stream has completed its work."""
        self.readers.append(InFlight(fences, self._limit))
        self._streams.add(fences.stream)

    def is_read_on(self, fences: Fences) -> bool:
        """Return whether received frames are kept until a stream has completed its work."""
        for reader in self.readers:  # noqa: SIM110 (a generator costs four times as much)
            if reader.fences is fences:
                return True
        return False

    def end_compute(self) -> None:
        """Keep the frames that the compute received and released until the streams have completed its work."""
        held = self.held
        received = held.received
        if not received and not held.watched:
            released = None
        elif held.watched or in_use or not only_kept(received):
            released = held.end_compute()
        else:
            released, held.received = received, []
        for reader in self.readers:
            # A copy of `InFlight.add`.
            numbers = reader.numbers
            number = reader.fences.last + 1
            if numbers and numbers[-1] == number:
                reader.fences.insert()
            numbers.append(number)
            reader.frames.append(released)
            if len(numbers) >= reader.release_at:
                self.release_completed(reader)

    def settle(self) -> bool:
        """Release what no stream reads, where no compute follows; return whether only held frames are left."""
        released = self.held.end_compute() if self.held.watched else None
        unsettled = 0
        for reader in self.readers:
            if released:
                reader.add(released)
            unsettled += not reader.settle()
        return not unsettled

    def is_still_full(self) -> bool:
        """Release completed computes, and return whether the maximum number is still unfinished."""
        self.full = None
        for reader in self.readers:
            if reader.is_full:
                self.release_completed(reader)
        return any(reader.is_full for reader in self.readers)

    def call_when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call a function, from another thread, when the oldest unfinished compute may be finished."""
        assert self.full is not None
        stream = self.full.fences.stream.stream
        gpu.when_done(stream, lambda error: callback(), event=self.full.oldest_event())

    @property
    def frames_in_flight(self) -> int:
        """The number of frames that are kept because a stream may still read them."""
        return max((reader.frames_kept for reader in self.readers), default=0)

    def clear(self) -> None:
        """Release all frames but those that the program holds, because the streams have finished."""
        for reader in self.readers:
            reader.clear()

    def release_completed(self, reader: InFlight) -> None:
        """Release the frames that a stream no longer reads, and record whether too many computes are unfinished."""
        reader.release_completed()
        if reader.is_full:
            self.full = reader
            self._node.has_extra_work = True  # for the engine to see


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
    frames, numbers
        The frames that each compute received, oldest first, and the number of the fence that releases them.
    release_at
        The number of unfinished computes at which to release completed ones again.
    """

    __slots__ = ("_limit", "fences", "frames", "numbers", "release_at")

    def __init__(self, fences: Fences, limit: int) -> None:
        self.fences = fences
        self.release_at = min(_STRIDE, limit)
        self._limit = limit
        self.frames: list[list[Any] | None] = []
        self.numbers: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of computes is unfinished."""
        return len(self.numbers) >= self._limit

    @property
    def frames_kept(self) -> int:
        """The number of frames that are kept alive."""
        return sum(len(frames) for frames in self.frames if frames is not None)

    def add(self, frames: list[Any] | None) -> int:
        """Keep frames alive until the next fence is complete, and return the number of unfinished computes.

        The next `emit` inserts that fence. If none was inserted since the last call, one is inserted now; for an
        operator that emits nothing, this happens at every other call.
        """
        numbers = self.numbers
        number = self.fences.last + 1
        if numbers and numbers[-1] == number:
            self.fences.insert()
        numbers.append(number)
        self.frames.append(frames)
        return len(numbers)

    def release_completed(self) -> None:
        """Release the frames that the stream no longer reads."""
        fences, numbers = self.fences, self.numbers
        if self.is_full and numbers[0] > fences.last:
            fences.insert()  # otherwise no fence would show that the oldest compute is complete
        if numbers:
            fences.update(numbers[0])
            completed = bisect_right(numbers, fences.completed)
            del numbers[:completed], self.frames[:completed]
        self.release_at = min(len(numbers) + _STRIDE, self._limit)

    def settle(self) -> bool:
        """Release what the stream no longer reads, where no compute follows; return whether nothing is left."""
        if self.numbers and self.numbers[-1] > self.fences.last:
            self.fences.insert()
        self.release_completed()
        return not self.numbers

    def oldest_event(self) -> Any:
        """Return the event of the fence that the oldest unfinished compute waits for; call it when full."""
        return self.fences.event(self.numbers[0])

    def clear(self) -> None:
        """Release everything, because the device has finished."""
        self.numbers.clear()
        self.frames.clear()


class ReaderStreams:
    """The streams whose work may read what an operator received, as the memory that it received refers to them.

    It refers to nothing else of the run. The garbage collector does not see what a NumPy array refers to. So an
    application that keeps a frame as such an array would never be collected if the frame referred to it.
    """

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: list[ManagedStream] = []

    def add(self, stream: ManagedStream) -> None:
        """Add a stream."""
        self._streams.append(stream)

    def streams(self) -> tuple[ManagedStream, ...]:
        """Return the streams; may be called from any thread."""
        return tuple(self._streams)
