"""When a tensor may be read: the work behind it, and how another stream is ordered after that work.

All of it happens on the device; the host waits for nothing.
"""

from typing import Any, Protocol

from penstock import gpu

LEGACY_DEFAULT, PER_THREAD_DEFAULT = 1, 2  # how the protocols name the default streams


class Ready(Protocol):
    """The work behind a tensor."""

    @property
    def stream(self) -> int | None:
        """The stream to be waited for by a consumer that does not say where it works; None if there is none."""

    def order(self, stream: int) -> bool:
        """Have a stream wait for the work; return whether there was any to wait for."""

    def renew(self) -> None:
        """Count as part of the work what its stream has been ordered after since."""


class OnStream:
    """Work on a stream: all that has been submitted to it when someone asks."""

    __slots__ = ("stream",)

    def __init__(self, stream: int) -> None:
        # The protocols say 1 for the legacy default stream; 0 is not a name for any.
        self.stream = int(stream) or LEGACY_DEFAULT

    def order(self, stream: int) -> bool:
        """Have a stream wait for what has been submitted to this one; return whether it is another."""
        if stream == self.stream:
            return False
        stream_of(stream).wait(stream_of(self.stream))
        return True

    def renew(self) -> None:
        """Do nothing: it is all that has been submitted."""


def stream_of(handle: int) -> Any:
    """Return the device's stream object for a handle as the protocols give it."""
    if isinstance(handle, gpu.StreamHandle):
        return handle.stream
    if handle in (0, LEGACY_DEFAULT):
        return gpu.LEGACY_DEFAULT_STREAM
    return gpu.Stream.from_handle(int(handle))
