"""The catalogue of conditions: when an operator runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conditions.asynchronous import AsynchronousCondition, AsynchronousEventState
from headrace.conditions.boolean import BooleanCondition
from headrace.conditions.count import CountCondition
from headrace.conditions.downstream import DownstreamMessageAffordableCondition
from headrace.conditions.expiring import ExpiringMessageAvailableCondition
from headrace.conditions.memory_available import MemoryAvailableCondition
from headrace.conditions.message_available import MessageAvailableCondition
from headrace.conditions.multi_message import (
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
)
from headrace.conditions.or_combiner import OrConditionCombiner
from headrace.conditions.periodic import PeriodicCondition, PeriodicConditionPolicy
from headrace.core.condition_types import ConditionType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conditions.cuda_stream import CudaStreamCondition
    from headrace.core.condition import Condition

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

CONDITIONS: Mapping[ConditionType, type[Condition]] = {
    ConditionType.MESSAGE_AVAILABLE: MessageAvailableCondition,
    ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE: DownstreamMessageAffordableCondition,
    ConditionType.COUNT: CountCondition,
    ConditionType.BOOLEAN: BooleanCondition,
    ConditionType.PERIODIC: PeriodicCondition,
    ConditionType.ASYNCHRONOUS: AsynchronousCondition,
    ConditionType.EXPIRING_MESSAGE_AVAILABLE: ExpiringMessageAvailableCondition,
    ConditionType.MULTI_MESSAGE_AVAILABLE: MultiMessageAvailableCondition,
    ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT: MultiMessageAvailableTimeoutCondition,
}
"""The conditions that a port can select by name."""

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import, on first use, the condition that needs the runtime's streams."""
        if name != "CudaStreamCondition":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from headrace.conditions.cuda_stream import CudaStreamCondition

        return CudaStreamCondition
