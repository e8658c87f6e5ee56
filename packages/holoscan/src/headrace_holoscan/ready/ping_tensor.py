"""PingTensorTxOp and PingTensorRxOp: the SDK's operators to try pipelines of tensors with."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core import (
    ExecutionContext,
    InputContext,
    OperatorSpec,
    OutputContext,
    ParameterError,
)
from headrace.operators.bases import TensorOperator, declared, parameter, tensors_of
from headrace.resources import MemoryStorageType
from headrace.tensor import TensorMap
from headrace.vocabulary import choices

if TYPE_CHECKING:
    from headrace.resources import Allocator

_log = logging.getLogger(__name__)

_STORAGE_TYPES = {name.lower(): kind for name, kind in MemoryStorageType.__members__.items()}
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
    storage_type: str = parameter(default="system", choices=tuple(_STORAGE_TYPES))
    batch_size: int | None = parameter(default=None, minimum=0)
    rows: int = parameter(default=32, minimum=1)
    columns: int | None = parameter(default=64, minimum=0)
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
            self._shape, self._dtype, _STORAGE_TYPES[self.storage_type], stream=stream, operator=self.name
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
        tensors = tensors_of(message, self, "in")
        if not self.receive_as_tensormap and len(tensors) != 1:
            raise ValueError(
                f"operator {self.name!r}, input 'in': a message must be one tensor, not {len(tensors)}"
            )
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
