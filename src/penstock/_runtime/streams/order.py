"""Order: the work behind what an operator received that its streams have not been ordered after.

A message carries a mark: the point on a stream behind which the data is there. An operator that asks for its
stream has it ordered after the marks of what it received. What it did not ask for is remembered here, so that
what it emits comes after that work all the same: a stream it emits on is made to wait for it, and a message
that is emitted without a stream carries the marks itself. That holds for what was received in an earlier
compute, too, since it may be held.

Marks of one trail are passed in order, so the latest from each trail stands for all from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock._runtime.messages.message import Mark, Message
    from penstock._runtime.streams.fences import Trail
    from penstock._runtime.streams.managed_stream import ManagedStream

__all__ = ["Order", "Pending"]


class Pending:
    """The latest mark received from a trail, and the streams that have been ordered after it.

    Where `event` is None, the trail is the operator's own, of a stream that must be joined at each emit.
    """

    __slots__ = ("event", "number", "ordered")

    def __init__(self, number: int, event: Any) -> None:
        self.number = number
        self.event = event
        self.ordered: list[ManagedStream] = []


class Order:
    """What an operator received and was not ordered after.

    All of it is changed in the operator's computes, which never run twice at once.
    """

    __slots__ = ("_latest", "_turn", "pending")

    def __init__(self) -> None:
        self.pending: dict[Trail, Pending] = {}
        # The trail of the message that was received last, and in which compute.
        self._latest: Trail | None = None
        self._turn: int | None = None

    def add(self, trail: Trail, number: int, event: Any) -> None:
        """Remember a mark, unless a later one of its trail is known."""
        known = self.pending.get(trail)
        if known is None or known.number < number:
            self.pending[trail] = Pending(number, event)

    def add_message(self, message: Message, turn: int) -> None:
        """Remember the marks of a message that was received."""
        trail = message.trail
        if trail is not None:
            self.add(trail, message.number, message.event)
            self._latest, self._turn = trail, turn
        if message.also is not None:
            for other, number, event in message.also:
                self.add(other, number, event)

    def join(self, trail: Trail) -> None:
        """Have everything that is emitted come after the work on a stream of the operator."""
        self.pending[trail] = Pending(0, None)

    def settle(self, stream: ManagedStream, is_only: bool) -> None:
        """Have a stream wait for all of it; that is the end of it where no other stream is emitted."""
        for trail, mark in list(self.pending.items()):
            if mark.event is None:
                if trail.stream is not stream:
                    stream.wait(trail.mark())
                continue
            is_ahead = mark.number > trail.passed
            if is_ahead and trail.stream is not stream and stream not in mark.ordered:
                stream.wait(mark.event)
                mark.ordered.append(stream)
            if is_only or not is_ahead:
                del self.pending[trail]

    def is_ordered(self, stream: ManagedStream, others: list[ManagedStream]) -> None:
        """Take note that a stream has been ordered after all that was submitted to others."""
        for trail, mark in self.pending.items():
            if mark.event is not None and trail.stream in others and stream not in mark.ordered:
                mark.ordered.append(stream)

    def marks(self, turn: int) -> list[Mark]:
        """Return what a message must carry that is emitted without a stream; what came last is the last.

        What came in this compute is among them even if it is done: which stream a message carries must not depend
        on how quick the device was.
        """
        latest = self._latest if self._turn == turn else None
        found: list[Mark] = []
        for trail, mark in list(self.pending.items()):
            if mark.event is None:
                event = trail.mark()
                found.append((trail, trail.marked, event))
            elif trail is latest or mark.number > trail.passed:
                found.append((trail, mark.number, mark.event))
            else:
                del self.pending[trail]
        found.sort(key=lambda mark: mark[0] is latest)
        return found
