"""Operators to try pipelines with: PingTxOp counts, PingRxOp prints, and ProbeOp prints what tensors are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.operator import Operator
from headrace.core.parameters import declared
from headrace.core.spec import OperatorSpec
from headrace.tensor import TensorError, as_tensor


@declared
class PingTxOp(Operator):
    """Emits the numbers 1, 2, 3 and so on at its output ``out``, starting anew in each run.

    Attributes
    ----------
    index
        The next number.
    """

    index = 1

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("out")

    def start(self) -> None:
        """Start at 1."""
        self.index = 1

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit the next number."""
        op_output.emit(self.index, "out")
        self.index += 1


@declared
class PingRxOp(Operator):
    """Prints what it receives at its input ``in``, of any type: ``Rx message value: 1``."""

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input."""
        spec.input("in")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Print one message."""
        print(f"Rx message value: {op_input.receive('in')}")


@declared
class ProbeOp(Operator):
    """Prints a line for each tensor of a message and passes the message on unchanged, from ``in`` to ``out``.

    The line has the name, shape, element type, strides in bytes, device and order of the elements. Contents are not
    read, so that it waits for nothing and needs no memory. Of a message without tensors it prints the type.
    """

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports."""
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Print and pass on one message."""
        message = op_input.receive("in")
        if isinstance(message, Mapping):
            for name, value in message.items():
                print(f"{self.name}: {name!r}: {_describe(value)}")
            if not message:
                print(f"{self.name}: no tensors")
        else:
            print(f"{self.name}: {_describe(message)}")
        op_output.emit(message, "out")


def _describe(value: Any) -> str:
    try:
        tensor = as_tensor(value)
    except TensorError:
        return f"not a tensor: {type(value).__name__}"
    layout = "contiguous" if tensor.is_contiguous() else "not contiguous"
    if tensor.is_readonly:
        layout += ", read-only"
    return (
        f"shape {tensor.shape}, dtype {tensor.dl_dtype.name}, strides {tensor.strides}, device {tensor.device}, "
        f"{layout}"
    )
