"""The catalogue of conditions: when an operator runs."""

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

__all__ = [
    "AsynchronousCondition",
    "AsynchronousEventState",
    "BooleanCondition",
    "CountCondition",
    "DownstreamMessageAffordableCondition",
    "ExpiringMessageAvailableCondition",
    "MessageAvailableCondition",
    "MultiMessageAvailableCondition",
    "MultiMessageAvailableTimeoutCondition",
    "OrConditionCombiner",
    "PeriodicCondition",
    "PeriodicConditionPolicy",
]
