"""Outcome: the result of running an operator by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.core.errors import PortError, choices
from headrace.core.operator import Operator
from headrace.testing.message import Message

__all__ = ["Outcome"]


class Outcome(Mapping[str, list[Any]]):
    """What an operator emitted: a list of values for each output, as in ``outcome["out"]``.

    Attributes
    ----------
    operator
        The operator, as its last compute and `stop` left it.
    messages
        The emitted messages, by output, with metadata and times.
    steps
        The number of its computes.
    not_received
        The number of messages that it never received, by input; empty if it received all.
    """

    def __init__(
        self,
        operator: Operator,
        messages: dict[str, list[Message]],
        steps: int,
        not_received: dict[str, int],
    ) -> None:
        self.operator: Any = operator
        self.messages = messages
        self.steps = steps
        self.not_received = not_received

    def __getitem__(self, output: str) -> list[Any]:
        if output not in self.messages:
            raise PortError(
                f"operator {self.operator.name!r} has no output {output!r}; "
                f"it has {choices(self.messages, output)}"
            )
        return [message.data for message in self.messages[output]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"<Outcome of {self.operator.name!r} after {self.steps} steps: {dict(self)!r}>"
