"""Fences: numbered points on a stream, up to which the work of one operator completes in order.

A fence stands for the work that was submitted to the stream before it. It has a number, and an event recorded at
that point shows when the device has completed it. The fences of a timeline complete in the order of their numbers,
so one number, `completed`, describes the state of all of them.

Events are reused, one after the other, as in a ring: that of a fence is found by its number. A completed fence no
longer needs its event: the receiver of a message from before it compares numbers and does not wait. Recording an
event again does not affect a stream that already waits for it.

A timeline takes no lock. Fences are inserted and checked in the operator's compute or between two computes, and
never concurrently. Other threads only read: a receiver compares the number of its message with `completed`. If the
event is recorded again at that very moment, the receiver's stream waits for the later fence. It may wait longer
than necessary, but never too short.

The work behind tensors that an operator emitted, as the tensors present it to other libraries.

A receiver that called `receive_cuda_stream` is ordered after that work, so a library that works on the same stream
needs no further order. A library with its own streams, such as JAX, names one of them when it takes a tensor. That
stream is then ordered after the work, and after the receivers' work on the tensor since (`EmittedWork`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace import gpu
from headrace._runtime.messages.envelope import Envelope
from headrace.core.errors import StreamError
from headrace.tensor import stream_of

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


# With this many incomplete fences, their state is checked before another event is created.
_MANY: Final = 64


class Fences:
    """The fences of one operator on one stream.

    Only the thread that runs the operator changes a timeline. Other threads read `last`, `completed` and `is_over`,
    and may call `lend`.

    Parameters
    ----------
    stream
        The stream.

    Attributes
    ----------
    last, completed
        The numbers of the last fence and of the last fence known to be complete.
    events
        All events, always in the same list; that of a fence is at its number modulo their count.
    count
        Their number.
    reach
        Fences up to this number can reuse these events, because the next event to record is no longer needed.
    record
        Records an event on the stream.
    is_over
        Whether the run has ended: all work on all streams is complete, and the streams have been returned.
    """

    __slots__ = (
        "_behind",
        "_lent",
        "completed",
        "count",
        "events",
        "is_over",
        "last",
        "reach",
        "record",
        "stream",
    )

    def __init__(self, stream: ManagedStream) -> None:
        self.stream = stream
        self.record: Callable[[Any], object] = stream.record
        self.last = 0
        self.completed = 0
        self.is_over = False
        self.events: list[Any] = []
        self.count = 0
        self.reach = 0
        # Events that a callback waits for. Any thread may append.
        self._lent: list[Any] = []
        # The number of fences by which the device is expected to be behind.
        self._behind = 1

    def insert(self) -> Any:
        """Insert a fence after the work submitted so far, and return its event."""
        number = self.last + 1
        if number > self.reach:
            self.add_event()
        event = self.events[number % self.count]
        self.record(event)
        self.last = number
        return event

    def stamp(self, data: Any) -> Envelope:
        """Insert a fence after the work so far, and return a message that carries it."""
        message = Envelope()
        message.data = data
        message.event = self.insert()
        message.fences = self
        message.number = self.last
        message.work = message.extra = message.record = message.sent = None
        return message

    def event(self, number: int) -> Any:
        """Return the event of a fence that may be incomplete."""
        return self.events[number % self.count]

    def update(self, least: int) -> None:
        """Query which fences are complete; fences before `least` are not worth a query.

        Each query of an event is a driver call, which costs as much as everything else here. A complete fence
        implies that all earlier ones are complete, so one query is enough if the device is no further behind than
        the last time.
        """
        least = max(least, self.completed + 1)  # earlier fences no longer have their own event
        events, last, behind = self.events, self.last, self._behind
        if least > last:
            return
        number = max(last - behind, least)
        further = 0
        while not events[number % self.count].is_done:
            if number == least:
                return
            further = 2 * further or 1
            behind += further
            number = max(last - behind, least)
        self._behind = behind if further else max(behind - 1, 1)  # it may have caught up by the next time
        self._complete(number)

    def _complete(self, number: int) -> None:
        self.completed = number
        self.reach = number + self.count
        # Only now: a thread that lends an event and then finds its fence incomplete relies on this order.
        if self._lent:
            self._replace_lent()

    def lend(self, event: Any) -> None:
        """Exclude an event from reuse, because a callback waits for it; may be called from any thread."""
        self._lent.append(event)

    def is_complete(self, number: int, event: Any) -> bool:
        """Return whether the device has completed a fence; may be called from any thread."""
        # Compare again at the end: if the event was recorded for another fence in between, this one is complete.
        return number <= self.completed or event.is_done or number <= self.completed

    def is_past(self, number: int) -> bool:
        """Return whether the device has completed a fence, which may not be inserted yet; from any thread."""
        if number <= self.completed or number > self.last:
            return number <= self.completed
        return self.is_complete(number, self.event(number))

    def close(self) -> None:
        """Mark every fence as complete, because the device has finished."""
        self.is_over = True
        self.completed = self.last

    def _replace_lent(self) -> None:
        """Replace lent events whose fences are complete with new ones."""
        events, lent, count = self.events, self._lent, self.count
        for number in range(self.last - count + 1, self.completed + 1):
            if events[number % count] in lent:
                events[number % count] = self.stream.create_event()
        for event in tuple(lent):  # several threads may have lent the same event
            if event not in events:
                lent.remove(event)

    def add_event(self) -> None:
        """Make sure that an event can be recorded: an event that is no longer needed, or else a new one."""
        if self.last - self.completed >= _MANY:
            self.update(self.completed + 1)
        if self.last == self.reach:
            # In the order of their fences, the new one last; then each at its number modulo their new count.
            events, number = self.events, self.last + 1
            oldest = number % self.count if events else 0
            in_order = [*events[oldest:], *events[:oldest], self.stream.create_event()]
            self.count = len(in_order)
            newest = number % self.count
            events[:] = [*in_order[-1 - newest :], *in_order[: -1 - newest]]
            self.reach = number


class EmittedWork:
    """The work on a stream up to the fence that `emit` inserts after it has converted the data.

    The sender fills it in before the message is queued. Several receivers of a message share it, and add their
    streams.
    """

    __slots__ = (
        "_event",
        "_fences",
        "_number",
        "_ordered_streams",
        "_stream",
    )

    def __init__(self, stream: ManagedStream) -> None:
        self._stream = stream
        self._fences: Fences | None = None
        self._number = 0
        self._event: Any = None
        # The streams of the receivers that were ordered after the fence.
        self._ordered_streams: list[ManagedStream] = []

    def attach(self, message: Envelope) -> None:
        """Copy the fences of a message; keeping the message itself would keep its tensors alive."""
        self._fences, self._number, self._event = message.fences, message.number, message.event
        message.work = self

    def note_ordered(self, stream: ManagedStream) -> None:
        """Record that a stream of the receiver has been ordered after the fences."""
        if stream not in self._ordered_streams:
            self._ordered_streams.append(stream)

    # The interface for tensors (`headrace.tensor`).

    @property
    def stream_handle(self) -> int:
        """The sender's stream."""
        return int(self._stream.handle)

    def order(self, stream: int) -> None:
        """Make a stream wait for the work, unless it already does."""
        if self._fences is not None and self._fences.is_over:
            return
        ordered = tuple(self._ordered_streams)
        for other in ordered:
            if is_named(other, stream):
                return
        consumer = stream_of(stream)
        # Use events of the stream's own device: the consumer's device may differ.
        is_complete = self._fences is not None and self._number <= self._fences.completed
        if not is_complete and not is_named(self._stream, stream):
            consumer.wait(self._stream.now() if self._event is None else self._event)
        for other in ordered:
            consumer.wait(other.now())
