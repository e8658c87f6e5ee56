"""The streams of a program outside of a run, which puts frames into the run and takes frames out of it.

Array code of a thread runs on the stream that is current there for its library. A frame that is put comes after the
work on those streams; before a frame is taken out, those streams are ordered after the work behind it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace import gpu
from headrace._runtime import ManagedStream, create_event, default_stream_of, is_default
from headrace.gpu import array_libraries
from headrace.gpu.backend import active, is_chosen
from headrace.gpu.current import entered_stream


class CallerStream:
    """A stream of the program.

    Attributes
    ----------
    handle
        Its handle.
    """

    __slots__ = ("_managed", "_state", "handle")

    def __init__(self, stream: Any, state: Any = None) -> None:
        self._state = state  # keeps the library's object alive while the run may insert events on its stream
        self.handle: Any = stream if isinstance(stream, int) else gpu.StreamHandle(stream)
        if is_default(self.handle):
            self._managed = default_stream_of(gpu.Device().device_id)
            self.handle = self._managed.handle
        else:
            handle: Any = self.handle
            found = handle.stream if isinstance(handle, gpu.StreamHandle) else gpu.Stream.from_handle(handle)
            device_id = found.device.device_id
            self._managed = ManagedStream(found, device_id, partial(create_event, device_id))

    def record(self) -> Any:
        """Return an event after the work that has been submitted so far."""
        return self._managed.now()

    def wait(self, event: Any) -> None:
        """Order later work on the stream after an event."""
        self._managed.wait(event)

    def synchronize(self) -> None:
        """Wait until the stream has finished all submitted work."""
        with gpu.on_device(self._managed.device_id):
            self._managed.stream.sync()


def caller_streams(given: Any = None) -> list[CallerStream]:
    """Return the stream that the program named or, if none, the streams that are current on this thread."""
    if given is not None:
        return [CallerStream(given)]
    found: dict[int, CallerStream] = {}
    here = entered_stream()
    if here is not None:
        found[int(here)] = CallerStream(here)
    # Nothing is imported, and no device is chosen, to look.
    libraries = array_libraries.with_streams(not is_chosen() or active().runs_cuda)
    if libraries and active().has_devices:
        device_id = gpu.Device().device_id
        for library in libraries:
            if library.current_stream is not None:
                handle = library.current_stream(device_id)
                if handle not in found:
                    found[handle] = CallerStream(handle, library.read_stream())
    return list(found.values())
