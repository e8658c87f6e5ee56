"""CONDITIONS: the conditions that a port can select by name."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.conditions.boolean import BooleanCondition
from headrace.conditions.count import CountCondition
from headrace.conditions.join import JoinCondition
from headrace.conditions.periodic import PeriodicCondition
from headrace.conditions.ports import (
    DownstreamMessageAffordableCondition,
    ExpiringMessageAvailableCondition,
    MessageAvailableCondition,
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
)
from headrace.core.condition import AsynchronousCondition, Condition
from headrace.core.ports import ConditionType

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
    ConditionType.JOIN: JoinCondition,
}
