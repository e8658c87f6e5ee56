"""penstock: streaming GPU pipelines in Python.

Importing this package imports no CUDA library; the device is chosen when it is first asked for
(see :mod:`penstock.gpu`).
"""

from typing import TYPE_CHECKING, Any

from penstock.conditions import CountCondition, PeriodicCondition
from penstock.core import (
    Application,
    Condition,
    ConditionType,
    Fragment,
    Input,
    IOSpec,
    Operator,
    OperatorSpec,
    Output,
    Resource,
    op,
)
from penstock.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from penstock.tensor import Tensor, TensorMap, as_tensor
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.core import Outcome

__all__ = [
    "Application",
    "Condition",
    "ConditionType",
    "CountCondition",
    "EventBasedScheduler",
    "Fragment",
    "GreedyScheduler",
    "IOSpec",
    "Input",
    "MultiThreadScheduler",
    "Operator",
    "OperatorSpec",
    "Outcome",
    "Output",
    "PeriodicCondition",
    "Resource",
    "Tensor",
    "TensorMap",
    "__version__",
    "as_tensor",
    "op",
]


def __getattr__(name: str) -> Any:
    """Import what only the end of a run needs when it is first asked for."""
    if name == "Outcome":
        from penstock.core import Outcome

        return Outcome
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
