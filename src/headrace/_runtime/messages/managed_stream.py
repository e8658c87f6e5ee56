"""ManagedStream: a stream that headrace manages, and what names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import gpu
from headrace.core.errors import StreamError

# CUDA's two handles of the default stream of the current device: the null handle and CU_STREAM_LEGACY.
NULL, LEGACY = 0, 1


class ManagedStream:
    """A stream of a pool: its handle, its device, and a function that creates events for it.

    Parameters
    ----------
    stream
        The device's own stream object.
    device_id
        The number of its device.
    create_event
        Creates another event of that device.

    Attributes
    ----------
    record, wait
        Record an event of its device on the stream; make the stream wait for an event of any device.
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
        """Return a new event, recorded after all work submitted so far."""
        event = self.create_event()
        self.record(event)
        return event

    def wait_for(self, event: Any, where: str) -> None:
        """Make the stream wait for an event of any library; `where` names the caller in errors."""
        if hasattr(event, "is_done") or hasattr(
            event, "__cuda_stream__"
        ):  # of cuda.core, or what works like it
            self.wait(event)
            return
        try:
            stream = self.handle.of_library(type(event).__module__.partition(".")[0])
        except (ImportError, NotImplementedError):
            stream = None
        if hasattr(stream, "wait_event"):  # CuPy, PyTorch
            stream.wait_event(event)
        elif stream is not None and hasattr(event, "wait"):  # Numba
            event.wait(stream)
        else:
            raise StreamError(
                f"{where} takes an event of cuda.core, CuPy, PyTorch or Numba, not {event!r:.80}"
            )


def create_event(device_id: int) -> Any:
    """Create an event of a device for ordering streams, without changing the thread's current device."""
    with gpu.on_device(device_id):  # an event is created in the current context of this thread
        # A plain event: the host waits for few of them, and `when_done` sleeps on its own event.
        return gpu.Device(device_id).create_event()


def is_default(stream: Any) -> bool:
    """Return whether a handle means a default stream."""
    return int(stream) in (NULL, LEGACY)


def is_named(managed: ManagedStream, stream: Any) -> bool:
    """Return whether a handle names a managed stream; a plain default handle means the current device's stream."""
    if not is_default(stream):
        return bool(managed.handle == stream)
    return is_default(managed.handle) and managed.device_id == gpu.Device().device_id
