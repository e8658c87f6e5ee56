"""RealtimeClock: real time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from headrace import waits
from headrace.core.booleans import boolean
from headrace.core.clock import Clock, finite_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition

__all__ = ["RealtimeClock"]


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

    def __init__(
        self,
        fragment: Composition | None = None,
        initial_time_offset: float = 0.0,
        initial_time_scale: float = 1.0,
        use_time_since_epoch: bool = False,
        *,
        name: str = "realtime_clock",
    ) -> None:
        super().__init__(fragment, name=name)
        offset = finite_number(initial_time_offset)
        if offset is None:
            raise TypeError(
                f"clock {name!r}: initial_time_offset must be a number of seconds, not {initial_time_offset!r}"
            )
        self._offset = offset
        self._initial_scale = self._scale(initial_time_scale)
        self._since_epoch = boolean(use_time_since_epoch, f"clock {name!r}: use_time_since_epoch")
        self._changed = threading.Condition()
        self.initialize()

    def initialize(self) -> None:
        """Start from the offset, unless another run uses this clock."""
        if self.is_in_use:
            return
        start = self._offset + (time.time() if self._since_epoch else 0.0)
        # The time shown at a reference moment, that moment, and the scale since then. They form one object, so that
        # a thread that reads it while another changes the scale sees either all old or all new values.
        self._reading = (round(start * 1e9), time.monotonic_ns(), self._initial_scale)

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
        new_scale = self._scale(time_scale)
        with self._changed:
            shown, reference, scale = self._reading
            now = time.monotonic_ns()
            self._reading = (shown + round((now - reference) * scale), now, new_scale)
            self._changed.notify_all()
        self.announce()

    def _scale(self, given: object) -> float:
        scale = finite_number(given)
        if scale is None:
            raise TypeError(f"clock {self.name!r}: the time scale must be a number, not {given!r}")
        if scale <= 0:
            raise ValueError(f"clock {self.name!r}: the time scale must be positive, not {given}")
        return scale
