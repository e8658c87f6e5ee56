"""The classes that a program declares: applications, operators, ports, conditions, resources, schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.application import Application
from penstock.core.arguments import Arg, ArgList
from penstock.core.clock import Clock
from penstock.core.condition import Condition, ConditionType, SchedulingStatusType
from penstock.core.error_policy import ErrorPolicy
from penstock.core.errors import (
    GraphError,
    ParameterError,
    PortError,
    QueueFullError,
    UnreceivedMessageWarning,
)
from penstock.core.fragment import Fragment
from penstock.core.function import op
from penstock.core.graph import Flow, Graph
from penstock.core.metadata import MetadataDictionary, MetadataPolicy
from penstock.core.operator import Operator
from penstock.core.parameter import ParameterFlag
from penstock.core.port_declarations import Input, Output
from penstock.core.ports import IOSpec
from penstock.core.resource import Resource
from penstock.core.scheduler import Scheduler
from penstock.core.segment import CaptureError, CaptureRefused, Segment
from penstock.core.spec import ComponentSpec, OperatorSpec
from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.core.contexts import ExecutionContext, InputContext, OutputContext
    from penstock.core.outcome import EndedBy, OperatorOutcome, Outcome, SegmentOutcome
    from penstock.core.progress import Progress

__all__ = [
    "Application",
    "Arg",
    "ArgList",
    "CaptureError",
    "CaptureRefused",
    "Clock",
    "ComponentSpec",
    "Condition",
    "ConditionType",
    "EndedBy",
    "ErrorPolicy",
    "ExecutionContext",
    "Flow",
    "Fragment",
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

# The outcome alone would take a tenth of the time of importing penstock.
if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
