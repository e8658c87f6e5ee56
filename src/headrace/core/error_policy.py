"""ErrorPolicy: what happens when an operator's compute raises.

A program writes it as a word, or as a mapping from the word to a limit, so that a configuration file can hold it:
``"stop"``, ``"skip"``, ``{"skip": 100}``, ``{"restart": 3}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.core.errors import ParameterError

OnError: TypeAlias = "Literal['stop', 'skip'] | Mapping[str, int] | ErrorPolicy"
"""The type of ``on_error``."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What happens when a compute raises: `action`, at most `limit` times in a run (None: any number)."""

    action: str = "stop"
    limit: int | None = None

    @staticmethod
    def of(value: Any, operator: str) -> ErrorPolicy:
        """Return the policy that a program wrote as `value` for an operator."""
        if isinstance(value, ErrorPolicy):
            return value
        if isinstance(value, str) and value in ("stop", "skip"):
            return ErrorPolicy(value)
        if isinstance(value, Mapping) and len(value) == 1:
            ((action, limit),) = value.items()
            is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
            if action in ("skip", "restart") and is_count:
                return ErrorPolicy(action, limit)
        raise ParameterError(
            f"operator {operator!r}: on_error must be 'stop', 'skip', {{'skip': limit}} or {{'restart': limit}}, "
            f"where the limit is a positive int, not {value!r}"
        )
