"""Events of a simulated device."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.gpu.sim.lanes import Mark
from penstock.gpu.sim.options import options_of

if TYPE_CHECKING:
    from penstock.gpu.sim.context import Context
    from penstock.gpu.sim.device import Device
    from penstock.gpu.sim.machine import ContextState


@dataclass
class EventOptions:
    """``timing_enabled`` lets two events be subtracted; ``blocking_sync`` has a waiting thread sleep."""

    timing_enabled: bool | None = False
    blocking_sync: bool | None = False
    ipc_enabled: bool | None = False


class Event:
    """A point in a stream, once recorded."""

    __slots__ = ("_context", "_handle", "_mark", "_options")
    _context: "ContextState"
    _handle: int
    _mark: Mark | None
    _options: EventOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Event objects cannot be made directly; use Stream.record or Device.create_event")

    @classmethod
    def _of(cls, context: "ContextState", options: "EventOptions | dict[str, Any] | None") -> "Event":
        self = cls.__new__(cls)
        self._options = options_of(EventOptions, options, "Event")
        self._context = context
        self._handle = context.device.machine.new_handle()
        self._mark = None
        return self

    @property
    def handle(self) -> int:
        """Its number; 0 when closed."""
        return self._handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._handle == 0

    @property
    def is_timing_enabled(self) -> bool:
        """Whether its time can be compared with another's."""
        return bool(self._options.timing_enabled)

    @property
    def is_blocking_sync(self) -> bool:
        """Whether a thread that waits for it sleeps."""
        return bool(self._options.blocking_sync)

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether other processes can see it."""
        return bool(self._options.ipc_enabled)

    @property
    def is_done(self) -> bool:
        """Whether the point it was last recorded at has been passed; an unrecorded event is done."""
        self._check()
        mark = self._mark
        return mark is None or self._context.device.machine.timeline.query(lambda: mark.passed)

    def sync(self) -> None:
        """Block until the point it was last recorded at has been passed."""
        self._check()
        mark = self._mark
        if mark is not None:
            self._context.device.machine.timeline.wait(lambda: mark.passed)
            self._check()

    @property
    def device(self) -> "Device":
        """The device it belongs to."""
        from penstock.gpu.sim.device import Device  # the device makes events

        return Device._of(self._context.device)

    @property
    def context(self) -> "Context":
        """The context it belongs to."""
        from penstock.gpu.sim.context import Context  # the context makes streams, which make events

        return Context._of(self._context)

    def close(self) -> None:
        """Forget it; what waits for it goes on waiting."""
        self._handle = 0

    def __sub__(self, other: "Event") -> float:
        if not isinstance(other, Event):
            return NotImplemented
        if not (self.is_timing_enabled and other.is_timing_enabled):
            raise RuntimeError(
                "both events must have been made with EventOptions(timing_enabled=True) to be subtracted"
            )
        if self._context.device is not other._context.device:
            raise RuntimeError("events of two devices cannot be subtracted: each device has its own clock")
        if self._mark is None or other._mark is None:
            raise RuntimeError("both events must have been recorded on a stream to be subtracted")
        with self._context.device.machine.timeline.lock:
            if not (self._mark.passed and other._mark.passed):
                raise RuntimeError(
                    "one or both events have not completed; wait with sync() before subtracting"
                )
            return (self._mark.time - other._mark.time) / 1e6

    def __eq__(self, other: object) -> bool:
        return self._handle == other._handle if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._handle)

    def __repr__(self) -> str:
        return f"<Event handle={self._handle:#x}>"

    def _check(self) -> None:
        if self._handle == 0:
            raise RuntimeError("this event has been closed")
        self._context.device.machine.check()
