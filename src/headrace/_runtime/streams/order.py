"""Order: the work that an operator's streams are ordered after, and the work still to be ordered.

A message carries a fence, the point on a stream at which its data is ready. When an operator requests its stream,
the stream is ordered after the fences of the messages it received. Fences that were not ordered this way are
recorded here, so that the operator's messages still come after that work: a stream that it emits on waits for them,
and a message that is emitted without a stream carries the fences itself. This includes fences received in an
earlier compute, since the operator may still hold that data.

The fences of one timeline complete in order, so the latest fence of each timeline is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime.messages.fences import Fences
from headrace._runtime.messages.ports import messages_in

if TYPE_CHECKING:
    from headrace._runtime.messages.envelope import Envelope, Fence
    from headrace._runtime.messages.managed_stream import ManagedStream


class Pending:
    """The latest fence received from a timeline, and the streams that have been ordered after it."""

    __slots__ = ("event", "number", "ordered")

    def __init__(self, number: int, event: Any) -> None:
        self.number = number
        self.event = event
        self.ordered: list[ManagedStream] = []


class Order:
    """The fences that an operator inserts, and the received fences that it was not ordered after.

    All fields are changed in the operator's computes or between two computes, and never concurrently.

    Attributes
    ----------
    pending
        The received fences that some stream of the operator may not be ordered after yet.
    has_received
        Whether a message with a fence was ever received and recorded here.
    """

    __slots__ = ("_by_hand", "_fences", "_latest", "_turn", "has_received", "pending")

    def __init__(self) -> None:
        # The operator's own fences, on every stream that it uses or emits on.
        self._fences: dict[ManagedStream, Fences] = {}
        self.pending: dict[Fences, Pending] = {}
        self.has_received = False
        # The timeline of the last received message, and the compute that received it.
        self._latest: Fences | None = None
        self._turn: int | None = None
        # Pairs of streams, the first ordered after the second by the program, and the compute that ordered them.
        self._by_hand: dict[tuple[ManagedStream, ManagedStream], int] = {}

    # The operator's own fences.

    def fences_on(self, stream: ManagedStream) -> Fences:
        """Return the operator's fences on a stream."""
        found = self._fences.get(stream)
        if found is None:
            found = self._fences[stream] = Fences(stream)
        return found

    def streams(self) -> list[ManagedStream]:
        """Return the streams that the operator has used."""
        return list(self._fences)

    def synchronize(self) -> None:
        """Wait until the operator's streams have finished all submitted work."""
        for managed in list(self._fences):
            with gpu.on_device(managed.device_id):
                managed.stream.sync()

    def close(self) -> None:
        """Mark all of the operator's fences as complete, because the device has finished."""
        for fences in self._fences.values():
            fences.close()

    # The fences of received messages.

    def add(self, fences: Fences, number: int, event: Any) -> None:
        """Record a fence, unless a later one of its timeline is recorded."""
        known = self.pending.get(fences)
        if known is None or known.number < number:
            self.pending[fences] = Pending(number, event)

    def add_message(self, message: Envelope, turn: int) -> None:
        """Record the fences of a received message."""
        self.has_received = True
        fences = message.fences
        if fences is not None:
            self.add(fences, message.number, message.event)
            self._latest, self._turn = fences, turn
        if message.more_fences is not None:
            for other, number, event in message.more_fences:
                self.add(other, number, event)

    def settle(self, stream: ManagedStream, is_only: bool) -> None:
        """Make a stream wait for all pending fences, and clear them if the operator emits on no other stream."""
        for fences, fence in list(self.pending.items()):
            is_ahead = fence.number > fences.completed
            if is_ahead and fences.stream is not stream and stream not in fence.ordered:
                stream.wait(fence.event)
                fence.ordered.append(stream)
            if is_only or not is_ahead:
                del self.pending[fences]

    def note_ordered(self, stream: ManagedStream, others: list[ManagedStream], turn: int) -> None:
        """Record that the program has ordered a stream after all work submitted to other streams."""
        for other in others:
            self._by_hand[stream, other] = turn
        for fences, fence in self.pending.items():
            if fences.stream in others and stream not in fence.ordered:
                fence.ordered.append(stream)

    def is_ordered_by_hand(self, stream: ManagedStream, other: ManagedStream, turn: int) -> bool:
        """Return whether the program has ordered a stream after another in this compute."""
        return self._by_hand.get((stream, other)) == turn

    def pending_fences(self, turn: int) -> list[Fence]:
        """Return the fences that a message without a stream must carry; the last received fence comes last.

        Fences received in this compute are included even if they are complete: the stream that a message carries
        must not depend on the speed of the device.
        """
        latest = self._latest if self._turn == turn else None
        found: list[Fence] = []
        for fences, fence in list(self.pending.items()):
            if fences is latest or fence.number > fences.completed:
                found.append((fences, fence.number, fence.event))
            else:
                del self.pending[fences]
        found.sort(key=lambda fence: fence[0] is latest)
        return found


def wait_for(item: Any, stream: ManagedStream) -> None:
    """Make a stream wait for the work behind a received item, except its own work."""
    # `InputContext.receive` has a copy for a message with one fence.
    for message in messages_in(item):
        for fences, number, event in message.all_fences():
            if fences.stream is not stream and number > fences.completed:
                stream.wait(event)


def note_ordered(item: Any, stream: ManagedStream) -> None:
    """Notify the tensors in a received item that a stream has been ordered after their work."""
    for message in messages_in(item):
        if message.work is not None:
            message.work.note_ordered(stream)
