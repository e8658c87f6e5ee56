"""Clock: the only source of time in a run.

Every wait of a scheduler goes through a clock, which answers three questions: what time it is
(:meth:`Clock.timestamp`), how long a thread must really sleep until a time (:meth:`Clock.seconds_until`), and
whether time can be moved there instead (:meth:`Clock.jump_to`). With a clock whose time jumps, a test of a
ten-minute timeout takes a millisecond. A clock whose time is set from outside announces each change
(:meth:`Clock.watch`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, Protocol

from headrace import waits
from headrace.brief import brief
from headrace.core.construction import Inner
from headrace.core.control import TimeBase
from headrace.core.parameters import declared, parameter
from headrace.core.resource import InnerComponent, Resource
from headrace.core.values import Duration, boolean, finite_number, nanoseconds
from headrace.gpu.backend import clock_in_use

if TYPE_CHECKING:
    from headrace.core.resource import Component
    from headrace.gpu.backend import DeviceClock

_CHANGING = threading.Lock()

LONGEST_TURN = 1.0
"""The seconds of real time after which a compute keeps others from theirs no longer, in virtual time.

Virtual time stands still during a compute, so that every run is the same however fast the host is. So this is for
a compute that waits for something else than that time, which only another compute may bring about.
"""


class Parker(Protocol):
    """The place where one worker of a scheduler waits."""

    def park(self, seconds: float | None) -> bool:
        """Wait until unparked (True), or until `seconds` have passed (False)."""

    def take(self) -> bool:
        """Take the permit, if there is one, without waiting."""

    def unpark(self) -> None:
        """End the wait; may be called from any thread."""


class InnerClock(InnerComponent):
    """The state of a clock."""

    def __init__(self, clock: Component) -> None:
        # The functions to call after a change; each run that uses the clock adds one. A tuple that is replaced
        # under `_CHANGING`, so that any thread can read it.
        self.watchers: tuple[Callable[[], None], ...] = ()
        # How much work is under way beside the workers of runs; changed under `_CHANGING`.
        self.holds = 0
        # When the clock of the run began, for one that goes on elsewhere: a part of a run, or one started again.
        self.began: TimeBase | None = None


class Clock(Resource):
    """The base of clocks."""

    _headrace = Inner(InnerClock)

    passes: ClassVar[bool] = False
    """Whether time passes by itself, so that a thread can sleep until a time."""

    @property
    def is_virtual(self) -> bool:
        """Whether time stands still while operators compute, so that every run on one thread is the same."""
        return False

    def timestamp(self) -> int:
        """Return the time in nanoseconds."""
        raise NotImplementedError

    @property
    def time_base(self) -> TimeBase | None:
        """What its times mean in other programs; None if nothing, as time is simulated or does not pass as real."""
        return None

    def time(self) -> float:
        """Return the time in seconds."""
        return self.timestamp() / 1e9

    def sleep_for(self, duration: Duration) -> None:
        """Sleep for some time of this clock: nanoseconds (int), seconds (float), ``"33ms"`` or a timedelta."""
        self.sleep_until(self.timestamp() + nanoseconds(duration))

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until this clock shows `target_time_ns`."""
        raise NotImplementedError

    def seconds_until(self, target_time_ns: int) -> float | None:
        """Return the real seconds until this clock shows a time, or None if they are unknown (see `watch`)."""
        raise NotImplementedError

    def jump_to(self, target_time_ns: int) -> bool:
        """Move to a time at once and return True, or return False if a run cannot move this clock.

        A scheduler calls it only when nothing is running and nothing is ready.
        """
        return False

    def park(self, parker: Parker, seconds: float | None) -> bool:
        """Wait, as a worker, until unparked (True) or until `seconds` have passed (False)."""
        device = clock_in_use()
        if device is None:
            return parker.park(seconds)
        # The worker may wait for the device, whose own time passes only while threads wait in it.
        return park_in(device, parker, patience=seconds)

    def unpark(self, parker: Parker) -> None:
        """End the wait of a parked worker; may be called from any thread."""
        parker.unpark()
        device = clock_in_use()
        if device is not None:
            device.notify()

    def attach(self) -> AbstractContextManager[None]:
        """Count this thread as working for the duration of a ``with`` block."""
        return nullcontext()

    def hold(self) -> None:
        """Let virtual time stand still until `release`, because work goes on beside the workers.

        May be called from any thread; does nothing to other time.
        """
        _count_holds(self, 1)

    def release(self) -> None:
        """End what `hold` began; from any thread."""
        _count_holds(self, -1)

    @property
    def is_held(self) -> bool:
        """Whether a run must not let the time pass, although its workers wait."""
        return self._headrace.holds > 0

    def watch(self, announce: Callable[[], None]) -> None:
        """Call a function, from any thread, whenever the time or its scale was changed, until `unwatch`."""
        with _CHANGING:
            self._headrace.watchers = (*self._headrace.watchers, announce)

    def unwatch(self, announce: Callable[[], None]) -> None:
        """Call a function no more."""
        with _CHANGING:
            self._headrace.watchers = tuple(known for known in self._headrace.watchers if known != announce)

    def announce(self) -> None:
        """Tell the runs that use this clock that its time or its scale was changed; from any thread."""
        for announce in self._headrace.watchers:
            announce()

    @property
    def is_in_use(self) -> bool:
        """Whether a run that is in progress uses this clock, so that its time must not be set back."""
        return bool(self._headrace.watchers)


