"""Clocks whose time the program moves: ManualClock jumps by itself, SyntheticClock is set."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace import waits
from headrace.core.clock import Clock
from headrace.core.values import Duration, nanoseconds, whole_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition


class _ProgramClock(Clock):
    """A time that stands still until it is moved."""

    def __init__(self, fragment: Composition | None, initial_timestamp: int, *, name: str) -> None:
        super().__init__(fragment, name=name)
        self._initial = self._now = whole_number(initial_timestamp, f"clock {name!r}: initial_timestamp")
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


class ManualClock(_ProgramClock):
    """Virtual time: it stands still while there is work, and jumps to the next event when there is none.

    `sleep_for` and `sleep_until` move it at once. An operator in a test calls them to simulate work that takes
    time.
    """

    def __init__(
        self, fragment: Composition | None = None, initial_timestamp: int = 0, *, name: str = "manual_clock"
    ) -> None:
        super().__init__(fragment, initial_timestamp, name=name)

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


class SyntheticClock(_ProgramClock):
    """Time that moves only when an operator or any thread calls `advance_to` or `advance_by`."""

    def __init__(
        self,
        fragment: Composition | None = None,
        initial_timestamp: int = 0,
        *,
        name: str = "synthetic_clock",
    ) -> None:
        super().__init__(fragment, initial_timestamp, name=name)

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
