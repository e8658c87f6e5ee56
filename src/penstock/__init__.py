"""penstock: streaming GPU pipelines in Python.

Importing this package imports no CUDA library; the device is chosen when it is first asked for
(see :mod:`penstock.gpu`).
"""

from penstock._version import __version__
from penstock.conditions import CountCondition, PeriodicCondition
from penstock.core import (
    Application,
    Condition,
    ConditionType,
    Fragment,
    IOSpec,
    Operator,
    OperatorSpec,
    Outcome,
    Resource,
    op,
)
from penstock.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from penstock.tensor import Tensor, TensorMap, as_tensor

__all__ = [
    "Application",
    "Condition",
    "ConditionType",
    "CountCondition",
    "EventBasedScheduler",
    "Fragment",
    "GreedyScheduler",
    "IOSpec",
    "MultiThreadScheduler",
    "Operator",
    "OperatorSpec",
    "Outcome",
    "PeriodicCondition",
    "Resource",
    "Tensor",
    "TensorMap",
    "__version__",
    "as_tensor",
    "op",
]
