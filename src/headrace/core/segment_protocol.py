"""Segment: what drawings and figures read of a captured segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.core.operator import Operator


class Segment(Protocol):
    """Operators that are captured as one CUDA graph: `headrace.capture.Segment`."""

    name: str
    operators: tuple[Operator, ...]
    state: str
    reason: str
    frames: int
    replayed: int
    recordings: int

    @property
    def label(self) -> str:
        """The name and, after a run, the state, for drawings."""

    @property
    def saved(self) -> float:
        """The host's time that replaying saved in the last run, in seconds."""

    def report(self) -> str:
        """Return a line about the last run."""
