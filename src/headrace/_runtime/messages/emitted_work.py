"""The work behind tensors that an operator emitted, as the tensors present it to other libraries.

A receiver that called `receive_cuda_stream` is ordered after that work, so a library that works on the same stream
needs no further order. A library with its own streams, such as JAX, names one of them when it takes a tensor. That
stream is then ordered after the work, and after the receivers' work on the tensor since (`EmittedWork`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.managed_stream import is_named
from headrace.tensor import stream_of

if TYPE_CHECKING:
    from headrace._runtime.messages.envelope import Envelope
    from headrace._runtime.messages.fences import Fences
    from headrace._runtime.messages.managed_stream import ManagedStream


class EmittedWork:
    """The work on a stream up to the fence that `emit` inserts after it has converted the data.

    The sender fills it in before the message is queued. Several receivers of a message share it, and add their
    streams.
    """

    __slots__ = (
        "_event",
        "_fences",
        "_number",
        "_ordered_streams",
        "_stream",
    )

    def __init__(self, stream: ManagedStream) -> None:
        self._stream = stream
        self._fences: Fences | None = None
        self._number = 0
        self._event: Any = None
        # The streams of the receivers that were ordered after the fence.
        self._ordered_streams: list[ManagedStream] = []

    def attach(self, message: Envelope) -> None:
        """Copy the fences of a message; keeping the message itself would keep its tensors alive."""
        self._fences, self._number, self._event = message.fences, message.number, message.event
        message.work = self

    def note_ordered(self, stream: ManagedStream) -> None:
        """Record that a stream of the receiver has been ordered after the fences."""
        if stream not in self._ordered_streams:
            self._ordered_streams.append(stream)

    # The interface for tensors (`headrace.tensor`).

    @property
    def stream_handle(self) -> int:
        """The sender's stream."""
        return int(self._stream.handle)

    def order(self, stream: int) -> None:
        """Make a stream wait for the work, unless it already does."""
        if self._fences is not None and self._fences.is_over:
            return
        ordered = tuple(self._ordered_streams)
        for other in ordered:
            if is_named(other, stream):
                return
        consumer = stream_of(stream)
        # Use events of the stream's own device: the consumer's device may differ.
        is_complete = self._fences is not None and self._number <= self._fences.completed
        if not is_complete and not is_named(self._stream, stream):
            consumer.wait(self._stream.now() if self._event is None else self._event)
        for other in ordered:
            consumer.wait(other.now())
