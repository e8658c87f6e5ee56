"""Clocks of other times than the wall clock's: the program moves them, or a simulated machine does."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from headrace import waits
from headrace.core.clock import LONGEST_TURN, Clock, park_in
from headrace.core.parameters import declared, parameter
from headrace.core.values import Duration, nanoseconds, whole_number
from headrace.gpu.backend import DeviceUnavailable, active, clock_in_use, is_chosen

if TYPE_CHECKING:
    from headrace.core.clock import Parker
    from headrace.core.composition import Composition
    from headrace.gpu.backend import DeviceClock


class _ProgramClock(Clock):
    """A time that stands still until it is moved."""

    _initial: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._now = self._initial
        self._moved = threading.Condition()

    def initialize(self) -> None:
        """Go back to the initial time, unless another run uses this clock."""
        if not self.is_in_use:
            self._now = self._initial

    def timestamp(self) -> int:
        """Return the time in nanoseconds."""
        return self._now

    def seconds_until(self, target_time_ns: int) -> float | None:
        """Return 0 for a time that has passed, or None for a later one, which no real sleep would reach."""
        return 0.0 if target_time_ns <= self._now else None


@declared(kw_only=False)
class ManualClock(_ProgramClock):
    """Virtual time: it stands still while there is work, and jumps to the next event when there is none.

    `sleep_for` and `sleep_until` move it at once. An operator in a test calls them to simulate work that takes
    time.
    """

    name = "manual_clock"
    _initial: int = parameter(default=0, alias="initial_timestamp")

    @property
    def is_virtual(self) -> bool:
        """True: time moves when nothing computes, or when a compute sleeps."""
        return True

    def sleep_until(self, target_time_ns: int) -> None:
        """Move the time forward to `target_time_ns`."""
        with self._moved:
            self._now = max(self._now, target_time_ns)

    def jump_to(self, target_time_ns: int) -> bool:
        """Move the time forward to `target_time_ns`."""
        self.sleep_until(target_time_ns)
        return True


@declared(kw_only=False)
class SyntheticClock(_ProgramClock):
    """Time that moves only when an operator or any thread calls `advance_to` or `advance_by`."""

    name = "synthetic_clock"
    _initial: int = parameter(default=0, alias="initial_timestamp")

    def advance_to(self, new_time_ns: int) -> None:
        """Move the time forward to `new_time_ns`."""
        new_time_ns = whole_number(new_time_ns, f"clock {self.name!r}: new_time_ns")
        with self._moved:
            if new_time_ns < self._now:
                raise ValueError(
                    f"clock {self.name!r} shows {self._now} ns and cannot go back to {new_time_ns} ns"
                )
            self._now = new_time_ns
            self._moved.notify_all()
        self.announce()

    def advance_by(self, time_delta_ns: Duration) -> None:
        """Move the time forward by nanoseconds (int), seconds (float), ``"33ms"`` or a timedelta."""
        delta = nanoseconds(time_delta_ns)
        if delta < 0:
            raise ValueError(f"clock {self.name!r} cannot go back by {-delta} ns")
        with self._moved:
            self._now += delta
            self._moved.notify_all()
        self.announce()

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until another thread has moved the time to `target_time_ns`."""
        with self._moved:
            waits.wait_for(self._moved, lambda: self._now >= target_time_ns)


@declared(kw_only=False)
class MachineClock(Clock):
    """The clock of a simulated machine.

    When every worker waits, the clock moves to the next event of the device or the next time that a worker waits
    for. In virtual time it jumps there: a pipeline takes no real time, and every run is the same. In paced time the
    move takes as long by the wall clock.

    Parameters
    ----------
    machine
        The machine; the current one unless given.
    """

    name = "machine_clock"
    passes: ClassVar[bool] = True
    _given: DeviceClock | None = parameter(default=None, alias="machine")

    def __post_init__(self) -> None:
        super().__post_init__()
        found = self._given or clock_in_use() or active().clock()
        if found is None:
            raise DeviceUnavailable(f"{self.name!r}: the time of {active().description} is the host's")
        self.machine: DeviceClock = found

    @property
    def is_virtual(self) -> bool:
        """Whether the machine is in virtual time; paced time passes in a compute that waits."""
        return self.machine.is_virtual

    def timestamp(self) -> int:
        """Return the time in nanoseconds."""
        return self.machine.read()

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until the machine's clock shows `target_time_ns`."""
        remaining = target_time_ns - self.timestamp()
        if remaining > 0:
            self.machine.sleep(remaining / 1e9)

    def seconds_until(self, target_time_ns: int) -> float:
        """Return the seconds of the machine's time until it shows a time."""
        return (target_time_ns - self.timestamp()) / 1e9

    def park(self, parker: Parker, seconds: float | None) -> bool:
        """Wait, as a worker, in the machine's time."""
        if self.is_held:
            seconds = None
        # With a time to wait for, a worker looks again now and then: a compute may wait for another one in real
        # time, in which the machine's time stands still.
        return park_in(self.machine, parker, seconds, None if seconds is None else LONGEST_TURN)

    def unpark(self, parker: Parker) -> None:
        """End the wait of a worker that is parked in the machine's time."""
        parker.unpark()
        self.machine.notify()

    def attach(self) -> AbstractContextManager[None]:
        """Count this thread as working: virtual time stands still while it runs."""
        return self.machine.attach()


def machine_clock(fragment: Composition | None) -> MachineClock | None:
    """Return a clock of the simulated machine that a run will use, or None if the run uses the wall clock.

    The machine that the environment describes is created here if the run is certain to use it; a run that needs no
    device creates none.
    """
    machine = clock_in_use()
    try:
        if machine is None and (is_chosen() or _has_streams(fragment)):
            machine = active().clock()
    except (ValueError, DeviceUnavailable):
        return None  # raised again where the run opens its device
    return None if machine is None else MachineClock(fragment, machine)


def _has_streams(fragment: Composition | None) -> bool:
    """Return whether an operator was given a source of streams; a run opens every source."""
    from headrace._runtime import source_of

    return fragment is not None and any(source_of(operator) is not None for operator in fragment.graph)
