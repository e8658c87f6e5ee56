"""Names of the SDK's core that a program may name and need not make."""

# ruff: noqa: F401

from __future__ import annotations

import enum
from typing import Any

from headrace import observe
from headrace.core import MetadataPolicy
from headrace.observe import (
    AsyncQueuePolicy,
    DataLogger,
    DataLoggerResource,
)
from headrace_holoscan.absent import absent
from headrace_holoscan.core.data_flow_tracker import DataFlowMetric, DataFlowTracker
from headrace_holoscan.core.executor import Executor
from headrace_holoscan.core.metadata import MetadataDictionary


class DataLoggerQueueType(enum.Enum):
    """In which order an asynchronous logger is called; here always in that of the messages."""

    LOCK_FREE = 0
    ORDERED = 1


_WITHOUT_EFFECT = (
    *("worker_sleep_time", "large_data_worker_sleep_time", "enable_large_data_queue"),
    *("large_data_max_queue_size", "large_data_queue_policy", "queue_type"),
)


class AsyncDataLoggerResource(observe.AsyncDataLoggerResource):
    """A data logger on a thread of its own; all messages are in one queue, in their order."""

    def __init__(self, fragment: Any = None, **options: Any) -> None:
        super().__init__(fragment, **{key: options[key] for key in options if key not in _WITHOUT_EFFECT})


Message = absent("Message", "what emit is given is the message")
io_type_registry = absent("io_type_registry", "every Python object can be emitted without being registered")
START_OPERATOR_NAME = "<|start|>"
