"""headrace: streaming GPU pipelines in Python.

Importing this package imports no CUDA library; the device is chosen when it is first used
(see :mod:`headrace.gpu`).
"""

from __future__ import annotations

import sys
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
    Live,
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
    from headrace.core import ExecutionContext, InputContext, Outcome, OutputContext

__all__ = [
    "Application",
    "Condition",
    "ConditionType",
    "CountCondition",
    "EventBasedScheduler",
    "ExecutionContext",
    "Fragment",
    "GreedyScheduler",
    "IOSpec",
    "Input",
    "InputContext",
    "Live",
    "MultiThreadScheduler",
    "Operator",
    "OperatorSpec",
    "Outcome",
    "Output",
    "OutputContext",
    "PeriodicCondition",
    "Resource",
    "SchedulingStatusType",
    "Subgraph",
    "Tensor",
    "TensorMap",
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
    "skip",
    "substitute",
    "window",
]

_LATER = ("ExecutionContext", "InputContext", "Outcome", "OutputContext")

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import, on first use, a name that only annotations and the end of a run need."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import headrace.core

        return getattr(headrace.core, name)
