"""PingTxOp and PingRxOp: one counts, and the other prints what it receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.operator import Operator
from headrace.core.parameters import declared
from headrace.core.spec import OperatorSpec

if TYPE_CHECKING:
    pass


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
