"""holoscan.core: applications, operators and what they are declared with."""

# ruff: noqa: F401

from __future__ import annotations

import sys

from headrace.compat.holoscan.core.application import Application
from headrace.compat.holoscan.core.arguments import (
    Arg,
    ArgContainerType,
    ArgElementType,
    ArgList,
    ArgType,
    arg_to_py_object,
    arglist_to_kwargs,
    kwargs_to_arglist,
    py_object_to_arg,
)
from headrace.compat.holoscan.core.bases import *  # noqa: F403
from headrace.compat.holoscan.core.clock import Clock, ClockInterface
from headrace.compat.holoscan.core.command_line import CLIOptions
from headrace.compat.holoscan.core.components import (
    Component,
    Condition,
    ConditionBase,
    NetworkContext,
    Resource,
    ResourceBase,
    Scheduler,
)
from headrace.compat.holoscan.core.configuration import Config
from headrace.compat.holoscan.core.flows import FlowInfo
from headrace.compat.holoscan.core.fragment import Fragment
from headrace.compat.holoscan.core.operator import Operator, OperatorBase
from headrace.compat.holoscan.core.services import (
    DefaultFragmentService,
    DistributedAppService,
    FragmentService,
    ServiceDriverEndpoint,
    ServiceWorkerEndpoint,
)
from headrace.compat.holoscan.core.spec import (
    ComponentSpec,
    IOSpec,
    MultiMessageConditionInfo,
    OperatorSpec,
)
from headrace.compat.holoscan.core.subgraph import (
    InterfacePort,
    InterfacePortMapping,
    InterfacePortType,
    Subgraph,
)
from headrace.compat.holoscan.core.tensors import DLDevice, DLDeviceType, Tensor
from headrace.compat.holoscan.core.tracking import Tracker
from headrace.compat.holoscan.flow_graphs import FlowGraph, FragmentFlowGraph, OperatorFlowGraph
from headrace.core.condition_types import ConditionType, OperatorStatus, SchedulingStatusType
from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.parameter import ParameterFlag

# What a program reaches under the name of the SDK's extension module.
SUBMODULES = ("_core",)
_core = sys.modules[__name__]
_Application, _Condition, _Fragment, _Operator = Application, Condition, Fragment, Operator
_Resource, _Subgraph = Resource, Subgraph
ComponentBase = Component
PyComponentSpec, PyOperatorSpec = ComponentSpec, OperatorSpec

__all__ = [
    name
    for name in dir()
    if (name[0].isupper() and name != "SUBMODULES")
    or name.endswith(("_object", "_kwargs", "_arg", "_arglist", "_registry"))
]
