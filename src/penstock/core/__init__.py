"""What a program declares: applications, operators, ports, conditions, resources, schedulers."""

from typing import TYPE_CHECKING, Any

from penstock.core.application import Application
from penstock.core.arguments import Arg, ArgList
from penstock.core.clock import Clock
from penstock.core.condition import Condition, ConditionType, SchedulingStatusType
from penstock.core.declared import Input, Output
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
from penstock.core.ports import IOSpec
from penstock.core.resource import Resource
from penstock.core.scheduler import Scheduler
from penstock.core.spec import ComponentSpec, OperatorSpec

if TYPE_CHECKING:
    from penstock.core.outcome import EndedBy, OperatorOutcome, Outcome

__all__ = [
    "Application",
    "Arg",
    "ArgList",
    "Clock",
    "ComponentSpec",
    "Condition",
    "ConditionType",
    "EndedBy",
    "ErrorPolicy",
    "Flow",
    "Fragment",
    "Graph",
    "GraphError",
    "IOSpec",
    "Input",
    "MetadataDictionary",
    "MetadataPolicy",
    "Operator",
    "OperatorOutcome",
    "OperatorSpec",
    "Outcome",
    "Output",
    "ParameterError",
    "ParameterFlag",
    "PortError",
    "QueueFullError",
    "Resource",
    "Scheduler",
    "SchedulingStatusType",
    "UnreceivedMessageWarning",
    "op",
]


def __getattr__(name: str) -> Any:
    """Import what only the end of a run needs when it is first asked for: it takes a tenth of the whole import."""
    if name in ("EndedBy", "OperatorOutcome", "Outcome"):
        from penstock.core import outcome

        return getattr(outcome, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
