"""Sampling: which computes are timed on the device, where there are very many.

Timing a compute costs some ten microseconds: two events are recorded and read, and each of these calls gives up the
interpreter. Up to 1,000 computes a second this is a small part of the time, and all are timed. If there are more,
1,000 are timed in a second, evenly spread; if there are more than 2,000, which are short, 50 are. How often an
operator computes is seen from the compute that follows a timed one. A burst is timed as a whole.
"""

from __future__ import annotations

ALWAYS = -(1 << 62)  # before every time
_MANY = 500_000  # nanoseconds from one compute to the next; if there are less, there are many
_INTERVAL = 1_000_000  # nanoseconds between two computes that are timed, in the long run
_INTERVAL_OF_MANY = 20_000_000
_BURST = 20  # computes that are timed at once, if none was for a while


class Sampling:
    """Chooses computes, evenly in the long run.

    Attributes
    ----------
    next
        From when on `takes` has to be asked.
    """

    __slots__ = ("_asked", "_credit", "_follows", "_interval", "next")

    def __init__(self) -> None:
        self.next = ALWAYS
        self._interval = _INTERVAL_OF_MANY
        # How many may be chosen, when this was counted, and whether the next compute follows one that was chosen.
        self._credit: float = _BURST
        self._asked = 0
        self._follows = False

    def takes(self, now: int) -> bool:
        """Return whether a compute that begins now is chosen."""
        passed = now - self._asked
        self._asked = now
        if self._follows:
            self._interval = _INTERVAL if passed >= _MANY else _INTERVAL_OF_MANY
        self._credit = min(self._credit + passed / self._interval, _BURST)
        self._follows = self._credit >= 1
        if self._follows:
            self._credit -= 1  # and the next compute asks again, whenever it begins
        else:
            self.next = now + int((1 - self._credit) * self._interval) + 1
        return self._follows
