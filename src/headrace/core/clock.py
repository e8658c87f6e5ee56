"""Clock: the only source of time in a run.

Every wait of a scheduler goes through a clock, which answers three questions: what time it is
(:meth:`Clock.timestamp`), how long a thread must really sleep until a time (:meth:`Clock.seconds_until`), and
whether time can be moved there instead (:meth:`Clock.jump_to`). With a clock whose time jumps, a test of a
ten-minute timeout takes a millisecond. A clock whose time is set from outside announces each change
(:meth:`Clock.watch`).
"""

from __future__ import annotations

import math
import numbers
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import ClassVar, Protocol, TypeAlias

from headrace.core.resource import Resource

__all__ = ["Clock", "Duration", "Parker", "finite_number", "milliseconds", "nanoseconds"]


Duration: TypeAlias = int | float | str | timedelta
"""A length of time: an int is nanoseconds, a float is seconds, a str has a unit (``"33ms"``, ``"30Hz"``)."""

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
_CHANGING = threading.Lock()
_TEXT = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\W\d_]*)\s*"


def nanoseconds(duration: Duration, what: str = "a duration") -> int:
    """Return a duration in nanoseconds.

    Parameters
    ----------
    duration
        An int is nanoseconds, a float is seconds; a str is a number with a unit of time (ns, us, ms, s, min, h), or
        of frequency (Hz, kHz, MHz), which means its period; or a timedelta.
    what
        The name of the duration, for the error.
    """
    if isinstance(duration, str):
        found = _parse(duration, what)
    elif isinstance(duration, timedelta):
        found = (duration.days * 86_400 + duration.seconds) * 1_000_000_000 + duration.microseconds * 1_000
    else:
        number = finite_number(duration)
        if number is None:
            raise TypeError(f"{what} must be {_FORMS}; not {duration!r}")
        found = number if isinstance(number, int) else round(min(max(number, -1e12), 1e12) * 1e9)
    if not -_LONGEST <= found <= _LONGEST:
        raise ValueError(f"{what} must be less than 292 years, which 64 bits of nanoseconds hold")
    return found


def milliseconds(duration: int | float | str | timedelta, what: str) -> int | float:
    """Return a duration in milliseconds; a number means milliseconds; text and a timedelta are rounded up."""
    if isinstance(duration, str):
        if re.fullmatch(r"\s*[-+]?[0-9]+\s*", duration):
            return int(duration)  # here a bare number means milliseconds
        try:
            return -(-_parse(duration, what) // 1_000_000)
        except ValueError:
            raise ValueError(_not_milliseconds(duration, what)) from None
    if isinstance(duration, timedelta):
        return -(-nanoseconds(duration, what) // 1_000_000)
    number = finite_number(duration)
    if number is not None:
        return number
    raise TypeError(_not_milliseconds(duration, what))


def _not_milliseconds(duration: object, what: str) -> str:
    return f"{what} must be a number of milliseconds, a str such as '1.5s' or a timedelta, not {duration!r}"


def finite_number(value: object) -> int | float | None:
    """Return a number of any library as an int or a float, or None for anything but a finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        return int(value)  # of any size, so not by way of a float
    return float(value) if math.isfinite(value) else None


_LONGEST = 2**63 - 1
_LONGEST_TEXT = 100  # characters
_FORMS = (
    "an int (nanoseconds), a float (seconds), a timedelta, or a str of a number and a unit: "
    "'500us', '33ms', '1.5s', '2min', '30Hz'"
)


def _parse(text: str, what: str) -> int:
    from fractions import Fraction  # slow to import, as it imports decimal

    match = re.fullmatch(_TEXT, text) if len(text) <= _LONGEST_TEXT else None
    if match is not None:
        number, unit = match[1], match[2]
        if not unit and number.lstrip("+-").isdigit():
            return int(number)  # a bare number of nanoseconds
        if (
            len(number.lower().partition("e")[2].lstrip("+-0")) > 2
        ):  # a power of ten that takes long to compute
            raise ValueError(f"{what} must be {_FORMS}; not {text!r}")
        if unit in _UNITS:
            # Exact, unlike floats: "0.1s" is 100,000,000 ns.
            return round(Fraction(number) * _UNITS[unit])
        if unit.lower() in _FREQUENCIES:
            if Fraction(number) <= 0:
                raise ValueError(f"{what} must have a frequency of more than 0, not {text!r}")
            return round(Fraction(1_000_000_000) / (Fraction(number) * _FREQUENCIES[unit.lower()]))
    raise ValueError(f"{what} must be {_FORMS}; not {text!r:.100}")


class Parker(Protocol):
    """The place where one worker of a scheduler waits."""

    def park(self, seconds: float | None) -> bool:
        """Wait until unparked (True), or until `seconds` have passed (False)."""

    def take(self) -> bool:
        """Take the permit, if there is one, without waiting."""

    def unpark(self) -> None:
        """End the wait; may be called from any thread."""


class Clock(Resource):
    """The base of clocks."""

    passes: ClassVar[bool] = False
    """Whether time passes by itself, so that a thread can sleep until a time."""

    @property
    def is_virtual(self) -> bool:
        """Whether time stands still while operators compute, so that every run on one thread is the same."""
        return False

    def timestamp(self) -> int:
        """Return the time in nanoseconds."""
        raise NotImplementedError

    def time(self) -> float:
        """Return the time in seconds."""
        return self.timestamp() / 1e9

    def sleep_for(self, duration: Duration) -> None:
        """Sleep for some time of this clock: nanoseconds (int), seconds (float), ``"33ms"`` or a timedelta."""
        self.sleep_until(self.timestamp() + nanoseconds(duration))

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until this clock shows `target_time_ns`."""
        raise NotImplementedError

    def seconds_until(self, target_time_ns: int) -> float | None:
        """Return the real seconds until this clock shows a time, or None if they are unknown (see `watch`)."""
        raise NotImplementedError

    def jump_to(self, target_time_ns: int) -> bool:
        """Move to a time at once and return True, or return False if a run cannot move this clock.

        A scheduler calls it only when nothing is running and nothing is ready.
        """
        return False

    def park(self, parker: Parker, seconds: float | None) -> bool:
        """Wait, as a worker, until unparked (True) or until `seconds` have passed (False)."""
        return parker.park(seconds)

    def unpark(self, parker: Parker) -> None:
        """End the wait of a parked worker; may be called from any thread."""
        parker.unpark()

    def attach(self) -> AbstractContextManager[None]:
        """Count this thread as working for the duration of a ``with`` block."""
        return nullcontext()

    # The functions to call after a change; each run that uses the clock adds one. A tuple that is replaced under
    # `_CHANGING`, so that any thread can read it.
    _watchers: tuple[Callable[[], None], ...] = ()

    def watch(self, announce: Callable[[], None]) -> None:
        """Call a function, from any thread, whenever the time or its scale was changed, until `unwatch`."""
        with _CHANGING:
            self._watchers = (*self._watchers, announce)

    def unwatch(self, announce: Callable[[], None]) -> None:
        """Call a function no more."""
        with _CHANGING:
            self._watchers = tuple(known for known in self._watchers if known != announce)

    def announce(self) -> None:
        """Tell the runs that use this clock that its time or its scale was changed; from any thread."""
        for announce in self._watchers:
            announce()

    @property
    def is_in_use(self) -> bool:
        """Whether a run that is in progress uses this clock, so that its time must not be set back."""
        return bool(self._watchers)
