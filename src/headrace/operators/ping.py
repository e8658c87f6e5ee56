"""Operators to try pipelines with: PingTxOp counts and PingRxOp prints, PingTensorTxOp and PingTensorRxOp do so
with tensors, and ProbeOp prints what the tensors of a message are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.errors import ParameterError, choices
from headrace.core.operator import Operator
from headrace.core.parameters import ParameterFlag, declared, parameter
from headrace.core.spec import OperatorSpec
from headrace.operators.frame_memory import STORAGE_TYPES
from headrace.operators.tensor_operator import TensorOperator, find_tensor, tensors_of
from headrace.tensor import TensorError, TensorMap, as_tensor

if TYPE_CHECKING:
    from headrace.resources import Allocator


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


_log = logging.getLogger(__name__)

_C_NAMES = {
    **{f"{kind}{bits}_t": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float": "float32",
    "double": "float64",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}


@declared
class PingTensorTxOp(TensorOperator):
    """Emits a TensorMap with one tensor at its output ``out``; the tensor's contents are undefined.

    Each message needs one block of ``batch_size * rows * columns * channels`` elements.

    Parameters
    ----------
    allocator
        The allocator of the tensors; an UnboundedAllocator unless given.
    storage_type
        The kind of memory: ``"system"``, ``"host"`` (pinned), ``"device"`` or ``"cuda_managed"``.
    batch_size, rows, columns, channels
        The shape. A dimension that is None or 0 is left out; there are always rows.
    dtype
        The element type: a C++ name such as ``"uint8_t"``, ``"float"`` or ``"complex<double>"``, or a NumPy dtype;
        ``"uint8_t"`` unless given.
    tensor_name
        The tensor's name in the message.
    async_device_allocation
        Whether device memory is allocated in the order of a stream of the operator's own, which the message
        carries.
    """

    allocator: Allocator = parameter(default=None)
    storage_type: str = parameter(default="system", choices=tuple(STORAGE_TYPES))
    batch_size: int | None = parameter(default=None, minimum=0)
    rows: int = parameter(default=32, minimum=1)
    columns: int | None = parameter(default=64, flag=ParameterFlag.OPTIONAL, minimum=0)
    channels: int | None = parameter(default=None, minimum=0)
    dtype: Any = None
    tensor_name: str = "tensor"
    async_device_allocation: bool = False

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("out")

    def initialize(self) -> None:
        """Check the parameters."""
        super().initialize()
        sizes = (self.batch_size, self.rows, self.columns, self.channels)
        self._shape = tuple(int(size) for size in sizes if size)
        self._dtype = self._element_type()
        if self.async_device_allocation and self.storage_type != "device":
            raise ParameterError(
                f"operator {self.name!r}: async_device_allocation needs storage_type='device', not "
                f"{self.storage_type!r}"
            )

    def _element_type(self) -> np.dtype[Any]:
        given = "uint8_t" if self.dtype is None else self.dtype
        try:
            dtype = np.dtype(_C_NAMES.get(given, given) if isinstance(given, str) else given)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "iufc":
            raise ParameterError(
                f"operator {self.name!r}: dtype={given!r} is not known; it is one of {choices(_C_NAMES)}, or a "
                "numpy.dtype of numbers"
            )
        return dtype

    def start(self) -> None:
        """Begin to count."""
        self.count = 0

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit one tensor."""
        stream = None
        if self.async_device_allocation:
            stream = context.allocate_cuda_stream(f"{self.name}_stream")
            if stream is not None:
                op_output.set_cuda_stream(stream, "out")
        tensor = self.allocator.allocate_tensor(
            self._shape, self._dtype, STORAGE_TYPES[self.storage_type], stream=stream, operator=self.name
        )
        op_output.emit(TensorMap({self.tensor_name: tensor}), "out")
        self.count += 1
        _log.info("Sent message %d", self.count)


@declared
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
        """Declare the input."""
        spec.input("in")

    def start(self) -> None:
        """Begin to count."""
        self.count = 0

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Log one message."""
        message = op_input.receive("in")
        if self.receive_as_tensormap:
            tensors = tensors_of(message, self, "in")
        else:
            tensors = {"": find_tensor(message, "", self, "in")}
        if any(tensor.device.is_cuda for tensor in tensors.values()):
            kind = "non-default" if any(op_input.receive_cuda_streams("in")) else "default"
            _log.info("%s received %s CUDA stream from port 'in'", self.name, kind)
        for key, tensor in tensors.items():
            if tensor.data == 0 and tensor.size:
                _log.error("%s received the tensor %r without memory", self.name, key)
                continue
            self.count += 1
            text = f"Tensor key: '{key}', shape" if self.receive_as_tensormap else "Tensor shape"
            _log.info("%s received message %d: %s: %s", self.name, self.count, text, tensor.shape)


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
