"""ManagedStream: a stream that penstock manages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import gpu

__all__ = ["ManagedStream", "create_event"]


class ManagedStream:
    """A stream of a pool: its handle, its device, and what makes an event for it.

    Parameters
    ----------
    stream
        The device's own stream object.
    device_id
        The number of its device.
    create_event
        Makes one more event of that device.

    Attributes
    ----------
    record, wait
        Record an event of its device on it, and have it wait for an event of any device.
    """

    __slots__ = ("create_event", "device_id", "handle", "record", "stream", "wait")

    def __init__(self, stream: Any, device_id: int, create_event: Callable[[], Any]) -> None:
        self.stream = stream
        self.device_id = device_id
        self.handle = gpu.StreamHandle(stream)
        self.wait = stream.wait
        self.record = stream.record
        self.create_event = create_event

    def now(self) -> Any:
        """Return a new event, recorded after all that was submitted so far."""
        event = self.create_event()
        self.record(event)
        return event


def create_event(device_id: int) -> Any:
    """Make an event of a device to order streams by, and leave the thread's current device as it is."""
    with gpu.on_device(device_id):  # an event is made in a context that is current on this thread
        # A plain one: few are waited for, and `when_done` sleeps on an event of its own.
        return gpu.Device(device_id).create_event()
