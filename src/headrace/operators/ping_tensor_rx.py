"""PingTensorRxOp: logs the tensors that it receives."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.operators.messages import find_tensor, tensors_of
from headrace.operators.tensor_operator import TensorOperator, declare_fields
from headrace.tensor import Tensor

if TYPE_CHECKING:
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.spec import OperatorSpec

__all__ = ["PingTensorRxOp"]

_log = logging.getLogger(__name__)


class PingTensorRxOp(TensorOperator):
    """Logs name and shape of each tensor that it receives at its input ``in``, at level INFO.

    For tensors on a device it also logs whether a stream came with them. It reads no contents, so it waits for
    nothing and needs no memory.

    Parameters
    ----------
    receive_as_tensormap
        Whether messages hold tensors by name. If False, a message is a tensor, or holds only one.

    Attributes
    ----------
    count
        The number of tensors received, not of messages.
    """

    receive_as_tensormap: bool = True

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input and the parameter."""
        spec.input("in")
        declare_fields(PingTensorRxOp, spec)

    def start(self) -> None:
        """Begin to count."""
        self.count = 0

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Log one message."""
        message = op_input.receive("in")
        if not self.receive_as_tensormap:
            tensor = find_tensor(message, "", self, "in")
            self._log_stream(op_input, [tensor])
            self.count += 1
            _log.info("%s received message %d: Tensor shape: %s", self.name, self.count, tensor.shape)
            return
        tensors = tensors_of(message, self, "in")
        self._log_stream(op_input, tensors.values())
        for key, received in tensors.items():
            if received.data == 0 and received.size:
                _log.error("%s received the tensor %r without memory", self.name, key)
                continue
            self.count += 1
            _log.info(
                "%s received message %d: Tensor key: '%s', shape: %s",
                self.name,
                self.count,
                key,
                received.shape,
            )

    def _log_stream(self, op_input: InputContext, tensors: Iterable[Tensor]) -> None:
        if any(tensor.device.is_cuda for tensor in tensors):
            kind = "non-default" if any(op_input.receive_cuda_streams("in")) else "default"
            _log.info("%s received %s CUDA stream from port 'in'", self.name, kind)
