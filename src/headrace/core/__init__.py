"""The classes that a program declares: operators, ports, conditions, resources, schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.arguments import Arg, ArgList
from headrace.core.clock import Clock
from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.condition_types import ConditionType, SchedulingStatusType
from headrace.core.error_policy import ErrorPolicy
from headrace.core.errors import (
    GraphError,
    ParameterError,
    PortError,
    QueueFullError,
    UnreceivedMessageWarning,
)
from headrace.core.function import op
from headrace.core.graph import Flow, Graph
from headrace.core.metadata import MetadataDictionary, MetadataPolicy
from headrace.core.operator import Operator
from headrace.core.parameter import ParameterFlag
from headrace.core.port_declarations import Input, Output
from headrace.core.ports import IOSpec
from headrace.core.resource import Resource
from headrace.core.scheduler import Scheduler
from headrace.core.segment import CaptureError, CaptureRefused, Segment
from headrace.core.spec import ComponentSpec, OperatorSpec
from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.outcome import EndedBy, OperatorOutcome, Outcome, SegmentOutcome
    from headrace.core.progress import Progress

__all__ = [
    "Arg",
    "ArgList",
    "CaptureError",
    "CaptureRefused",
    "Clock",
    "ComponentSpec",
    "Composition",
    "Condition",
    "ConditionType",
    "EndedBy",
    "ErrorPolicy",
    "ExecutionContext",
    "Flow",
    "Graph",
    "GraphError",
    "IOSpec",
    "Input",
    "InputContext",
    "MetadataDictionary",
    "MetadataPolicy",
    "Operator",
    "OperatorOutcome",
    "OperatorSpec",
    "Outcome",
    "Output",
    "OutputContext",
    "ParameterError",
    "ParameterFlag",
    "PortError",
    "Progress",
    "QueueFullError",
    "Resource",
    "Scheduler",
    "SchedulingStatusType",
    "Segment",
    "SegmentOutcome",
    "UnreceivedMessageWarning",
    "op",
]


_MODULES = {
    "EndedBy": "outcome",
    "ExecutionContext": "contexts",
    "InputContext": "contexts",
    "OperatorOutcome": "outcome",
    "Outcome": "outcome",
    "OutputContext": "contexts",
    "Progress": "progress",
    "SegmentOutcome": "outcome",
}

# The outcome alone would take a tenth of the time of importing headrace.
if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
