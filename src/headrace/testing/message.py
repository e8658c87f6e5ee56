"""Message: a value that an operator receives or has emitted, with its metadata and times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.core.durations import Duration

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
        When the value was acquired, in nanoseconds; None if unknown.
    at
        When it is sent, counted from the start of the run: a duration such as ``"40ms"``, or None to send it as
        soon as there is room. For an emitted message, when it was emitted, in nanoseconds.
    """

    data: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    acq_timestamp: int | None = None
    at: Duration | None = None
