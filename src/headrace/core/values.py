"""Values from a program, a configuration file or the environment: each is checked and converted here.

Whole numbers, flags, sizes of memory (``"16MB"``), durations (``"33ms"``, ``"30Hz"``), and the GPUs and cores of a
process. An error names the value and says what would be right.
"""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

from headrace.brief import brief


def whole_number(value: object, what: str, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number of any library as an int; raise for anything else, and for one out of bounds.

    Parameters
    ----------
    value
        The number; a bool or a float is none.
    what
        The name of the number, for the error.
    least, most
        The smallest and the largest allowed; no bound unless given.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{what} must be an int, not {brief(value)}")
    number = int(value)
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{what} must be {bounds}, not {_short(number)}")
    return number


def whole_numbers(values: object, what: str, least: int = 0) -> tuple[int, ...]:
    """Return whole numbers, each at least `least`, as ints; raise for anything else."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a list of ints, such as [0, 1], not {brief(values)}")
    return tuple(whole_number(value, f"each number in {what}", least) for value in values)


def _short(number: int) -> str:
    """Return a number for people to read; Python refuses to write one of more than 4,300 digits."""
    bits = number.bit_length()
    return str(number) if bits < 200 else f"a number of about {bits * 30103 // 100000} digits"


_YES = ("1", "true", "on", "yes")
_NO = ("0", "false", "off", "no")


def boolean(value: Any, what: str) -> bool:
    """Return a flag as a bool; raise for text, since ``bool("no")`` is True, and for other objects.

    Parameters
    ----------
    value
        True or False, of any library, or 1 or 0.
    what
        The name of the flag, for the error.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str | bytes) or not any(value == flag for flag in (True, False)):
        raise TypeError(f"{what} must be True or False, not {brief(value)}")
    return bool(value)


def flag(text: str) -> bool:
    """Return a flag of the environment, which is text, as a bool."""
    if text.strip().lower() not in (*_YES, *_NO):
        raise ValueError(f"must be one of {', '.join((*_YES, *_NO))}")
    return text.strip().lower() in _YES


def is_set(variable: str) -> bool:
    """Return a flag of the environment, which is False if it is not there; raise ValueError if it is none."""
    text = os.environ.get(variable, "")
    try:
        return bool(text.strip()) and flag(text)
    except ValueError as error:
        raise ValueError(f"{variable}={text}: {error}") from None


Size: TypeAlias = int | str
"""A size of memory: a number of bytes, or text such as ``"16MB"``; units are powers of 1024."""

_SIZE_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]+)?\s*")


def byte_size(value: object, what: str, least: int = 0) -> int:
    """Return a size in bytes; `what` begins the error where it is none, or less than `least`."""
    size: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str):
        found = _SIZE_TEXT.fullmatch(value)
        unit = None if found is None else _SIZE_UNITS.get((found[2] or "B").upper())
        if found is not None and unit is not None:
            number = int(found[1]) * unit if found[1].isdigit() else float(found[1]) * unit
            size = int(number)
    if size is None:
        raise (ValueError if isinstance(value, str) else TypeError)(
            f"{what} must be a size such as '16MB' or '1.5 GB' (B, KB, MB, GB or TB, by 1024), or a number of "
            f"bytes, not {brief(value)}"
        )
    if size < least:
        raise ValueError(f"{what} must be at least {size_text(least)}, not {brief(value)}")
    return size


def size_text(size: int) -> str:
    """Return a size for people to read, as ``4 MB`` or ``1.5 GB``."""
    unit, factor = "B", 1
    for name, bytes_ in _SIZE_UNITS.items():
        if size >= bytes_:
            unit, factor = name, bytes_
    if factor == 1:
        return f"{size} B"
    if size % factor == 0:
        return f"{size // factor} {unit}"
    return f"{size / factor:.4g} {unit} ({size} bytes)"


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
    """Return a duration in milliseconds; a number means milliseconds."""
    if isinstance(duration, timedelta):
        return in_milliseconds(nanoseconds(duration, what))
    if isinstance(duration, str):
        if re.fullmatch(r"\s*[-+]?[0-9]+\s*", duration):
            return int(duration)  # here a bare number means milliseconds
        with suppress(ValueError):
            return in_milliseconds(_parse(duration, what))
    elif (number := finite_number(duration)) is not None:
        return number
    raise (ValueError if isinstance(duration, str) else TypeError)(
        f"{what} must be a number of milliseconds, a str such as '1.5s' or a timedelta, not {duration!r}"
    )


def in_milliseconds(time: int) -> int | float:
    """Return nanoseconds as milliseconds, whole ones as an int."""
    whole, rest = divmod(time, 1_000_000)
    return time / 1e6 if rest else whole


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


STOP, RESTART, GO_ON = "stop", "restart", "go_on"
ON_LOSS = (STOP, RESTART, GO_ON)


def places(given: object, what: str) -> int | tuple[int, ...] | None:
    """Return a number of GPUs or cores, or which ones; raise for anything else."""
    if given is None:
        return None
    if isinstance(given, Sequence) and not isinstance(given, str):
        found = tuple(whole_number(each, what, 0) for each in given)
        if len(set(found)) < len(found) or not found:
            raise ValueError(f"{what} must name each one once, as in [0, 1], not {list(given)}")
        return found
    return whole_number(given, what, 0)
