"""RealtimeClock: time as it passes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.core.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.fragment import Fragment

__all__ = ["RealtimeClock"]


class RealtimeClock(Clock):
    """Real time, optionally shifted and scaled.

    Parameters
    ----------
    initial_time_offset
        Seconds that the clock shows when a run begins.
    initial_time_scale
        How many seconds of the clock pass in a real second.
    use_time_since_epoch
        Show the time since the epoch, plus the offset, instead of the time since the run began.
    """

    passes = True

    def __init__(
        self,
        fragment: Fragment | None = None,
        initial_time_offset: float = 0.0,
        initial_time_scale: float = 1.0,
        use_time_since_epoch: bool = False,
        *,
        name: str = "realtime_clock",
    ) -> None:
        super().__init__(fragment, name=name)
        if initial_time_scale <= 0:
            raise ValueError(f"clock {name!r}: the time scale must be positive, not {initial_time_scale}")
        self._offset = initial_time_offset
        self._initial_scale = initial_time_scale
        self._since_epoch = use_time_since_epoch
        self._announce: Callable[[], None] | None = None
        self.initialize()

    def initialize(self) -> None:
        """Begin to count from the offset."""
        self._scale = self._initial_scale
        self._reference = time.monotonic_ns()
        start = self._offset + (time.time() if self._since_epoch else 0.0)
        self._shown = round(start * 1e9)

    def timestamp(self) -> int:
        """Give the time in nanoseconds."""
        passed = time.monotonic_ns() - self._reference
        if self._scale != 1.0:
            passed = round(passed * self._scale)
        return self._shown + passed

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until this clock shows `target_time_ns`."""
        while (seconds := self.seconds_until(target_time_ns)) > 0:
            time.sleep(seconds)

    def seconds_until(self, target_time_ns: int) -> float:
        """Give the real seconds until this clock shows a time."""
        return (target_time_ns - self.timestamp()) / self._scale / 1e9

    def set_time_scale(self, time_scale: float) -> None:
        """Let time pass faster or slower from now on."""
        if time_scale <= 0:
            raise ValueError(f"clock {self.name!r}: the time scale must be positive, not {time_scale}")
        self._shown = self.timestamp()
        self._reference = time.monotonic_ns()
        self._scale = time_scale
        if self._announce is not None:
            self._announce()

    def watch(self, announce: Callable[[], None] | None) -> None:
        """Name the function to call when the scale was changed."""
        self._announce = announce
