"""Names of the SDK's core that a program may name and need not make."""

from __future__ import annotations

from headrace.compat.holoscan.absent import absent
from headrace.compat.holoscan.core.executor import Executor as Executor
from headrace.core import MetadataDictionary as MetadataDictionary
from headrace.core import MetadataPolicy as MetadataPolicy
from headrace.observe import (
    AsyncDataLoggerResource as AsyncDataLoggerResource,
)
from headrace.observe import (
    AsyncQueuePolicy as AsyncQueuePolicy,
)
from headrace.observe import (
    DataFlowMetric as DataFlowMetric,
)
from headrace.observe import (
    DataFlowTracker as DataFlowTracker,
)
from headrace.observe import (
    DataLogger as DataLogger,
)
from headrace.observe import (
    DataLoggerQueueType as DataLoggerQueueType,
)
from headrace.observe import (
    DataLoggerResource as DataLoggerResource,
)

Message = absent("Message", "what emit is given is the message")
NetworkContext = absent("NetworkContext", "the fragments of an application run in one process")
MultiMessageConditionInfo = absent(
    "MultiMessageConditionInfo", "spec.multi_port_condition declares such a condition"
)
io_type_registry = absent("io_type_registry", "every Python object can be emitted without being registered")
START_OPERATOR_NAME = "<|start|>"
