"""Clock offsets: how the clocks of processes on several hosts are related, and how well that is known.

Processes of one host read the same clock, so their times need no conversion. Between hosts, and between containers
with clocks of their own, one process asks the other for its time. The answer was given at some moment between the
question and its arrival, and nobody knows when: the middle is taken, and the error is half of the round trip. Of
several answers, the fastest one says most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_KEPT = 16  # answers: clocks drift apart, so old ones are forgotten


class Answer(NamedTuple):
    """An answer to the question for the time: when it was asked, what the other clock showed, when it was heard."""

    asked: int
    answered: int
    heard: int


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What is added to the times of a clock to have those of another.

    Attributes
    ----------
    offset
        Nanoseconds.
    error
        The largest possible error of the offset, in nanoseconds.
    is_shared
        Whether both are the same clock, that of one host, so that the offset is 0 by definition.
    """

    offset: int = 0
    error: int = 0
    is_shared: bool = True

    def __str__(self) -> str:
        return "shared" if self.is_shared else f"{self.offset / 1e6:+.3f} ms ± {self.error / 1e6:.3f} ms"


def clock_offset(answers: Iterable[Answer]) -> ClockOffset:
    """Return the offset that the fastest of some answers tells; there must be one."""
    asked, answered, heard = min(answers, key=lambda each: each.heard - each.asked)
    return ClockOffset((asked + heard) // 2 - answered, (heard - asked + 1) // 2, is_shared=False)


class OffsetMeasurement:
    """The offset of one clock, from the last answers of its process."""

    def __init__(self) -> None:
        self._answers: deque[Answer] = deque(maxlen=_KEPT)

    def add(self, answer: Answer) -> ClockOffset:
        """Add an answer, and return the offset."""
        self._answers.append(answer)
        return self.offset

    @property
    def offset(self) -> ClockOffset:
        """The offset by the answers so far, of which there must be one."""
        return clock_offset(list(self._answers))

    @property
    def is_sure(self) -> bool:
        """Whether there were several answers."""
        return len(self._answers) >= _KEPT // 2


def describe_clocks(clocks: Mapping[str, ClockOffset]) -> list[str]:
    """Return lines that say how the clocks of parts are related to that of the driver; none without parts."""
    shared = [part for part, clock in clocks.items() if clock.is_shared]
    lines = [f"clocks: {', '.join(shared)} read the clock of one host, offset 0"] if shared else []
    return lines + [
        f"clock of {part}: {clock} added" for part, clock in clocks.items() if not clock.is_shared
    ]
