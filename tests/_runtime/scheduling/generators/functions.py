"""A function that yields, for several tests."""

from __future__ import annotations

from typing import Any

from headrace import op


@op
def repeat(value: int) -> Any:
    """Yield each number as often as it says."""
    for _ in range(value):
        yield value
