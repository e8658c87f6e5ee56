"""VideoStreamRecorderOp: record messages to a pair of files."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.contexts import ExecutionContext, InputContext
from headrace.core.operator import NamedPart, Operator, Part
from headrace.core.spec import OperatorSpec
from headrace.operators.frame_memory import storage_of
from headrace.operators.messages import tensors_of
from headrace.operators.tensor_operator import declare_fields
from headrace.tensor.copies import HostMemory
from headrace.video import EntityWriter

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.error_policy import OnError

# The number of messages whose way from the device may be unfinished. With more, a compute waits for the oldest.
_MAX_PENDING = 4


@dataclass(slots=True)
class _Pending:
    """A message that is on its way to the host; it is there when its event, if it has one, is done."""

    arrays: dict[str, np.ndarray[Any, Any]]
    storage_types: dict[str, int]
    log_time: int
    acq_timestamp: int | None
    event: Any

    @property
    def is_there(self) -> bool:
        return self.event is None or bool(self.event.is_done)


class VideoStreamRecorderOp(Operator):
    """Records every message it receives to ``basename.gxf_index`` and ``basename.gxf_entities``.

    Each message is with the operating system when its compute returns: what ends the process leaves all complete
    frames readable. Tensors on a device are copied to the host on the operator's stream, and written when the copy
    is complete, in a later compute or at the end of the run; the host waits only if the device is more than four
    frames behind. Files of the same name are replaced.

    **Input** ``input``: an array of any library, or a dict or TensorMap of arrays, of integers, float32 or float64.
    An array without a name is recorded under ``""``. The acquisition timestamp of a message is recorded with it.

    **Memory**: none for tensors on the host; for others up to four frames of pinned memory.

    Parameters
    ----------
    directory, basename
        The folder, which is created if there is none, and the name without an extension.
    flush_on_tick
        Whether each message is also on the disk when it has been written, so that it survives the loss of power.
    """

    directory: str | Path
    basename: str
    flush_on_tick: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            fragment: Composition,
            *args: Part,
            name: str = "",
            on_error: OnError = "stop",
            directory: str | Path = ...,
            basename: str = ...,
            flush_on_tick: bool = False,
            **parts: NamedPart,
        ) -> None: ...

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input and the parameters."""
        spec.input("input")
        declare_fields(VideoStreamRecorderOp, spec)

    def start(self) -> None:
        """Create the files."""
        self._pending: deque[_Pending] = deque()
        self._writer: EntityWriter | None = None
        self._memory = HostMemory()
        self.frames_recorded = 0
        if not self.basename:
            raise ValueError(f"operator {self.name!r}: basename must not be empty")
        self._writer = EntityWriter(self.directory, str(self.basename), flush=self.flush_on_tick)
        # The distances are those of the run's clock, so that a recording made in virtual time plays at that pace.
        self._epoch = time.time_ns() - self.fragment.scheduler().clock.timestamp()

    def compute(self, op_input: InputContext, op_output: Any, context: ExecutionContext) -> None:
        """Record one message."""
        tensors = tensors_of(op_input.receive("input"), self, "input")
        storage_types = {name: storage_of(tensor) for name, tensor in tensors.items()}
        log_time = self._epoch + context.timestamp
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        stream = None
        for name, tensor in tensors.items():
            if tensor.device.is_cuda:
                stream = stream or op_input.receive_cuda_stream("input")
                arrays[name] = self._memory.copy(tensor, stream)
            else:
                arrays[name] = np.asarray(tensor)
        event = None if stream is None else stream.stream.record()
        acquired = op_input.get_acquisition_timestamp("input")
        self._pending.append(_Pending(arrays, storage_types, log_time, acquired, event))
        while self._pending and (self._pending[0].is_there or len(self._pending) > _MAX_PENDING):
            self._write(self._pending.popleft())

    def stop(self) -> None:
        """Write what is left and close the files."""
        writer = self._writer
        try:
            while writer is not None and self._pending:
                self._write(self._pending.popleft())
        finally:
            self._pending.clear()
            self._writer = None
            if writer is not None:
                writer.close()

    def _write(self, message: _Pending) -> None:
        assert self._writer is not None
        if message.event is not None:
            message.event.sync()
        try:
            self._writer.write(message.arrays, message.log_time, message.storage_types, message.acq_timestamp)
        except (TypeError, ValueError) as error:
            raise type(error)(f"operator {self.name!r}, input 'input': {error}") from error
        self.frames_recorded += 1
