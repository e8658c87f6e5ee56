"""The work that produces a tensor's data, and how other streams are ordered after it.

Ordering happens on the device; the host never waits.
"""

from __future__ import annotations

from typing import Any, Protocol

from headrace import gpu
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE


class PendingWork(Protocol):
    """The work that produces a tensor's data.

    Of a received message, the receiver's stream is ordered after it; of a `StreamWork`, a consumer orders its own.
    """

    @property
    def stream_handle(self) -> int:
        """The handle of the stream that the work runs on."""

    def order(self, stream: int) -> None:
        """Order a stream after the work."""


class StreamWork:
    """All work that has been submitted to a stream at the time when another stream is ordered after it."""

    __slots__ = ("_stream", "stream_handle")

    def __init__(self, stream: int) -> None:
        self._stream = stream  # a StreamHandle keeps its stream alive
        self.stream_handle = int(stream) or LEGACY_DEFAULT_HANDLE  # the protocols have no stream 0

    def order(self, stream: int) -> None:
        """Order a stream after the work that has been submitted to this one."""
        if stream != self.stream_handle:
            stream_of(stream).wait(stream_of(self._stream))


def stream_of(handle: int) -> Any:
    """Return the device's stream object for a handle of the array protocols."""
    if isinstance(handle, gpu.StreamHandle):
        return handle.stream
    if handle in (0, LEGACY_DEFAULT_HANDLE):
        return gpu.LEGACY_DEFAULT_STREAM
    return gpu.Stream.from_handle(int(handle))
