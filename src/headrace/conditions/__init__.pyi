from headrace.conditions.cuda_stream import CudaStreamCondition as CudaStreamCondition
from headrace.conditions.ending import BooleanCondition as BooleanCondition
from headrace.conditions.ending import CountCondition as CountCondition
from headrace.conditions.memory_available import MemoryAvailableCondition as MemoryAvailableCondition
from headrace.conditions.or_combiner import OrConditionCombiner as OrConditionCombiner
from headrace.conditions.periodic import PeriodicCondition as PeriodicCondition
from headrace.conditions.periodic import PeriodicConditionPolicy as PeriodicConditionPolicy
from headrace.conditions.ports import (
    DownstreamMessageAffordableCondition as DownstreamMessageAffordableCondition,
)
from headrace.conditions.ports import (
    ExpiringMessageAvailableCondition as ExpiringMessageAvailableCondition,
)
from headrace.conditions.ports import MessageAvailableCondition as MessageAvailableCondition
from headrace.conditions.ports import MissingTimestampError as MissingTimestampError
from headrace.conditions.ports import MultiMessageAvailableCondition as MultiMessageAvailableCondition
from headrace.conditions.ports import (
    MultiMessageAvailableTimeoutCondition as MultiMessageAvailableTimeoutCondition,
)
from headrace.core.condition import AsynchronousCondition as AsynchronousCondition
from headrace.core.condition import AsynchronousEventState as AsynchronousEventState
