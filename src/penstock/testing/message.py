"""Message: what an operator is given, or has emitted, with all that comes with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.core.clock import Duration

__all__ = ["Message"]


@dataclass(frozen=True, slots=True)
class Message:
    """A value with its metadata and its times.

    Parameters
    ----------
    data
        The value.
    metadata
        The metadata that travels with it.
    acq_timestamp
        When it was acquired, in nanoseconds, where that is said.
    at
        When it is sent, counted from the begin of the run: a duration such as ``"40ms"``, or None for as soon as
        there is room. For one that was emitted, when it was, in nanoseconds.
    """

    data: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    acq_timestamp: int | None = None
    at: Duration | None = None