def park_in(
    device: DeviceClock, parker: Parker, timeout: float | None = None, patience: float | None = None
) -> bool:
    """Wait, as a worker, in the time of a device: `timeout` seconds of it, or `patience` seconds of real time."""
    woken = False

    def is_woken() -> bool:
        nonlocal woken  # called repeatedly, also by other threads, but a permit can be taken only once
        woken = woken or parker.take()
        return woken

    # Without a time of the device to wait for, a worker may wait for an event from outside. The permit may come,
    # and be taken by another check, after the device has found that the time is over.
    device.wait(is_woken, timeout, timeout is None, patience)
    return woken


def _number(given: object, what: str) -> float:
    number = finite_number(given)
    if number is None:
        raise TypeError(f"{what} must be a number, not {brief(given)}")
    return number


def _scale(given: object, what: str) -> float:
    if (scale := _number(given, what)) <= 0:
        raise ValueError(f"{what} must be positive, not {given}")
    return scale


def _count_holds(clock: Clock, change: int) -> None:
    if clock.is_virtual:
        with _CHANGING:
            clock._headrace.holds += change
        clock.announce()


@declared(kw_only=False)
class RealtimeClock(Clock):
    """Real time, optionally shifted and scaled.

    Parameters
    ----------
    initial_time_offset
        The seconds that the clock shows when a run begins.
    initial_time_scale
        The number of clock seconds per real second.
    use_time_since_epoch
        Whether to show the time since the epoch, plus the offset, instead of the time since the run began.
    """

    passes = True

    name = "realtime_clock"
    _offset: float = parameter(default=0.0, alias="initial_time_offset", convert=_number)
    _initial_scale: float = parameter(default=1.0, alias="initial_time_scale", convert=_scale)
    _since_epoch: bool = parameter(default=False, alias="use_time_since_epoch", convert=boolean)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._changed = threading.Condition()
        self.initialize()

    def initialize(self) -> None:
        """Start from the offset, unless another run uses this clock."""
        if self.is_in_use:
            return
        began = self._headrace.began or TimeBase.of(time.monotonic_ns())
        start = round(self._offset * 1e9) + (began.since_1970 if self._since_epoch else 0)
        # The time shown at a reference moment, that moment, and the scale since then. They form one object, so that
        # a thread that reads it while another changes the scale sees either all old or all new values.
        self._reading = (start, began.zero, self._initial_scale)

    @property
    def time_base(self) -> TimeBase | None:
        """What its times mean in other programs; None if its time passes at another speed than real time."""
        shown, reference, scale = self._reading
        return TimeBase.of(reference - shown) if scale == 1.0 else None

    def timestamp(self) -> int:
        """Return the time in nanoseconds."""
        while True:
            reading = self._reading
            shown, reference, scale = reading
            passed = time.monotonic_ns() - reference
            if reading is self._reading:  # otherwise the scale changed around the moment that was read
                return shown + (passed if scale == 1.0 else round(passed * scale))

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until this clock shows `target_time_ns`, even if its scale changes meanwhile."""
        with self._changed:
            while (seconds := self.seconds_until(target_time_ns)) > 0:
                waits.wait(self._changed, seconds)

    def seconds_until(self, target_time_ns: int) -> float:
        """Return the real seconds until this clock shows a time."""
        shown, reference, scale = self._reading
        return (target_time_ns - shown) / scale / 1e9 - (time.monotonic_ns() - reference) / 1e9

    def set_time_scale(self, time_scale: float) -> None:
        """Set the number of clock seconds per real second, from now on."""
        new_scale = _scale(time_scale, f"clock {self.name!r}: the time scale")
        with self._changed:
            shown, reference, scale = self._reading
            now = time.monotonic_ns()
            self._reading = (shown + round((now - reference) * scale), now, new_scale)
            self._changed.notify_all()
        self.announce()
