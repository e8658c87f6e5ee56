"""headrace: streaming GPU pipelines in Python.

Importing this package imports no CUDA library; the device is chosen when it is first used
(see :mod:`headrace.gpu`).
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if "t" in getattr(sys, "abiflags", ""):
    raise ImportError(
        "headrace does not run on the free-threaded build of Python: lifetimes of frames are not right on it yet. "
        "Use the usual build of the same version (python3.13, not python3.13t)"
    )

from headrace.application import Application, Fragment
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import (
    Condition,
    ConditionType,
    Input,
    IOSpec,
    Operator,
    OperatorSpec,
    Output,
    Resource,
    SchedulingStatusType,
    Subgraph,
    aligned,
    at_rate,
    dead_letter,
    declared,
    latest_within,
    op,
    parameter,
    restart,
    retry,
    reuse_last,
    skip,
    substitute,
    window,
)
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from headrace.tensor import Tensor, TensorMap, as_tensor
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.conditions import BooleanCondition, CudaStreamCondition
    from headrace.core import ExecutionContext, InputContext, MetadataPolicy, Outcome, OutputContext
    from headrace.observe import watch
    from headrace.operators import FeedOp, FormatConverterOp, HolovizOp, InferenceOp, ResultsOp, VideoReaderOp
    from headrace.resources import (
        CudaGreenContext,
        CudaGreenContextPool,
        CudaStreamPool,
        ManualClock,
        UnboundedAllocator,
    )
    from headrace.testing import run_operator

__all__ = [
    "Application",
    "BooleanCondition",
    "Condition",
    "ConditionType",
    "CountCondition",
    "CudaGreenContext",
    "CudaGreenContextPool",
    "CudaStreamCondition",
    "CudaStreamPool",
    "EventBasedScheduler",
    "ExecutionContext",
    "FeedOp",
    "FormatConverterOp",
    "Fragment",
    "GreedyScheduler",
    "HolovizOp",
    "IOSpec",
    "InferenceOp",
    "Input",
    "InputContext",
    "ManualClock",
    "MetadataPolicy",
    "MultiThreadScheduler",
    "Operator",
    "OperatorSpec",
    "Outcome",
    "Output",
    "OutputContext",
    "PeriodicCondition",
    "Resource",
    "ResultsOp",
    "SchedulingStatusType",
    "Subgraph",
    "Tensor",
    "TensorMap",
    "UnboundedAllocator",
    "VideoReaderOp",
    "__version__",
    "aligned",
    "as_tensor",
    "at_rate",
    "dead_letter",
    "declared",
    "latest_within",
    "op",
    "parameter",
    "restart",
    "retry",
    "reuse_last",
    "run_operator",
    "skip",
    "substitute",
    "watch",
    "window",
]

# What only some programs need is imported at its first use: its package, and the names from there.
_LATER = {
    "headrace.conditions": ("BooleanCondition", "CudaStreamCondition"),
    "headrace.core": ("ExecutionContext", "InputContext", "MetadataPolicy", "Outcome", "OutputContext"),
    "headrace.observe": ("watch",),
    "headrace.operators": (
        *("FeedOp", "FormatConverterOp", "HolovizOp", "InferenceOp", "ResultsOp", "VideoReaderOp"),
    ),
    "headrace.resources": (
        *("CudaGreenContext", "CudaGreenContextPool", "CudaStreamPool", "ManualClock", "UnboundedAllocator"),
    ),
    "headrace.testing": ("run_operator",),
}

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        for package, names in _LATER.items():
            if name in names:
                return getattr(import_module(package), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
