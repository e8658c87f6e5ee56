"""Streams and events of a simulated device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.capture import CapturePoint, captured_event, refuse_sync, refuse_unsafe, wait_for_point
from headrace.gpu.sim.machine import ContextState, current_machine
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, options_of
from headrace.gpu.sim.operations import Fence, StreamQueue, WaitForFence
from headrace.gpu.sim.resources import DeviceResources
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE as LEGACY
from headrace.gpu.stream_handle import PER_THREAD_DEFAULT_HANDLE as PER_THREAD
from headrace.gpu.stream_handle import StreamHandle, SupportsStream

if TYPE_CHECKING:
    from headrace.gpu.sim.device import Context, Device
    from headrace.gpu.sim.graph import GraphBuilder


@dataclass
class StreamOptions:
    """The options of a stream.

    Attributes
    ----------
    nonblocking : bool
        Whether the stream is not ordered with the default stream.
    priority : int, optional
        A lower number means a higher priority; 0 by default.
    """

    nonblocking: bool = True
    priority: int | None = None


class Stream(metaclass=MadeByDriver):
    """A sequence of work that runs in order.

    Attributes
    ----------
    is_closed : bool
        Whether it has been closed.
    """

    __slots__ = ("_own_queue", "is_closed")
    __headrace_device__ = "sim"
    _made_by = "Device.create_stream, Context.create_stream or Stream.from_handle"

    def __init__(self, queue: StreamQueue) -> None:
        self._own_queue = queue
        self.is_closed = False

    @classmethod
    def _on(cls, context: ContextState, options: StreamOptions | dict[str, Any] | None) -> Stream:
        """Create a stream in a context."""
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
            return cls._create(context.create_queue(priority=priority, nonblocking=bool(chosen.nonblocking)))

    @staticmethod
    def from_handle(handle: int) -> Stream:
        """Return the stream with that handle; 0, 1 and 2 are the default stream.

        On a real device 2 is the calling thread's own default stream, which is not simulated.
        """
        if int(handle) in (0, LEGACY, PER_THREAD):
            return LEGACY_DEFAULT_STREAM
        queue = current_machine().stream_queues.get(int(handle))
        if queue is None:
            raise ValueError(f"no stream of the simulated machine has the handle {int(handle):#x}")
        return Stream._create(queue)

    @property
    def _queue(self) -> StreamQueue:
        """The stream's queue; an error if the stream has been closed."""
        if self.is_closed:
            raise RuntimeError("this stream has been closed")
        return self._own_queue

    @property
    def handle(self) -> int:
        """The driver's handle, or 0 if closed."""
        return 0 if self.is_closed else self._queue.handle

    @property
    def is_nonblocking(self) -> bool:
        """Whether it is not ordered with the default stream."""
        return self._queue.nonblocking

    @property
    def priority(self) -> int:
        """The priority; a lower number means a higher priority."""
        return self._queue.priority

    @property
    def device(self) -> Device:
        """The device it belongs to."""
        from headrace.gpu.sim.device import Device  # a cycle: the device creates streams

        return Device._from_state(self._queue.context.device)

    @property
    def context(self) -> Context:
        """The context it belongs to."""
        from headrace.gpu.sim.device import Context  # a cycle: the context creates streams

        return Context._create(self._queue.context)

    @property
    def resources(self) -> DeviceResources:
        """The resources that its context may use."""
        return DeviceResources._create(self._queue.context)

    def record(
        self, event: Event | None = None, options: EventOptions | dict[str, Any] | None = None
    ) -> Event:
        """Record an event (by default a new one) after the work submitted so far; return the event."""
        queue = self._queue
        if event is None:
            queue.context.device.machine.require_current()
            event = Event._create(queue.context, options)
        elif not isinstance(event, Event):
            raise TypeError(f"record takes an Event, got {type(event).__name__}")
        event._check()
        check_device(event._context, queue)
        with queue.timeline.lock:
            _record(queue, event)
        return event

    def wait(self, event_or_stream: Event | Stream | SupportsStream) -> None:
        """Make later work wait for an event, or for the work that another stream holds now.

        An event may belong to another device. A stream must belong to the current device, because waiting for it
        creates an event in the current context.
        """
        queue = self._queue
        if isinstance(event_or_stream, Event):
            event_or_stream._check()
            with queue.timeline.lock:
                _wait(queue, event_or_stream)
            return
        try:
            other = stream_of(event_or_stream)._queue
        except TypeError as error:
            raise ValueError(
                "a stream can wait for an Event, a Stream or an object with __cuda_stream__, "
                f"got {type(event_or_stream).__name__}"
            ) from error
        machine = queue.context.device.machine
        machine.require_current()
        assert machine.current_context is not None
        check_device(machine.current_context, other)
        event = Event._create(machine.current_context)
        with queue.timeline.lock:
            _record(other, event)
            _wait(queue, event)

    def sync(self) -> None:
        """Block until the work submitted so far has ended."""
        queue = self._queue
        queue.context.device.machine.check()
        with queue.timeline.lock:
            refuse_sync(queue)
            if queue.is_idle:
                return
            fence = queue.append_fence()
        queue.timeline.wait(lambda: fence.is_signaled)
        queue.context.device.machine.check()

    def create_graph_builder(self) -> GraphBuilder:
        """Create a builder that records this stream's work as a graph."""
        from headrace.gpu.sim.graph import GraphBuilder  # a cycle: a builder has a stream

        _ = self._queue  # an error if closed
        return GraphBuilder._create(self)

    def close(self) -> None:
        """Close the stream; work that was submitted still runs."""
        self.is_closed = True

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._queue.handle)

    def __eq__(self, other: object) -> bool:
        return self.handle == other.handle if isinstance(other, Stream) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        where = "closed" if self.is_closed else f"context={self._queue.context.handle:#x}"
        return f"<Stream handle={self.handle:#x} {where}>"


