"""A stream that penstock manages, and the marks it leaves on it.

A mark is an event recorded at one moment, and stands for the work submitted until then. Events are reused:
when the last holder of a mark lets go of it (the message was taken by its last receiver, or dropped, or the
run ended) its event goes back to the stream it was made for. Python's own reference counts know when that
is, on every path; no code has to remember. Recording an event again does not disturb a stream that was told
to wait for it before, so a mark may go as soon as the wait has been submitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock import gpu

__all__ = ["ManagedStream", "Mark", "create_event", "default_stream_of"]


class Mark:
    """A point on a stream.

    Attributes
    ----------
    stream, event
        Where it is.
    kept
        What must live until it is passed, if it is the end of computes: what they received.
    computes
        Of how many computes it is the end.
    followers
        The streams that were ordered after it.
    """

    __slots__ = ("_spare", "computes", "event", "followers", "kept", "stream")

    def __init__(self, stream: ManagedStream, event: Any, spare: deque[Any]) -> None:
        self.stream = stream
        self.event = event
        self.kept: Any = None
        self.computes = 0
        self.followers: tuple[ManagedStream, ...] = ()
        self._spare = spare

    def __del__(self) -> None:
        self._spare.append(self.event)


class ManagedStream:
    """A stream of a pool: its handle, its device, and spare events for marks.

    Parameters
    ----------
    stream
        The device's own stream object.
    device_id
        The number of its device.
    create_event
        Makes one more event of that device.
    """

    __slots__ = ("create_event", "device_id", "handle", "record", "spare", "stream", "wait")

    def __init__(self, stream: Any, device_id: int, create_event: Callable[[], Any]) -> None:
        self.stream = stream
        self.device_id = device_id
        self.handle = gpu.StreamHandle(stream)
        self.wait = stream.wait
        self.record = stream.record
        self.create_event = create_event
        self.spare: deque[Any] = deque()  # events that are free to be recorded

    def mark(self) -> Mark:
        """Leave a mark after what was submitted so far."""
        spare = self.spare
        event = spare.pop() if spare else self.create_event()
        self.record(event)
        return Mark(self, event, spare)


def default_stream_of(device_id: int) -> ManagedStream:
    """Give a device's default stream as a managed one."""
    return ManagedStream(gpu.LEGACY_DEFAULT_STREAM, device_id, partial(create_event, device_id))


def create_event(device_id: int) -> Any:
    """Make an event of a device to order streams by."""
    device = gpu.Device(device_id)
    device.set_current()  # an event is made in a context that is current on this thread
    # A plain one: few are waited for, and `when_done` sleeps on an event of its own.
    return device.create_event()
