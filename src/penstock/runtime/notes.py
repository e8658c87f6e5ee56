"""What is said on an exception about where it was raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.operator import Operator

__all__ = ["note"]


def note(error: BaseException, phase: str, operator: Operator) -> None:
    """Say on an exception which operator raised it, and in which phase."""
    error.add_note(f"raised in {phase} of operator {operator.name!r} ({type(operator).__name__})")
