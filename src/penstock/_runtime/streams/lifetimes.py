"""Lifetimes: how long what an operator received stays alive, and how far the host may run ahead of the device.

What an operator received stays until the program lets go of it and every stream that may read it has completed a
fence that comes after that (`keeper`, `in_flight`).

An operator with as many unfinished computes as `Operator.max_in_flight` allows is not ready until the device has
finished the oldest. Then, and only then, a callback is requested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import gpu
from penstock._runtime.streams.in_flight import InFlight
from penstock._runtime.streams.keeper import Keeper

if TYPE_CHECKING:
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.fences import Fences
    from penstock._runtime.streams.managed_stream import ManagedStream
    from penstock._runtime.streams.run_streams import RunStreams

__all__ = ["Lifetimes"]


class Lifetimes:
    """What one operator received, for as long as its streams may read it.

    All of it is changed in the operator's computes, or between two of them, which never happens twice at once.

    Attributes
    ----------
    keeper
        What was received, and what of it the program still holds.
    readers
        The unfinished computes on each stream whose work may read what the operator receives.
    full
        A stream with as many unfinished computes as there may be; the engine throttles the operator for it.
    """

    __slots__ = ("_limit", "_node", "full", "keeper", "readers")

    def __init__(self, run: RunStreams, node: Node) -> None:
        self._node = node
        self.keeper = Keeper(run.watch, self)
        self.readers: list[InFlight] = []
        self.full: InFlight | None = None
        limit = node.operator.max_in_flight
        self._limit = run.fragment.max_in_flight if limit is None else limit
        if self._limit < 1:
            raise ValueError(f"operator {node.name!r}: max_in_flight must be at least 1, not {self._limit}")

    def add_reader(self, fences: Fences) -> None:
        """Keep what is received from now on until a stream has completed its work, too."""
        self.readers.append(InFlight(fences, self._limit))

    def is_read_on(self, fences: Fences) -> bool:
        """Return whether what is received is kept until a stream has completed its work."""
        for reader in self.readers:  # noqa: SIM110 (a generator costs four times as much)
            if reader.fences is fences:
                return True
        return False

    def streams(self) -> list[ManagedStream]:
        """Return the streams whose work may read what the operator received; may be called from any thread."""
        return [reader.fences.stream for reader in tuple(self.readers)]

    def end_compute(self) -> None:
        """Keep what the compute received and let go of until the streams have completed its work."""
        # `NodeStreams._watched_compute` has a copy.
        keeper = self.keeper
        released = keeper.end_compute() if keeper.received or keeper.watched else None
        for reader in self.readers:
            if reader.add(released) >= reader.release_at:
                self.release_completed(reader)

    def is_still_full(self) -> bool:
        """Release what is complete, and return whether there still are as many unfinished computes as may be."""
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
        """Release what no stream reads any more: the streams are done. What the program holds is still watched."""
        for reader in self.readers:
            reader.clear()

    def release_completed(self, reader: InFlight) -> None:
        """Release what a stream does not read any more, and note where too many computes are unfinished."""
        reader.release_completed()
        if reader.is_full:
            self.full = reader
            self._node.has_extra_work = True  # for the engine to see