class _DefaultStream(Stream):
    """The default stream of the current context, whichever that is at the time of use."""

    __slots__ = ()

    @property
    def _queue(self) -> StreamQueue:
        context = current_machine().current_context
        return (context or current_machine().devices[0].primary_context).default_queue

    def __init__(self) -> None:
        self.is_closed = False


LEGACY_DEFAULT_STREAM: Stream = _DefaultStream._create()


def stream_of(obj: Stream | SupportsStream) -> Stream:
    """Return the stream of an object that supports the CUDA stream protocol."""
    if isinstance(obj, Stream):
        return obj
    if isinstance(obj, StreamHandle):
        return stream_of(obj.stream)
    protocol = getattr(obj, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(f"{type(obj).__name__} object does not have a '__cuda_stream__' attribute")
    version, handle = protocol() if callable(protocol) else protocol
    if version != 0:
        raise TypeError(
            f"unsupported version {version} of the __cuda_stream__ protocol; only version 0 is supported"
        )
    return Stream.from_handle(handle)


def _record(queue: StreamQueue, event: Event) -> None:
    """Record an event on a stream, which may capture; the lock is held."""
    if queue.capture is None:
        event._set(queue.submit_fence())
    else:
        event._set(None, queue.capture.point(queue))


def _wait(queue: StreamQueue, event: Event) -> None:
    """Make a stream, which may capture, wait for an event; the lock is held."""
    if queue.capture is not None or event._captured is not None:
        wait_for_point(queue, event._captured)
    elif event._fence is not None:
        queue.submit(WaitForFence(event._fence))


def check_device(context: ContextState, queue: StreamQueue) -> None:
    """Raise the driver's error if an event of one device would be recorded on a stream of another."""
    of_event, of_stream = context.device, queue.context.device
    if of_event is not of_stream:
        raise CUDAError(
            f"CUDA_ERROR_INVALID_HANDLE: an event of device {of_event.index} cannot be recorded on a stream of "
            f"device {of_stream.index}; create one while device {of_stream.index} is current"
        )


@dataclass
class EventOptions:
    """The options of an event.

    Attributes
    ----------
    timing_enabled : bool
        Whether the event records its time, so that two events can be subtracted.
    blocking_sync : bool
        Whether a thread that waits for the event sleeps instead of spinning.
    """

    timing_enabled: bool | None = False
    blocking_sync: bool | None = False


class Event(metaclass=MadeByDriver):
    """A point in a stream's work, set by recording the event.

    Attributes
    ----------
    handle : int
        The driver's handle, or 0 if closed.
    is_timing_enabled, is_blocking_sync : bool
        The options that it was created with.
    """

    __slots__ = ("_captured", "_context", "_fence", "handle", "is_blocking_sync", "is_timing_enabled")
    _made_by = "Stream.record or Device.create_event"

    def __init__(self, context: ContextState, options: EventOptions | dict[str, Any] | None = None) -> None:
        chosen = options_of(EventOptions, options, "Event")
        self.is_timing_enabled = bool(chosen.timing_enabled)
        self.is_blocking_sync = bool(chosen.blocking_sync)
        self._context = context
        self.handle = context.device.machine.new_handle()
        self._fence: Fence | None = None  # of the latest record, unless that was made in a capture
        self._captured: CapturePoint | None = None

    def _set(self, fence: Fence | None, captured: CapturePoint | None = None) -> None:
        """Set the latest record; the lock is held."""
        self._fence = fence
        self._captured = captured

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self.handle == 0

    @property
    def is_done(self) -> bool:
        """Whether the stream has reached the latest record; true for an event that was never recorded."""
        self._check()
        self._check_capture("queried")
        fence = self._fence
        return fence is None or self._context.device.machine.timeline.query(lambda: fence.is_signaled)

    @property
    def reached_at(self) -> int:
        """When the stream reached the latest record, in the machine's nanoseconds; -1 if it has not.

        cuda.core's events have no such property: a driver tells only the time between two events.
        """
        fence = self._fence
        return -1 if fence is None else fence.signaled_at

    @property
    def reached_at_wall(self) -> int:
        """The same by `time.monotonic_ns`: machines whose time stands still at times fall behind that clock."""
        fence = self._fence
        return -1 if fence is None else fence.signaled_at_wall

    def sync(self) -> None:
        """Block until the stream has reached the latest record."""
        self._check()
        self._check_capture("synchronized")
        fence = self._fence
        if fence is not None:
            self._context.device.machine.timeline.wait(lambda: fence.is_signaled)
            self._check()

    @property
    def device(self) -> Device:
        """The device it belongs to."""
        from headrace.gpu.sim.device import Device  # a cycle: the device creates events

        return Device._from_state(self._context.device)

    @property
    def context(self) -> Context:
        """The context it belongs to."""
        from headrace.gpu.sim.device import (
            Context,  # a cycle: the context creates streams, which create events
        )

        return Context._create(self._context)

    def close(self) -> None:
        """Close the event; streams that wait for it keep waiting."""
        self.handle = 0

    def __sub__(self, other: Event) -> float:
        if not isinstance(other, Event):
            return NotImplemented
        if not (self.is_timing_enabled and other.is_timing_enabled):
            raise RuntimeError(
                "both events must have been created with EventOptions(timing_enabled=True) to be subtracted"
            )
        if self._context.device is not other._context.device:
            raise RuntimeError("events of two devices cannot be subtracted: each device has its own clock")
        if self._captured is not None or other._captured is not None:
            raise captured_event("subtracted")
        if self._fence is None or other._fence is None:
            raise RuntimeError("both events must have been recorded on a stream to be subtracted")
        with self._context.device.machine.timeline.lock:
            if not (self._fence.is_signaled and other._fence.is_signaled):
                raise RuntimeError(
                    "one or both events have not completed; wait with sync() before subtracting"
                )
            return (self._fence.signaled_at - other._fence.signaled_at) / 1e6

    def __eq__(self, other: object) -> bool:
        return self.handle == other.handle if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"<Event handle={self.handle:#x}>"

    def _check(self) -> None:
        if self.handle == 0:
            raise RuntimeError("this event has been closed")
        self._context.device.machine.check()

    def _check_capture(self, use: str) -> None:
        """Raise the driver's error if a capture does not permit that the host asks for the event."""
        machine = self._context.device.machine
        if machine.captures or self._captured is not None:
            refused = self._refuse_capture(use)
            if refused is not None:
                raise refused
            with machine.timeline.lock:
                refuse_unsafe(machine, "querying an event")

    def _refuse_capture(self, use: str) -> CUDAError | None:
        """Return the driver's error if the latest record was made in a capture, which that invalidates."""
        with self._context.device.machine.timeline.lock:
            point = self._captured
            return None if point is None else point.capture.invalidate(captured_event(use))
