"""Lifetimes: how long received frames stay alive, and how far the host may run ahead of the device.

A received frame stays alive until the program has released it and every stream that may read it has completed a
fence after that (`held_frames`, `in_flight`).

An operator with `Operator.max_in_flight` unfinished computes is not ready until the device has finished the oldest.
Only in this case is a callback requested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace import gpu
from headrace._runtime.streams.held_frames import HeldFrames
from headrace._runtime.streams.in_flight import InFlight
from headrace.core.whole_numbers import whole_number

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import Fences
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace._runtime.streams.running_operator import RunningOperator

__all__ = ["Lifetimes"]


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
        given = run.fragment.max_in_flight if limit is None else limit
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
        released = held.end_compute() if held.received or held.watched else None
        for reader in self.readers:
            if reader.add(released) >= reader.release_at:
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
        return max((reader.frames for reader in self.readers), default=0)

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
