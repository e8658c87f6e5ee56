"""Parameter: a named setting of an operator or condition, declared once and checked when it is set.

The expected type is the class's annotation if that is a plain class, and otherwise the type of the default value.
An int is accepted as a float, a bool is not accepted as an int, and a NumPy scalar counts as a number.
"""

from __future__ import annotations

import enum
import numbers
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import ParameterError

__all__ = ["REQUIRED", "Parameter", "ParameterFlag"]


class ParameterFlag(enum.Enum):
    """Whether a parameter must have a value."""

    NONE = 0
    OPTIONAL = 1
    DYNAMIC = 2


class _Required(enum.Enum):
    REQUIRED = "required"

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required.REQUIRED
"""The default of a parameter without one: the program must give a value."""


@dataclass(slots=True)
class Parameter:
    """One declared parameter."""

    name: str
    default: Any = REQUIRED
    flag: ParameterFlag = ParameterFlag.NONE
    expected: type | None = None
    headline: str = ""
    description: str = ""

    @property
    def is_required(self) -> bool:
        """Whether the program must give a value."""
        return self.default is REQUIRED and self.flag is not ParameterFlag.OPTIONAL

    def check(self, value: Any, owner: str) -> Any:
        """Return `value`, converted if the conversion is lossless, or raise ParameterError."""
        expected = self.expected
        if expected is None or (
            value is None and (self.default is None or self.flag is ParameterFlag.OPTIONAL)
        ):
            return value
        if _fits(value, expected):
            return float(value) if expected is float and not isinstance(value, float) else value
        hint = ""
        if expected is int and isinstance(value, float) and value.is_integer():
            hint = f"; write {int(value)}"  # a 1e6 in a file is a float
        raise ParameterError(
            f"parameter {self.name!r} of {owner} must be {_article(expected)}, "
            f"not {_article(type(value))} ({value!r}){hint}"
        )


def _fits(value: Any, expected: type) -> bool:
    if expected is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if expected is list or expected is tuple:
        # YAML has one kind of sequence.
        return isinstance(value, (list, tuple))
    return isinstance(value, expected)


def _article(kind: type) -> str:
    name = kind.__name__
    return f"an {name}" if name[0].lower() in "aeio" else f"a {name}"
