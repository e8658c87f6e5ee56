"""Events of a simulated device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.capture import CapturePoint, captured_event, refuse_unsafe
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, options_of
from headrace.gpu.sim.operations import Fence

if TYPE_CHECKING:
    from headrace.gpu.sim.context import Context
    from headrace.gpu.sim.device import Device
    from headrace.gpu.sim.machine import ContextState


@dataclass
class EventOptions:
    """The options of an event.

    Attributes
    ----------
    timing_enabled : bool
        Whether the event records its time, so that two events can be subtracted.
    blocking_sync : bool
        Whether a thread that waits for the event sleeps instead of spinning.
    ipc_enabled : bool
        Whether other processes can use the event.
    """

    timing_enabled: bool | None = False
    blocking_sync: bool | None = False
    ipc_enabled: bool | None = False


class Event(metaclass=MadeByDriver):
    """A point in a stream's work, set by recording the event.

    Attributes
    ----------
    handle : int
        The driver's handle, or 0 if closed.
    """

    __slots__ = ("_captured", "_context", "_fence", "_options", "handle")
    _made_by = "Stream.record or Device.create_event"

    def __init__(self, context: ContextState, options: EventOptions | dict[str, Any] | None = None) -> None:
        self._options = options_of(EventOptions, options, "Event")
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
    def is_timing_enabled(self) -> bool:
        """Whether it records its time."""
        return bool(self._options.timing_enabled)

    @property
    def is_blocking_sync(self) -> bool:
        """Whether a thread that waits for it sleeps instead of spinning."""
        return bool(self._options.blocking_sync)

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether other processes can use it."""
        return bool(self._options.ipc_enabled)

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
        from headrace.gpu.sim.context import (
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
