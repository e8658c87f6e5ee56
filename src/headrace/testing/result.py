"""OperatorResult: what an operator that ran by itself emitted, as messages with their metadata and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.durations import Duration
from headrace.core.errors import PortError, absent


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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OperatorResult(Mapping[str, list[Any]]):
    """What an operator emitted: a list of values for each output, as in ``result["out"]``."""

    operator: Any
    """The operator, as its last compute and `stop` left it."""
    messages: dict[str, list[Message]]
    """The emitted messages, by output, with metadata and times."""
    steps: int
    """The number of its computes."""
    not_received: dict[str, int]
    """The number of messages that it never received, by input; empty if it received all."""

    def __getitem__(self, output: str) -> list[Any]:
        if output not in self.messages:
            raise PortError(absent(f"operator {self.operator.name!r}", "output", output, self.messages))
        return [message.data for message in self.messages[output]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"<OperatorResult of {self.operator.name!r} after {self.steps} steps: {dict(self)!r}>"
