"""holoscan.core: applications, operators and what they are declared with."""

# ruff: noqa: F401

from __future__ import annotations

import sys

from headrace.core import (
    ConditionType,
    ExecutionContext,
    InputContext,
    OperatorStatus,
    OutputContext,
    SchedulingStatusType,
)
from headrace_holoscan.core.application import Application
from headrace_holoscan.core.arguments import (
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
from headrace_holoscan.core.bases import *  # noqa: F403
from headrace_holoscan.core.clock import Clock, ClockInterface
from headrace_holoscan.core.command_line import CLIOptions
from headrace_holoscan.core.components import (
    Component,
    Condition,
    ConditionBase,
    NetworkContext,
    Resource,
    ResourceBase,
    Scheduler,
)
from headrace_holoscan.core.configuration import Config
from headrace_holoscan.core.flows import FlowInfo
from headrace_holoscan.core.fragment import Fragment
from headrace_holoscan.core.operator import Operator, OperatorBase
from headrace_holoscan.core.services import (
    DefaultFragmentService,
    DistributedAppService,
    FragmentService,
    ServiceDriverEndpoint,
    ServiceWorkerEndpoint,
)
from headrace_holoscan.core.spec import (
    ComponentSpec,
    IOSpec,
    MultiMessageConditionInfo,
    OperatorSpec,
    ParameterFlag,
)
from headrace_holoscan.core.subgraph import (
    InterfacePort,
    InterfacePortMapping,
    InterfacePortType,
    Subgraph,
)
from headrace_holoscan.core.tensors import DLDevice, DLDeviceType, Tensor
from headrace_holoscan.core.tracking import Tracker
from headrace_holoscan.flow_graphs import FlowGraph, FragmentFlowGraph, OperatorFlowGraph
from headrace_holoscan.graphs import FragmentGraph, Graph, OperatorGraph

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
