"""ManagedStream: a stream that penstock manages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock import gpu

__all__ = ["ManagedStream", "create_event", "default_stream_of"]


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
    """

    __slots__ = ("create_event", "device_id", "handle", "record", "stream", "wait")

    def __init__(self, stream: Any, device_id: int, create_event: Callable[[], Any]) -> None:
        self.stream = stream
        self.device_id = device_id
        self.handle = gpu.StreamHandle(stream)
        self.wait = stream.wait
        self.record = stream.record
        self.create_event = create_event


def default_stream_of(device_id: int) -> ManagedStream:
    """Give a device's default stream as a managed one."""
    return ManagedStream(gpu.LEGACY_DEFAULT_STREAM, device_id, partial(create_event, device_id))


def create_event(device_id: int) -> Any:
    """Make an event of a device to order streams by."""
    device = gpu.Device(device_id)
    device.set_current()  # an event is made in a context that is current on this thread
    # A plain one: few are waited for, and `when_done` sleeps on an event of its own.
    return device.create_event()
