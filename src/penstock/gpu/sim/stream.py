"""Streams of a simulated device."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.event import Event, EventOptions
from penstock.gpu.sim.lanes import Lane, Wait
from penstock.gpu.sim.machine import DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, ContextState, current_machine
from penstock.gpu.sim.options import options_of
from penstock.gpu.sim.resources import DeviceResources

if TYPE_CHECKING:
    from penstock.gpu.sim.context import Context
    from penstock.gpu.sim.device import Device


@dataclass
class StreamOptions:
    """A lower ``priority`` goes first; a ``nonblocking`` stream is not ordered with the default one."""

    nonblocking: bool = True
    priority: int | None = None


class SupportsStream(Protocol):
    """An object of any library that stands for a stream."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the stream's handle."""


class Stream:
    """A queue of work that is done in order."""

    __slots__ = ("_closed", "_queue")
    _closed: bool
    _queue: Lane

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "Stream objects cannot be made directly; use Device.create_stream, Context.create_stream "
            "or Stream.from_handle"
        )

    @classmethod
    def _of(cls, lane: Lane) -> "Stream":
        self = cls.__new__(cls)
        self._queue = lane
        self._closed = False
        return self

    @classmethod
    def _create(cls, context: ContextState, options: "StreamOptions | dict[str, Any] | None") -> "Stream":
        chosen = options_of(StreamOptions, options, "Stream")
        if context.is_green and not chosen.nonblocking:
            raise ValueError(
                "streams of a green context must be non-blocking; leave StreamOptions.nonblocking at True"
            )
        context.device.machine.require_current()
        highest = context.device.profile.highest_priority
        priority = 0 if chosen.priority is None else chosen.priority
        if not highest <= priority <= 0:
            raise ValueError(f"priority={priority} is out of range [{highest}, 0]")
        with context.device.machine.timeline.lock:
            return cls._of(context.create_lane(priority=priority, nonblocking=bool(chosen.nonblocking)))

    @staticmethod
    def from_handle(handle: int) -> "Stream":
        """Return the stream of that handle; 0 and 1 stand for the default stream, and so does 2, a thread's own."""
        if int(handle) in (0, DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM):
            return LEGACY_DEFAULT_STREAM
        lane = current_machine().lanes.get(int(handle))
        if lane is None:
            raise ValueError(f"no stream of the simulated machine has the handle {int(handle):#x}")
        return Stream._of(lane)

    @property
    def _lane(self) -> Lane:
        if self._closed:
            raise RuntimeError("this stream has been closed")
        return self._queue

    @property
    def handle(self) -> int:
        """Its number; 0 when closed."""
        return 0 if self._closed else self._lane.handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    @property
    def is_nonblocking(self) -> bool:
        """Whether it is not ordered with the default stream."""
        return self._lane.nonblocking

    @property
    def priority(self) -> int:
        """Lower goes first."""
        return self._lane.priority

    @property
    def device(self) -> "Device":
        """The device it belongs to."""
        from penstock.gpu.sim.device import Device  # the device makes streams

        return Device._of(self._lane.context.device)

    @property
    def context(self) -> "Context":
        """The context it belongs to."""
        from penstock.gpu.sim.context import Context  # the context makes streams

        return Context._of(self._lane.context)

    @property
    def resources(self) -> DeviceResources:
        """What its context may use of the device."""
        return DeviceResources._of(self._lane.context)

    def record(
        self, event: Event | None = None, options: "EventOptions | dict[str, Any] | None" = None
    ) -> Event:
        """Record an event (a new one by default) after what was submitted so far."""
        lane = self._lane
        if event is None:
            lane.context.device.machine.require_current()
            event = Event._of(lane.context, options)
        elif not isinstance(event, Event):
            raise TypeError(f"record takes an Event, got {type(event).__name__}")
        event._check()
        if event._context.device is not lane.context.device:
            raise CUDAError(
                f"CUDA_ERROR_INVALID_HANDLE: an event of device {event._context.device.index} cannot be recorded "
                f"on a stream of device {lane.context.device.index}; a stream may wait for it there"
            )
        with lane.timeline.lock:
            event._mark = lane.record()
        return event

    def wait(self, event_or_stream: "Event | Stream | SupportsStream") -> None:
        """Have what is submitted from now on wait for an event, or for what a stream holds now."""
        lane = self._lane
        if isinstance(event_or_stream, Event):
            event_or_stream._check()
            mark = event_or_stream._mark
            if mark is not None:
                with lane.timeline.lock:
                    lane.submit(Wait(mark))
            return
        try:
            other = stream_of(event_or_stream)._lane
        except TypeError as error:
            raise ValueError(
                "only an Event, a Stream or an object with __cuda_stream__ can be waited for, "
                f"got {type(event_or_stream).__name__}"
            ) from error
        with lane.timeline.lock:
            lane.submit(Wait(other.record()))

    def sync(self) -> None:
        """Block until everything submitted so far has ended."""
        lane = self._lane
        lane.context.device.machine.check()
        with lane.timeline.lock:
            if lane.idle:
                return
            mark = lane.mark()
        lane.timeline.wait(lambda: mark.passed)
        lane.context.device.machine.check()

    def close(self) -> None:
        """Give the stream up; what was submitted is still done."""
        self._closed = True

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._lane.handle)

    def __eq__(self, other: object) -> bool:
        return self.handle == other.handle if isinstance(other, Stream) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"context={self._lane.context.handle:#x}"
        return f"<Stream handle={self.handle:#x} {where}>"


class _DefaultStream(Stream):
    """The default stream of whichever context is current."""

    __slots__ = ()

    @property
    def _lane(self) -> Lane:
        context = current_machine().current_context
        return (context or current_machine().devices[0].primary).default_lane


LEGACY_DEFAULT_STREAM = _DefaultStream.__new__(_DefaultStream)
LEGACY_DEFAULT_STREAM._closed = False


def stream_of(obj: "Stream | SupportsStream") -> Stream:
    """Return the stream that an object stands for."""
    if isinstance(obj, Stream):
        return obj
    protocol = getattr(obj, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(f"{type(obj).__name__} object does not have a '__cuda_stream__' attribute")
    version, handle = protocol() if callable(protocol) else protocol
    if version != 0:
        raise TypeError(f"version {version} of the __cuda_stream__ protocol is not known, only 0")
    return Stream.from_handle(handle)
