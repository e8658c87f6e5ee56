"""Streams of a simulated device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.capture import refuse_sync, wait_for_point
from headrace.gpu.sim.device_state import ContextState
from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.event import Event, EventOptions
from headrace.gpu.sim.machine import current_machine
from headrace.gpu.sim.operations import WaitForFence
from headrace.gpu.sim.options import options_of
from headrace.gpu.sim.resources import DeviceResources
from headrace.gpu.sim.stream_queues import StreamQueue
from headrace.gpu.stream_handle import (
    LEGACY_DEFAULT_HANDLE,
    PER_THREAD_DEFAULT_HANDLE,
    StreamHandle,
    SupportsStream,
)

if TYPE_CHECKING:
    from headrace.gpu.sim.context import Context
    from headrace.gpu.sim.device import Device
    from headrace.gpu.sim.graph_builder import GraphBuilder


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


class Stream:
    """A sequence of work that runs in order."""

    __slots__ = ("_closed", "_own_queue")
    __headrace_device__ = "sim"
    _closed: bool
    _own_queue: StreamQueue

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "Stream objects cannot be created directly; use Device.create_stream, Context.create_stream "
            "or Stream.from_handle"
        )

    @classmethod
    def _from_queue(cls, queue: StreamQueue) -> Stream:
        self = cls.__new__(cls)
        self._own_queue = queue
        self._closed = False
        return self

    @classmethod
    def _create(cls, context: ContextState, options: StreamOptions | dict[str, Any] | None) -> Stream:
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
            return cls._from_queue(
                context.create_queue(priority=priority, nonblocking=bool(chosen.nonblocking))
            )

    @staticmethod
    def from_handle(handle: int) -> Stream:
        """Return the stream with that handle; 0, 1 and 2 are the default stream.

        On a real device 2 is the calling thread's own default stream, which is not simulated.
        """
        if int(handle) in (0, LEGACY_DEFAULT_HANDLE, PER_THREAD_DEFAULT_HANDLE):
            return LEGACY_DEFAULT_STREAM
        queue = current_machine().stream_queues.get(int(handle))
        if queue is None:
            raise ValueError(f"no stream of the simulated machine has the handle {int(handle):#x}")
        return Stream._from_queue(queue)

    @property
    def _queue(self) -> StreamQueue:
        """The stream's queue; an error if the stream has been closed."""
        if self._closed:
            raise RuntimeError("this stream has been closed")
        return self._own_queue

    @property
    def handle(self) -> int:
        """The driver's handle, or 0 if closed."""
        return 0 if self._closed else self._queue.handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

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
        from headrace.gpu.sim.context import Context  # a cycle: the context creates streams

        return Context._from_state(self._queue.context)

    @property
    def resources(self) -> DeviceResources:
        """The resources that its context may use."""
        return DeviceResources._from_context(self._queue.context)

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
        event = Event._create(machine.current_context, None)
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
        from headrace.gpu.sim.graph_builder import GraphBuilder  # a cycle: a builder has a stream

        _ = self._queue  # an error if closed
        return GraphBuilder._create(self)

    def close(self) -> None:
        """Close the stream; work that was submitted still runs."""
        self._closed = True

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._queue.handle)

    def __eq__(self, other: object) -> bool:
        return self.handle == other.handle if isinstance(other, Stream) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"context={self._queue.context.handle:#x}"
        return f"<Stream handle={self.handle:#x} {where}>"


class _DefaultStream(Stream):
    """The default stream of the current context, whichever that is at the time of use."""

    __slots__ = ()

    @property
    def _queue(self) -> StreamQueue:
        context = current_machine().current_context
        return (context or current_machine().devices[0].primary_context).default_queue


LEGACY_DEFAULT_STREAM: Stream = _DefaultStream.__new__(_DefaultStream)
LEGACY_DEFAULT_STREAM._closed = False


def stream_of(obj: Stream | SupportsStream) -> Stream:
    """Return the stream of an object that supports the CUDA stream protocol."""
    if isinstance(obj, StreamHandle):
        obj = obj.stream
    if isinstance(obj, Stream):
        return obj
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
        event._set_fence(queue.submit_fence())
    else:
        event._set_captured(queue.capture.point(queue))


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
