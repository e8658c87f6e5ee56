"""The memory of frames that come from outside and go there: sources place them, sinks bring them to the host.

A copy to a device runs on the operator's stream, and the host waits for nothing: a copy from plain memory has read
it when the call returns. A copy to the host is used in a later compute, when it is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace import gpu
from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.operator import Operator
from headrace.operators.tensor_operator import check_parameters, place_of
from headrace.resources import MemoryStorageType
from headrace.tensor import Tensor, TensorMap
from headrace.tensor.copies import HostMemory, copy

# The number of messages whose way from the device may be unfinished. With more, a compute waits for the oldest.
_MAX_PENDING = 4

DEVICE, SYSTEM = MemoryStorageType.DEVICE, MemoryStorageType.SYSTEM
STORAGE_TYPES = {name.lower(): kind for name, kind in MemoryStorageType.__members__.items()}


class FrameMemory:
    """Puts the arrays of a source where its output is to be.

    Parameters
    ----------
    operator
        The source.
    storage_type
        ``"system"`` or None, ``"host"`` (pinned), ``"device"`` or ``"cuda_managed"``, or the number of one
        (0 host, 1 device, 2 system, 3 managed); with `recorded`, ``"recorded"`` for that of each array.
    allocator
        The allocator of all but system memory.
    recorded
        Whether ``"recorded"`` is allowed.
    """

    def __init__(self, operator: Operator, storage_type: Any, allocator: Any, recorded: bool = False) -> None:
        check_parameters(operator)
        self._operator = operator
        self.storage_type = _storage_number(operator, storage_type, recorded)
        self._allocator = allocator

    def place(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        op_output: OutputContext,
        context: ExecutionContext,
        port: str,
        storage_types: Mapping[str, int] | None = None,
    ) -> TensorMap:
        """Return the arrays in the memory that was asked for, and set the stream of an output that copies use."""
        if self.storage_type == SYSTEM:
            return TensorMap(arrays)
        placed = TensorMap()
        for name, array in arrays.items():
            wanted = self.storage_type
            if wanted is None:
                wanted = (storage_types or {}).get(name, SYSTEM)
            if wanted == SYSTEM:
                placed[name] = array
                continue
            stream = self.stream(op_output, context, port) if wanted == DEVICE else None
            placed[name] = tensor = self.allocate(array.shape, array.dtype, wanted, stream)
            if stream is None:
                np.asarray(tensor)[...] = array
            else:
                copy(tensor, np.ascontiguousarray(array), stream)
        return placed

    def stream(self, op_output: OutputContext, context: ExecutionContext, port: str) -> gpu.StreamHandle:
        """Return the operator's stream, which goes with what the output emits."""
        name = self._operator.name
        if not context.is_gpu_available:
            raise RuntimeError(
                f"operator {name!r}: storage_type is 'device', and there is no device; use "
                "storage_type='system', or HEADRACE_DEVICE=sim for a simulated one"
            )
        stream = context.allocate_cuda_stream(f"{name}_stream")
        if stream is None:
            raise RuntimeError(
                f"operator {name!r}: its stream pool has no stream left for its frames; give the pool a larger "
                "max_size"
            )
        op_output.set_cuda_stream(stream, port)
        return stream

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], storage_type: int, stream: gpu.StreamHandle | None
    ) -> Tensor:
        """Return new memory of a storage type, in the order of a stream if it is on the device."""
        tensor: Tensor = self._allocator.allocate_tensor(
            shape, dtype, storage_type, stream=stream, operator=self._operator.name
        )
        return tensor


class FrameSink(Operator):
    """The base of operators that write the frames of their ``input`` to files, in order."""

    parallel = True

    _writer: Any = None

    def open_writer(self) -> Any:
        """Return what the frames are written to; it is closed after the last one."""
        raise NotImplementedError

    def write_frame(self, arrays: dict[str, np.ndarray[Any, Any]], details: Any) -> None:
        """Write the arrays of a frame, with what was given to `add_frame`."""
        raise NotImplementedError

    def start(self) -> None:
        """Open the writer."""
        self._memory = HostMemory()
        self._pending: deque[tuple[dict[str, np.ndarray[Any, Any]], Any, Any]] = deque()
        self._writer = self.open_writer()

    def add_frame(self, tensors: Mapping[str, Tensor], op_input: InputContext, details: Any) -> None:
        """Add the tensors of a message; those on a device are copied on the operator's stream."""
        stream = None
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for name, tensor in tensors.items():
            if tensor.device.is_cuda:
                stream = stream or op_input.receive_cuda_stream("input")
                arrays[name] = self._memory.copy(tensor, stream)
            else:
                arrays[name] = np.asarray(tensor)
        self._pending.append((arrays, details, None if stream is None else stream.stream.record()))
        self._write_pending(_MAX_PENDING)

    def stop(self) -> None:
        """Write what is left and close the writer."""
        writer = self._writer
        if writer is None:
            return
        try:
            self._write_pending(0)
        finally:
            self._pending.clear()
            self._writer = None
            writer.close()

    def _write_pending(self, most: int) -> None:
        """Write the frames that are on the host, and wait for the oldest if there are more than `most`."""
        while self._pending:
            event = self._pending[0][2]
            if event is not None and not event.is_done and len(self._pending) <= most:
                return
            arrays, details, event = self._pending.popleft()
            if event is not None:
                event.sync()
            try:
                self.write_frame(arrays, details)
            except (RuntimeError, TypeError, ValueError) as error:
                raise type(error)(f"{place_of(self, 'input')}: {error}") from error


def _storage_number(operator: Operator, storage_type: Any, recorded: bool) -> int | None:
    names: dict[Any, int | None] = {**STORAGE_TYPES, **({"recorded": None} if recorded else {})}
    number = getattr(storage_type, "value", storage_type)  # of MemoryStorageType, or the number itself
    if type(number) is int and number in STORAGE_TYPES.values():
        return number
    if storage_type is None or (isinstance(storage_type, str) and storage_type in names):
        return names.get(storage_type, SYSTEM)
    raise ValueError(
        f"operator {operator.name!r}: storage_type must be one of {', '.join(map(repr, names))}, or a "
        f"MemoryStorageType, not {storage_type!r}"
    )
