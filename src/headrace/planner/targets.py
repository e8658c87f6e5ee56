"""Targets: what a plan has to reach, as text such as ``"control: p99 < 500us"``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from headrace.core.errors import choices
from headrace.core.values import nanoseconds

FIGURES = ("p50", "p99", "rate")
CLOCKS_DIFFER = 0.001
"""By how much of it the rate of a clock may miss its bound: periods are whole nanoseconds, and clocks differ."""
_TEXT = re.compile(
    r"\s*(?P<subject>[^:]+?)\s*:\s*(?P<figure>\w+)\s*(?P<sign><=|>=|<|>)\s*(?P<bound>\S.*?)\s*"
)
_EXAMPLES = "'control: p99 < 500us', 'camera->display: p50 < 20ms' or 'vision: rate >= 60'"


@dataclass(frozen=True, slots=True)
class Target:
    """One goal of a plan.

    Attributes
    ----------
    subject
        An operator, whose frames count from their sources on; or a path, ``"camera->display"``.
    figure
        ``"p50"`` or ``"p99"``, of the latency, or ``"rate"``, of the computes of the last operator.
    bound
        Nanoseconds for a latency, computes per second for a rate.
    """

    subject: str
    figure: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a target; raise ValueError, with what would be right, for any other text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"a goal is written as {_EXAMPLES}; not {text!r}")
        figure = found["figure"]
        if figure not in FIGURES:
            raise ValueError(
                f"goal {text!r}: the figure is one of {choices(FIGURES, figure)}, not {figure!r}"
            )
        is_rate = figure == "rate"
        if found["sign"].startswith("<") is is_rate:
            right = ">=" if is_rate else "<"
            raise ValueError(f"goal {text!r}: {figure} is bounded by {right!r}, not by {found['sign']!r}")
        what = f"goal {text!r}: {figure}"
        bound = _rate(found["bound"], what) if is_rate else nanoseconds(found["bound"], what)
        if not 0 < bound < math.inf:
            raise ValueError(f"{what} must be a finite number above 0, not {found['bound']!r}")
        return cls(found["subject"], figure, bound)

    @property
    def is_rate(self) -> bool:
        """Whether it bounds a rate from below; otherwise it bounds a latency from above."""
        return self.figure == "rate"

    @property
    def names(self) -> list[str]:
        """The operators that it names, in order."""
        return [name.strip() for name in self.subject.split("->")]

    def is_met(self, value: float) -> bool:
        """Whether a measured value reaches the bound; a rate does within a thousandth, by which clocks differ."""
        return self.margin(value) >= (-CLOCKS_DIFFER if self.is_rate else 0.0)

    def margin(self, value: float) -> float:
        """Return how far a value is from the bound, as a share of it; negative if it is on the wrong side."""
        return (value - self.bound) / self.bound if self.is_rate else (self.bound - value) / self.bound

    def shown(self, value: float) -> str:
        """Return a value of the figure with its unit."""
        return f"{value:.4g}/s" if self.is_rate else shown_time(value)

    def __str__(self) -> str:
        if self.is_rate:
            return f"{self.subject}: rate >= {self.bound:.10g}"
        return f"{self.subject}: {self.figure} < {self.bound / 1e3:.12g}us"


def _rate(text: str, what: str) -> float:
    """Read computes per second: a number, or one with a unit of frequency."""
    try:
        return float(text)
    except ValueError:
        return round(1e9 / nanoseconds(text, what), 6)


def shown_time(nanoseconds: float) -> str:
    """Return a time in a unit in which it has few digits."""
    for unit, length in (("us", 1e3), ("ms", 1e6)):
        if nanoseconds < 9_999.5 * length:
            return f"{nanoseconds / length:.4g}{unit}"
    return f"{nanoseconds / 1e9:.4g}s"
