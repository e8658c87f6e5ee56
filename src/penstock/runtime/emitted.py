"""The work behind tensors that an operator emitted, as the tensors themselves tell it to other libraries.

A receiver that called `receive_cuda_stream` is ordered after that work, and what it exports to a library that works
on the same stream needs nothing more. A library with streams of its own, as JAX has, names one of them when it
takes a tensor; that stream is then ordered after the work, and after what receivers have done to the tensor since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.tensor import stream_of

if TYPE_CHECKING:
    from penstock.runtime.managed_stream import ManagedStream, Mark

__all__ = ["Emitted"]


class Emitted:
    """The work on a stream up to the mark that an `emit` leaves, once everything it sends has been converted."""

    __slots__ = ("_stream", "mark")

    def __init__(self, stream: ManagedStream) -> None:
        self._stream = stream
        self.mark: Mark | None = None

    @property
    def place(self) -> int:
        """The sender's stream."""
        return int(self._stream.handle)

    @property
    def stream(self) -> int | None:
        """The sender's stream, until a receiver has been ordered after the mark."""
        return None if self.mark is not None and self.mark.followers else self._stream.handle

    def order(self, stream: int) -> None:
        """Have a stream wait for the work, unless it does already."""
        mark = self.mark
        followers = () if mark is None else mark.followers
        if stream == self._stream.handle or any(stream == follower.handle for follower in followers):
            return
        consumer = stream_of(stream)
        consumer.wait(self._stream.stream if mark is None else mark.event)
        for follower in followers:
            consumer.wait(follower.stream)
