"""Durations as people write them: ``"33ms"``, ``"30Hz"``, seconds, nanoseconds, a timedelta."""

from __future__ import annotations

import math
import numbers
import re
from datetime import timedelta
from typing import TypeAlias

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
        # A large power of ten takes long to compute.
        if len(number.lower().partition("e")[2].lstrip("+-0")) > 2:
            raise ValueError(f"{what} must be {_FORMS}; not {text!r}")
        if unit in _UNITS:
            # Exact, unlike floats: "0.1s" is 100,000,000 ns.
            return round(Fraction(number) * _UNITS[unit])
        if unit.lower() in _FREQUENCIES:
            if Fraction(number) <= 0:
                raise ValueError(f"{what} must have a frequency of more than 0, not {text!r}")
            return round(Fraction(1_000_000_000) / (Fraction(number) * _FREQUENCIES[unit.lower()]))
    raise ValueError(f"{what} must be {_FORMS}; not {text!r:.100}")
