"""When a tensor may be read: the work behind it, and how another stream is ordered after that work.

All of it happens on the device; the host waits for nothing.
"""

from typing import Any, Protocol

from penstock import gpu

LEGACY_DEFAULT = 1  # how the protocols name the default stream


class Ready(Protocol):
    """The work behind a tensor."""

    @property
    def place(self) -> int:
        """The stream on which it is done."""

    @property
    def stream(self) -> int | None:
        """The stream to be waited for by a consumer that does not say where it works; None if there is none."""

    def order(self, stream: int) -> None:
        """Have a stream wait for the work."""


class OnStream:
    """Work on a stream: all that has been submitted to it when someone asks."""

    __slots__ = ("_handle", "place")

    def __init__(self, stream: int) -> None:
        self._handle = stream  # one of penstock's keeps its stream alive
        self.place = int(stream) or LEGACY_DEFAULT  # the protocols have no stream 0

    @property
    def stream(self) -> int:
        """The same."""
        return self.place

    def order(self, stream: int) -> None:
        """Have a stream wait for what has been submitted to this one."""
        if stream != self.place:
            stream_of(stream).wait(stream_of(self._handle))


def stream_of(handle: int) -> Any:
    """Return the device's stream object for a handle as the protocols give it."""
    if isinstance(handle, gpu.StreamHandle):
        return handle.stream
    if handle in (0, LEGACY_DEFAULT):
        return gpu.LEGACY_DEFAULT_STREAM
    return gpu.Stream.from_handle(int(handle))
