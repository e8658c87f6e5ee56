"""The default streams, for operators that have no stream and received none.

CUDA has one handle for the default streams of all devices: it means the default stream of the current device. So
the handle alone does not identify the stream. The handles here record their device. A library uses the default
stream of the current device, so the device is made current whenever a handle is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from headrace import gpu
from headrace._runtime.messages.managed_stream import LEGACY, NULL, ManagedStream, create_event
from headrace.gpu import array_libraries
from headrace.gpu.backend import Backend, active


class DefaultStreamHandle(gpu.StreamHandle):
    """The default stream of a device.

    It may be created before a device is chosen, so it looks up its stream on first use.

    Attributes
    ----------
    device_id
        The number of the device; None for the current device.
    """

    is_default = True

    def __new__(cls, device_id: int | None = None, value: int = NULL) -> DefaultStreamHandle:
        """Return the handle of a device's default stream, with one of CUDA's two values."""
        self = int.__new__(cls, value)
        self.device_id = device_id
        return self

    @property
    def stream(self) -> Any:
        """The stream of `headrace.gpu`: the default stream of the current device."""
        return gpu.LEGACY_DEFAULT_STREAM

    @property
    def device(self) -> Any:
        """The current device."""
        return gpu.LEGACY_DEFAULT_STREAM.device

    @property
    def follows_default(self) -> bool:
        """True: it is the default stream."""
        return True

    @property
    def backend(self) -> Backend:  # type: ignore[override]
        """The backend that the process uses."""
        return active()

    def of_library(self, name: str) -> Any:
        """Return a library's object for the default stream, which may depend on the current device."""
        return array_libraries.make_stream(name, self)

    def __repr__(self) -> str:
        where = "" if self.device_id is None else f" of device {self.device_id}"
        return f"StreamHandle(default{where})"


# The placeholder for a stream if there is no device.
DEFAULT_STREAM = DefaultStreamHandle()


@cache
def default_handle(device_id: int) -> DefaultStreamHandle:
    """Return the handle for an operator without its own stream; it is 0, so it is false."""
    return DefaultStreamHandle(device_id)


def default_stream_of(device_id: int) -> ManagedStream:
    """Return a device's default stream as a managed stream that works whichever device is current."""
    stream = gpu.LEGACY_DEFAULT_STREAM
    managed = ManagedStream(stream, device_id, partial(create_event, device_id))
    managed.handle = DefaultStreamHandle(device_id, LEGACY)
    managed.record = _there(device_id, stream.record)
    managed.wait = _there(device_id, stream.wait)
    return managed


def _there(device_id: int, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that makes a call while the device is current."""

    def call_there(event: Any) -> Any:
        with gpu.on_device(device_id):
            return call(event)

    return call_there
