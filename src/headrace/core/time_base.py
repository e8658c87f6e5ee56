"""TimeBase: what the timestamps of a run mean to others, which its parts and other programs have to know.

A timestamp is in nanoseconds of the run's clock, or since 1970. The two are told apart by their size
(`SINCE_1970`): a run's clock that begins at 0 reaches such a time after 31 years, and one that shows the time since
1970 means it.

A run's clock begins at 0 unless it is told otherwise, so its times mean nothing without the moment of that 0. On
one host that moment is given by CLOCK_MONOTONIC, which all processes read alike, so a conversion there is exact.
Between hosts it is given since 1970, as their clocks show it, and is as good as these agree (NTP, PTP).

Decided against: CLOCK_TAI, which is CLOCK_REALTIME on every host where nobody has set its offset; a conversion with
both clocks read anew for each message, of which two with the same timestamp would get different ones.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SINCE_1970 = 10**18
"""Timestamps from here on count the nanoseconds since 1970; smaller ones are of the run's clock."""


def counts_since_1970(timestamp: float) -> bool:
    """Return whether a timestamp counts since 1970, and so means the same in all programs."""
    return timestamp >= SINCE_1970


def clock_name() -> str:
    """Return a name for the clock of this process, which is the same in all processes that read it; or nothing.

    Containers of one host may have clocks of their own, in time namespaces.
    """
    with suppress(OSError):
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        with suppress(OSError):  # before Linux 5.6 there is one clock
            name += " " + os.readlink("/proc/self/ns/time")
        return name
    return ""


class TimeBase(NamedTuple):
    """When a run's clock showed 0.

    Attributes
    ----------
    clock
        The name of the host's clock (`clock_name`).
    zero
        The moment by that clock (CLOCK_MONOTONIC), in nanoseconds.
    since_1970
        The moment in nanoseconds since 1970.
    """

    clock: str
    zero: int
    since_1970: int

    @classmethod
    def of(cls, zero: int) -> TimeBase:
        """Return the base of a clock of this process that showed 0 at a moment of CLOCK_MONOTONIC."""
        return cls(clock_name(), zero, zero + _since_1970())

    def convert(self, timestamp: int, to: TimeBase) -> int:
        """Return a timestamp of this clock as another one shows it."""
        if counts_since_1970(timestamp):
            return timestamp
        if self.clock and self.clock == to.clock:
            return timestamp + self.zero - to.zero
        return timestamp + self.since_1970 - to.since_1970


def _since_1970() -> int:
    """Return the nanoseconds since 1970 at 0 of CLOCK_MONOTONIC; of a few readings, by the quickest."""
    readings = []
    for _ in range(5):
        before = time.monotonic_ns()
        shown = time.time_ns()
        after = time.monotonic_ns()
        readings.append((after - before, shown - (before + after) // 2))
    return min(readings)[1]
