"""Whole numbers from a program or a configuration file: sizes, counts, the numbers of cores."""

from __future__ import annotations

import numbers
from collections.abc import Iterable

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
