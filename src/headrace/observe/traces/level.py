"""Level: a number that changes with time, told in order although its changes are learned out of order."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

__all__ = ["Level"]


class Level:
    """A number that changes by known amounts at known times.

    Attributes
    ----------
    value
        The number after the changes that were told.
    """

    __slots__ = ("_changes", "value")

    def __init__(self) -> None:
        self.value = 0
        self._changes: list[tuple[int, int]] = []

    def change(self, times: Iterable[int], amount: int) -> None:
        """Note a change by an amount at each of some times."""
        self._changes.extend((time, amount) for time in times)

    def tell(self, horizon: int) -> list[tuple[int, int]]:
        """Return times up to the horizon and the number from each on; earlier changes must not follow."""
        self._changes.sort(key=itemgetter(0))
        told: list[tuple[int, int]] = []
        count = 0
        for time, amount in self._changes:
            if time > horizon:
                break
            count += 1
            self.value += amount
            if told and told[-1][0] == time:
                told[-1] = (time, self.value)
            else:
                told.append((time, self.value))
        del self._changes[:count]
        return told
