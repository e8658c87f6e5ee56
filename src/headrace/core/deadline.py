"""Deadline: how long a compute of an operator may take, and what happens when one takes longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.core.durations import Duration, nanoseconds
from headrace.core.errors import ParameterError

OnStuck: TypeAlias = "Literal['log', 'abort'] | Callable[[Stuck], object]"
"""The type of ``on_stuck``."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A compute that has taken longer than the deadline of its operator."""

    operator: str
    """The name of the operator."""
    seconds: float
    """How long it has computed so far, by the clock of the run."""
    deadline: float
    """How long it may compute, in seconds."""
    stack: str
    """The stack of its thread at that moment; empty if the compute had ended by then.

    For a call of a coroutine, where it awaits; or where the event loop is, if the call had not begun.
    """

    def __str__(self) -> str:
        text = (
            f"operator {self.operator!r} has computed for {self.seconds:.3f} s, longer than its deadline of "
        )
        return f"{text}{self.deadline:g} s" + (f"\n{self.stack}" if self.stack else "")


def time_limit(duration: Duration, operator: str) -> int:
    """Return the deadline that a program wrote for an operator, in nanoseconds."""
    try:
        limit = nanoseconds(duration, "deadline")
    except (TypeError, ValueError) as error:
        raise ParameterError(f"operator {operator!r}: {error}") from None
    if limit <= 0:
        raise ParameterError(f"operator {operator!r}: deadline must be positive, not {duration!r}")
    return limit


def check_on_stuck(on_stuck: Any, operator: str) -> OnStuck:
    """Return what a program wrote as ``on_stuck`` for an operator; raise if it makes no sense."""
    if on_stuck in ("log", "abort") or callable(on_stuck):
        found: OnStuck = on_stuck
        return found
    raise ParameterError(
        f"operator {operator!r}: on_stuck must be 'log', 'abort' or a function that takes a Stuck, not {on_stuck!r}"
    )
