"""The work behind tensors that an operator emitted, as the tensors themselves tell it to other libraries.

A receiver that called `receive_cuda_stream` is ordered after that work, and what it exports to a library that works
on the same stream needs nothing more. A library with streams of its own, as JAX has, names one of them when it
takes a tensor; that stream is then ordered after the work, and after what receivers have done to the tensor since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.tensor import stream_of

if TYPE_CHECKING:
    from penstock.runtime.managed_stream import Mark

__all__ = ["Emitted"]


class Emitted:
    """The work up to the mark that an `emit` left."""

    __slots__ = ("_mark",)

    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    @property
    def stream(self) -> int | None:
        """The sender's stream, until a receiver has been ordered after it."""
        mark = self._mark
        return None if mark.followers else mark.stream.handle

    def order(self, stream: int) -> None:
        """Have a stream wait for the work, unless it does already."""
        mark = self._mark
        followers = mark.followers
        if any(stream == follower.handle for follower in followers):
            return
        consumer = stream_of(stream)
        if stream != mark.stream.handle:
            consumer.wait(mark.event)
        for follower in followers:
            consumer.wait(follower.stream)
