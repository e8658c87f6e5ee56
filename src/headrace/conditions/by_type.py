"""CONDITIONS: the conditions that a port can select by name."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.conditions.boolean import BooleanCondition
from headrace.conditions.count import CountCondition
from headrace.conditions.downstream import DownstreamMessageAffordableCondition
from headrace.conditions.expiring import ExpiringMessageAvailableCondition
from headrace.conditions.join import JoinCondition
from headrace.conditions.message_available import MessageAvailableCondition
from headrace.conditions.multi_message import (
    MultiMessageAvailableCondition,
    MultiMessageAvailableTimeoutCondition,
)
from headrace.conditions.periodic import PeriodicCondition
from headrace.core.condition import AsynchronousCondition, Condition
from headrace.core.condition_types import ConditionType

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
