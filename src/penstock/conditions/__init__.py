"""The catalogue of conditions: when an operator runs."""

from typing import TYPE_CHECKING, Any

from penstock.conditions.asynchronous import AsynchronousCondition, AsynchronousEventState
from penstock.conditions.boolean import BooleanCondition
from penstock.conditions.count import CountCondition
from penstock.conditions.downstream import DownstreamMessageAffordableCondition
from penstock.conditions.either import OrConditionCombiner
from penstock.conditions.expiring import ExpiringMessageAvailableCondition
from penstock.conditions.message_available import MessageAvailableCondition
from penstock.conditions.multi_message import (
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
)
from penstock.conditions.periodic import PeriodicCondition, PeriodicConditionPolicy

if TYPE_CHECKING:
    from penstock.conditions.cuda_stream import CudaStreamCondition

__all__ = [
    "AsynchronousCondition",
    "AsynchronousEventState",
    "BooleanCondition",
    "CountCondition",
    "CudaStreamCondition",
    "DownstreamMessageAffordableCondition",
    "ExpiringMessageAvailableCondition",
    "MessageAvailableCondition",
    "MultiMessageAvailableCondition",
    "MultiMessageAvailableTimeoutCondition",
    "OrConditionCombiner",
    "PeriodicCondition",
    "PeriodicConditionPolicy",
]


def __getattr__(name: str) -> Any:
    if name != "CudaStreamCondition":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.conditions.cuda_stream import CudaStreamCondition  # brings the device layer with it

    return CudaStreamCondition
