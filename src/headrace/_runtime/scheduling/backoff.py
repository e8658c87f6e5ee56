"""Backoff: how long an operator waits after an error before it computes again.

It is a condition of the node like any other that waits for a time. So no worker waits, virtual time jumps to the
end of the wait, and a pause or a stop needs nothing of its own.
"""

from __future__ import annotations

from typing import ClassVar

from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType

_LONGEST = 60_000_000_000
_READY = SchedulingStatusType.READY
_WAIT_TIME = SchedulingStatusType.WAIT_TIME


class Backoff(Condition):
    """Waits for `first` nanoseconds after the first error in a row, and twice as long after each further one.

    The compute that failed calls `begin`. No wait is longer than a minute, unless `first` is.
    """

    polled = False
    depends_on_ports = False
    matters_while_blocked: ClassVar[bool] = False

    def __init__(self, first: int) -> None:
        super().__init__(name="backoff")
        self._first = first
        self._until: int | None = None

    def begin(self, now: int, errors: int) -> None:
        """Wait from `now` on, after so many errors in a row."""
        # A shift by a large number would make an enormous int.
        self._until = now + min(self._first << min(errors - 1, 40), max(_LONGEST, self._first))

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the end of the wait, if there is one."""
        until = self._until
        if until is None or timestamp >= until:
            return _READY, None
        return _WAIT_TIME, until
