"""ManualClock: time that jumps, so that a run takes no longer than its work."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.core.clock import Clock
from headrace.core.whole_numbers import whole_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition


class ManualClock(Clock):
    """Virtual time: it stands still while there is work, and jumps to the next event when there is none.

    `sleep_for` and `sleep_until` move it at once. An operator in a test calls them to simulate work that takes
    time.
    """

    def __init__(
        self, fragment: Composition | None = None, initial_timestamp: int = 0, *, name: str = "manual_clock"
    ) -> None:
        super().__init__(fragment, name=name)
        self._initial = self._now = whole_number(initial_timestamp, f"clock {name!r}: initial_timestamp")
        self._lock = threading.Lock()

    def initialize(self) -> None:
        """Go back to the initial time, unless another run uses this clock."""
        if not self.is_in_use:
            self._now = self._initial

    @property
    def is_virtual(self) -> bool:
        """True: time moves when nothing computes, or when a compute sleeps."""
        return True

    def timestamp(self) -> int:
        """Return the time in nanoseconds."""
        return self._now

    def sleep_until(self, target_time_ns: int) -> None:
        """Move the time forward to `target_time_ns`."""
        with self._lock:
            self._now = max(self._now, target_time_ns)

    def seconds_until(self, target_time_ns: int) -> float | None:
        """Return 0 for a time that has passed, or None for a later one, which no real sleep would reach."""
        return 0.0 if target_time_ns <= self._now else None

    def jump_to(self, target_time_ns: int) -> bool:
        """Move the time forward to `target_time_ns`."""
        self.sleep_until(target_time_ns)
        return True
