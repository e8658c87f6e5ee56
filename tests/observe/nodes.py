"""What stands for the node of an operator in tests that make computes themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.core import FaultCounts


def idle_node() -> Any:
    """Return a node without conditions, faults and frames."""
    operator = SimpleNamespace(conditions={}, _headrace=SimpleNamespace(conditions=()))
    return SimpleNamespace(counts=FaultCounts(), operator=operator, lifetimes=None)
