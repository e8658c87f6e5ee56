"""The catalogue of conditions: when an operator runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.conditions.asynchronous import AsynchronousCondition, AsynchronousEventState
from penstock.conditions.boolean import BooleanCondition
from penstock.conditions.count import CountCondition
from penstock.conditions.downstream import DownstreamMessageAffordableCondition
from penstock.conditions.expiring import ExpiringMessageAvailableCondition
from penstock.conditions.memory_available import MemoryAvailableCondition
from penstock.conditions.message_available import MessageAvailableCondition
from penstock.conditions.multi_message import (
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
)
from penstock.conditions.or_combiner import OrConditionCombiner
from penstock.conditions.periodic import PeriodicCondition, PeriodicConditionPolicy
from penstock.core.registry import registry

if TYPE_CHECKING:
    from penstock.conditions.cuda_stream import CudaStreamCondition
    from penstock.core.condition import Condition
    from penstock.core.fragment import Fragment

__all__ = [
    "AsynchronousCondition",
    "AsynchronousEventState",
    "BooleanCondition",
    "CountCondition",
    "CudaStreamCondition",
    "DownstreamMessageAffordableCondition",
    "ExpiringMessageAvailableCondition",
    "MemoryAvailableCondition",
    "MessageAvailableCondition",
    "MultiMessageAvailableCondition",
    "MultiMessageAvailableTimeoutCondition",
    "OrConditionCombiner",
    "PeriodicCondition",
    "PeriodicConditionPolicy",
]


if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import, on first use, the condition that needs the runtime's streams."""
        if name != "CudaStreamCondition":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from penstock.conditions.cuda_stream import CudaStreamCondition

        return CudaStreamCondition


def _any_of(fragment: Fragment, terms: list[Condition], name: str) -> Condition:
    return OrConditionCombiner(fragment, terms=terms, name=name)


registry.any_of = _any_of
