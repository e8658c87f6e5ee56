"""What is said on an exception about where it was raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.operator import Operator

__all__ = ["note", "traceback_of"]


def note(error: BaseException, phase: str, operator: Operator) -> None:
    """Say on an exception which operator raised it, and in which phase."""
    error.add_note(f"raised in {phase} of operator {operator.name!r} ({type(operator).__name__})")


def traceback_of(error: BaseException) -> str:
    """Return an exception and where it was raised as text, for the log.

    The log is not given the exception: a handler that keeps its records would keep the frames, and with them
    whatever the operator worked on.
    """
    import traceback

    return "".join(traceback.format_exception(error)).rstrip()
