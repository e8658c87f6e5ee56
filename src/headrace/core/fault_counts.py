"""FaultCounts: how often the computes of an operator failed or were stuck in a run, and what was done about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FaultCounts:
    """How often the computes of one operator failed or were stuck.

    A run has one for each operator, and `Fragment.progress` returns copies. Only the operator's computes change it,
    except for `stuck`, which the watchdog changes.
    """

    skipped: int = 0
    """The number of errors whose messages were given up, without a restart (``on_error``)."""
    restarts: int = 0
    """The number of times it was stopped and started again after an error."""
    retries: int = 0
    """The number of times it computed again after an error."""
    dead_letters: int = 0
    """How many of the messages that were given up were sent to the output for them."""
    stuck: int = 0
    """The number of computes that took longer than the operator's deadline."""
    cut_off: int = 0
    """The number of errors whose messages were given up because the run ended before they were tried again."""
    last_error: str = ""
    """The last of these errors."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The counts, in the order of their names here."""
        return self.skipped, self.restarts, self.retries, self.dead_letters, self.stuck, self.cut_off

    def __bool__(self) -> bool:
        return any(self.numbers)
