"""The work behind tensors that an operator emitted, as the tensors themselves tell it to other libraries.

A receiver that called `receive_cuda_stream` is ordered after that work, and what it exports to a library that works
on the same stream needs nothing more. A library with streams of its own, as JAX has, names one of them when it
takes a tensor; that stream is then ordered after the work, and after what receivers have done to the tensor since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._runtime.streams.default_stream import is_named
from penstock.tensor import stream_of

if TYPE_CHECKING:
    from penstock._runtime.messages.message import Message
    from penstock._runtime.streams.fences import Trail
    from penstock._runtime.streams.managed_stream import ManagedStream

__all__ = ["Emitted"]


class Emitted:
    """The work on a stream up to the mark that an `emit` leaves, once all that it sends has been converted.

    Where there are several receivers, each has one of its own: that one is ordered says nothing of the others.
    """

    __slots__ = ("_event", "_followers", "_is_followed", "_number", "_stream", "_trail", "is_ordered")

    def __init__(self, stream: ManagedStream) -> None:
        self._stream = stream
        self._trail: Trail | None = None
        self._number = 0
        self._event: Any = None
        # Whether this receiver was ordered after the mark, and the streams of all receivers that were.
        self._is_followed = False
        self._followers: list[ManagedStream] = []
        # Whether a stream was ordered after it through the tensors; for the checker.
        self.is_ordered = False

    def mark(self, message: Message) -> None:
        """Take the mark of the message that carries the tensors, not the message, which keeps them."""
        self._trail, self._number, self._event = message.trail, message.number, message.event
        message.emitted = self

    def apart(self) -> Emitted:
        """Give the same work, as it is for one of several receivers."""
        other = Emitted(self._stream)
        other._followers = self._followers
        return other

    def follow(self, stream: ManagedStream) -> None:
        """Take note that a receiver has ordered its stream after the mark."""
        self._is_followed = True
        self._followers.append(stream)

    @property
    def stream_handle(self) -> int:
        """The sender's stream."""
        return int(self._stream.handle)

    @property
    def stream(self) -> int | None:
        """The sender's stream, until the receiver has been ordered after the mark or the device has passed it."""
        return None if self._is_followed or self._is_passed else self._stream.handle

    @property
    def _is_passed(self) -> bool:
        return self._trail is not None and self._number <= self._trail.passed

    def order(self, stream: int) -> None:
        """Have a stream wait for the work, unless it does already."""
        self.is_ordered = True
        if self._trail is not None and self._trail.is_over:
            return
        followers = tuple(self._followers)
        if any(is_named(follower, stream) for follower in followers):
            return
        consumer = stream_of(stream)
        # By events of the stream's own device: the consumer's may be another.
        if not is_named(self._stream, stream) and not self._is_passed:
            consumer.wait(self._stream.now() if self._event is None else self._event)
        for follower in followers:
            consumer.wait(follower.now())
