"""What the ready operators are made of, for operators of other distributions.

An operator of tensors declares its parameters as fields of its class (`declared`), gathers tensors by name from its
messages, and computes at a `Workplace` by a `Routine`: on the host, on a GPU, or on a simulated device. A
source of recorded frames derives from `PacedSource`, and a sink that writes them from `FrameSink`.
"""

from __future__ import annotations

from headrace.core.construction import named_values, needs_fragment
from headrace.core.error_policy import OnError
from headrace.core.errors import noting
from headrace.core.operator import NamedPart, Part
from headrace.core.parameters import REQUIRED, declared, parameter
from headrace.core.run_files import number_of_start
from headrace.operators.arrays import Routine, Workplace, check_contiguous, launch, workplace
from headrace.operators.frame_memory import FrameMemory, FrameSink
from headrace.operators.paced_source import PacedSource
from headrace.operators.tensor_operator import TensorOperator, gather, tensors_of
from headrace.tensor.copies import read_on_host

__all__ = [
    "REQUIRED",
    "FrameMemory",
    "FrameSink",
    "NamedPart",
    "OnError",
    "PacedSource",
    "Part",
    "Routine",
    "TensorOperator",
    "Workplace",
    "check_contiguous",
    "declared",
    "gather",
    "launch",
    "named_values",
    "needs_fragment",
    "noting",
    "number_of_start",
    "parameter",
    "read_on_host",
    "tensors_of",
    "workplace",
]
