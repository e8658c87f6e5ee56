"""Names of the SDK's core that a program may name and need not make."""

# ruff: noqa: F401

from __future__ import annotations

from headrace.core import MetadataPolicy
from headrace_holoscan.absent import absent
from headrace_holoscan.core.data_flow_tracker import DataFlowMetric, DataFlowTracker
from headrace_holoscan.core.executor import Executor
from headrace_holoscan.core.loggers import (
    AsyncDataLoggerResource,
    AsyncQueuePolicy,
    DataLogger,
    DataLoggerQueueType,
    DataLoggerResource,
)
from headrace_holoscan.core.metadata import MetadataDictionary

Message = absent("Message", "what emit is given is the message")
io_type_registry = absent("io_type_registry", "every Python object can be emitted without being registered")
START_OPERATOR_NAME = "<|start|>"
