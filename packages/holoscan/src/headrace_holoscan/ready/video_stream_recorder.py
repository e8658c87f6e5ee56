"""VideoStreamRecorderOp: record messages to a pair of files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.core import ExecutionContext, InputContext, OperatorSpec
from headrace.operators.bases import (
    REQUIRED,
    FrameSink,
    declared,
    number_of_start,
    parameter,
    tensors_of,
)
from headrace.resources import MemoryStorageType
from headrace_holoscan.recordings import EntityWriter
from headrace_holoscan.recordings.entities import entity_files

if TYPE_CHECKING:
    pass


def _numbered(basename: str, number: int) -> str:
    return basename if number == 1 else f"{basename}-{number}"


class _Details(NamedTuple):
    storage_types: dict[str, int]
    log_time: int
    acq_timestamp: int | None


@declared
class VideoStreamRecorderOp(FrameSink):
    """Records every message it receives to ``basename.gxf_index`` and ``basename.gxf_entities``.

    Each message is with the operating system when its compute returns: what ends the process leaves all complete
    frames readable. Tensors on a device are copied to the host on the operator's stream, and written when the copy
    is complete, in a later compute or at the end of the run; the host waits only if the device is more than four
    frames behind. Files of the same name are replaced. If the operator or the process of its fragment is started
    again in a run, it goes on in the recording ``basename-2``.

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

    directory: str | Path = parameter(default=REQUIRED)
    basename: str = parameter(default=REQUIRED)
    flush_on_tick: bool = False

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input."""
        spec.input("input")

    def open_writer(self) -> EntityWriter:
        """Create the files."""
        self.frames_recorded = 0
        if not self.basename:
            raise ValueError(f"operator {self.name!r}: basename must not be empty")
        # The distances are those of the run's clock, so that a recording made in virtual time plays at that pace.
        self._epoch = time.time_ns() - self.fragment.scheduler().clock.timestamp()
        name = str(self.basename)
        number = number_of_start(
            lambda number: any(map(Path.exists, entity_files(self.directory, _numbered(name, number)))),
            self,
            f"{name!r} in {str(self.directory)!r} has what was recorded before",
        )
        return EntityWriter(self.directory, _numbered(name, number), flush=self.flush_on_tick)

    def compute(self, op_input: InputContext, op_output: Any, context: ExecutionContext) -> None:
        """Record one message."""
        tensors = tensors_of(op_input.receive("input"), self, "input")
        storage_types = {name: int(MemoryStorageType.at(tensor.device)) for name, tensor in tensors.items()}
        acquired = op_input.get_acquisition_timestamp("input")
        details = _Details(storage_types, self._epoch + context.timestamp, acquired)
        self.add_frame(tensors, op_input, details)

    def write_frame(self, arrays: dict[str, np.ndarray[Any, Any]], details: _Details) -> None:
        """Write one message."""
        self._writer.write(arrays, details.log_time, details.storage_types, details.acq_timestamp)
        self.frames_recorded += 1
