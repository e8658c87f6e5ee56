"""Clock: the only source of time in a run.

Every wait a scheduler makes goes through a clock, by three questions: what time is it
(:meth:`Clock.timestamp`), how long must a thread really sleep to see a moment
(:meth:`Clock.seconds_until`), and may time be moved there instead (:meth:`Clock.jump_to`). A clock whose
time jumps makes a test of a ten-minute timeout take a millisecond; a clock that others move announces it
through :meth:`Clock.watch`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from penstock.core.resource import Resource

if TYPE_CHECKING:
    from penstock.runtime.parker import Parker

__all__ = ["Clock", "nanoseconds"]


def nanoseconds(duration: int | float | timedelta) -> int:
    """Turn a duration into nanoseconds: an int is nanoseconds already, a float is seconds."""
    if isinstance(duration, timedelta):
        return (duration.days * 86_400 + duration.seconds) * 1_000_000_000 + duration.microseconds * 1_000
    if isinstance(duration, float):
        return round(duration * 1e9)
    return int(duration)


class Clock(Resource):
    """The base of clocks."""

    passes: ClassVar[bool] = False
    """Whether time passes by itself, so that a thread can sleep until it comes."""

    def timestamp(self) -> int:
        """Give the time in nanoseconds."""
        raise NotImplementedError

    def time(self) -> float:
        """Give the time in seconds."""
        return self.timestamp() / 1e9

    def sleep_for(self, duration: int | float | timedelta) -> None:
        """Sleep for nanoseconds (int), seconds (float) or a timedelta of this clock's time."""
        self.sleep_until(self.timestamp() + nanoseconds(duration))

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until this clock shows `target_time_ns`."""
        raise NotImplementedError

    def seconds_until(self, target_time_ns: int) -> float | None:
        """Give the real seconds until this clock shows a time, or None if only an announcement can tell."""
        raise NotImplementedError

    def jump_to(self, target_time_ns: int) -> bool:
        """Move to a time at once and say True, or say False if this clock's time is not a run's to move.

        A scheduler calls it only when nothing is running and nothing is ready.
        """
        return False

    def park(self, parker: Parker, seconds: float | None) -> bool:
        """Have a worker wait until unparked (True) or until so many seconds have passed (False)."""
        return parker.park(seconds)

    def unpark(self, parker: Parker) -> None:
        """End the wait of a parked worker; may be called from any thread."""
        parker.unpark()

    def attach(self) -> AbstractContextManager[None]:
        """Count this thread as one that works, for the length of a ``with``."""
        return nullcontext()

    def watch(self, announce: Callable[[], None] | None) -> None:
        """Name the function to call, from any thread, when the time was moved or its pace changed."""
