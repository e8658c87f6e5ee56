"""Clock: the only source of time in a run.

Every wait a scheduler makes goes through a clock, by three questions: what time is it
(:meth:`Clock.timestamp`), how long must a thread really sleep to see a moment
(:meth:`Clock.seconds_until`), and may time be moved there instead (:meth:`Clock.jump_to`). A clock whose
time jumps makes a test of a ten-minute timeout take a millisecond; a clock that others move announces it
through :meth:`Clock.watch`.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from penstock.core.resource import Resource

if TYPE_CHECKING:
    from penstock.core.protocols import Parker

__all__ = ["Clock", "Duration", "milliseconds", "nanoseconds"]


Duration: TypeAlias = int | float | str | timedelta
"""A length of time: an int is nanoseconds, a float is seconds, a str says its unit (``"33ms"``, ``"30Hz"``)."""

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_FREQUENCIES = {"hz": 1, "khz": 1_000, "mhz": 1_000_000}
_TEXT = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\W\d_]*)\s*"


def nanoseconds(duration: Duration, what: str = "a duration") -> int:
    """Return a duration in nanoseconds.

    Parameters
    ----------
    duration
        An int is nanoseconds already, a float is seconds; a str is a number with its unit, of a time (ns, us, ms,
        s, min, h) or of a frequency (Hz, kHz, MHz), whose period is meant; or a timedelta.
    what
        What it is, for the error that says that it is none.
    """
    if isinstance(duration, str):
        return _parse(duration, what)
    if isinstance(duration, timedelta):
        return (duration.days * 86_400 + duration.seconds) * 1_000_000_000 + duration.microseconds * 1_000
    number = _number(duration)
    if number is not None:
        return number if isinstance(number, int) else round(number * 1e9)
    raise TypeError(f"{what} must be {_FORMS}; not {duration!r}")


def milliseconds(duration: int | float | str | timedelta, what: str) -> int | float:
    """Return a duration in milliseconds, where a number is in milliseconds; text and a timedelta are rounded up."""
    if isinstance(duration, str):
        if re.fullmatch(r"\s*[-+]?[0-9]+\s*", duration):
            return int(duration)  # a bare number, here of milliseconds
        try:
            return -(-_parse(duration, what) // 1_000_000)
        except ValueError:
            raise ValueError(_not_milliseconds(duration, what)) from None
    if isinstance(duration, timedelta):
        return -(-nanoseconds(duration, what) // 1_000_000)
    number = _number(duration)
    if number is not None:
        return number
    raise TypeError(_not_milliseconds(duration, what))


def _not_milliseconds(duration: object, what: str) -> str:
    return f"{what} must be a number of milliseconds, a str such as '1.5s' or a timedelta, not {duration!r}"


def _number(value: object) -> int | float | None:
    """Return a number of any library as Python's own, or None for what is no number, or not a finite one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, numbers.Integral) else float(value)


_FORMS = (
    "an int (nanoseconds), a float (seconds), a timedelta, or a str of a number and a unit: "
    "'500us', '33ms', '1.5s', '2min', '30Hz'"
)


def _parse(text: str, what: str) -> int:
    from fractions import Fraction  # with decimal, which it imports, more than all of the rest here

    match = re.fullmatch(_TEXT, text)
    if match is not None:
        number, unit = match[1], match[2]
        if not unit and number.lstrip("+-").isdigit():
            return int(number)  # a bare number of nanoseconds
        if unit in _UNITS:
            # Exact where floats are not: "0.1s" is 100,000,000 ns.
            return round(Fraction(number) * _UNITS[unit])
        if unit.lower() in _FREQUENCIES:
            if Fraction(number) <= 0:
                raise ValueError(f"{what} of {text!r} never comes: a frequency must be more than 0")
            return round(Fraction(1_000_000_000) / (Fraction(number) * _FREQUENCIES[unit.lower()]))
    raise ValueError(f"{what} must be {_FORMS}; not {text!r}")


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

    def sleep_for(self, duration: Duration) -> None:
        """Sleep for nanoseconds (int), seconds (float), ``"33ms"`` or a timedelta of this clock's time."""
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
