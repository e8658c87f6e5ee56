"""VideoStreamReplayerOp: play a recording or a video file."""

from __future__ import annotations

from collections.abc import Generator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core import ExecutionContext, OperatorSpec, OutputContext
from headrace.operators.bases import REQUIRED, FrameMemory, PacedSource, declared, noting, parameter
from headrace.video import Clip, ClipFrame, play
from headrace_holoscan.recordings import open_clip

if TYPE_CHECKING:
    from headrace.resources import Allocator


@declared
class VideoStreamReplayerOp(PacedSource[ClipFrame]):
    """Plays a recording of `VideoStreamRecorderOp`, or any video file, and ends with it.

    The clip is read and decoded ahead on a thread of its own. In real time each frame is emitted at its time of the
    run's clock; one that is late is emitted at once, counted in `frames_late`, and does not delay those after it.

    **Output** ``output``: a TensorMap. Those of a recording have their names, shapes and element
    types. A frame of a video file has the name ``""``: RGB, uint8, (height, width, 3). The acquisition timestamp is
    the recorded one, or else the time of the recording, in nanoseconds since the epoch (of a video file: since its
    first frame).

    **Memory**: `read_ahead` frames in system memory. In other memory than that, one block of the size of each
    tensor for each frame that is in use downstream.

    Parameters
    ----------
    directory, basename
        The folder and the name of the clip. The pair ``basename.gxf_index`` and ``basename.gxf_entities`` is looked
        for first, then a video file, whose extension may be left out.
    batch_size
        The number of frames per tick, at the time of the last of them. The queues behind the output must have
        room for as many: ``add_flow(..., size=batch_size)``.
    ignore_corrupted_entities
        Whether to skip what cannot be read, with a warning; otherwise it is an error.
    frame_rate
        Frames per second in real time; 0: at the recorded times.
    realtime
        Whether to keep to those times; otherwise frames are emitted as fast as they are received.
    repeat
        Whether to start over at the end.
    count
        The number of frames to play, over all repeats; 0: no limit.
    allocator
        The allocator of memory that is not system memory; an UnboundedAllocator unless given.
    storage_type
        Where the tensors are: ``"system"`` (the default), ``"host"`` (pinned), ``"device"`` (copied on the
        operator's stream), ``"cuda_managed"``, or ``"recorded"``: where they were when they were recorded.
    read_ahead
        The number of frames that are read ahead.
    entity_serializer
        Not supported: must be None.
    """

    directory: str | Path = parameter(default=REQUIRED)
    basename: str = parameter(default=REQUIRED)
    batch_size: int = parameter(default=1, minimum=1)
    ignore_corrupted_entities: bool = True
    frame_rate: float = parameter(default=0.0, minimum=0)
    realtime: bool = True
    repeat: bool = False
    count: int = parameter(default=0, minimum=0)
    allocator: Allocator = parameter(default=None)
    storage_type: Any = None
    read_ahead: int = parameter(default=4, minimum=1)
    entity_serializer: Any = parameter(default=None, check=lambda given: _refuse_serializer(given))

    _clip: Clip | None = None

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("output")

    def add_arg(self, *args: Any, **kwargs: Any) -> None:
        """Add a condition, a resource or named values after construction."""
        super().add_arg(*args, **kwargs)
        if self.batch_size > 1:
            self.spec.outputs["output"].size = self.batch_size

    def initialize(self) -> None:
        """Check the parameters and find the clip."""
        self._memory = FrameMemory(self, self.storage_type, self.allocator, recorded=True)
        with noting(f"raised for operator {self.name!r}"):
            self._clip = open_clip(
                self.directory, self.basename, ignore_corrupted=self.ignore_corrupted_entities
            )

    def batch(self) -> int:
        """Return the number of frames per tick."""
        return self.batch_size

    def frames(self) -> Generator[ClipFrame, None, None]:
        """Read the clip."""
        assert self._clip is not None
        return play(self._clip, repeat=self.repeat, count=self.count)

    def time_of(self, number: int, frame: ClipFrame) -> int | None:
        """Return when a frame is due."""
        if not self.realtime:
            return None
        if self.frame_rate:
            # Exact: a float would drift from the frames of other sources at the same rate.
            return round(number * 1_000_000_000 / Fraction(self.frame_rate))
        return frame.time

    def emit_frame(self, frame: ClipFrame, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit a frame."""
        tensors = self._memory.place(frame.tensors, op_output, context, "output", frame.storage_types)
        op_output.emit(tensors, "output", acq_timestamp=frame.acq_timestamp)


def _refuse_serializer(value: Any) -> None:
    raise ValueError(
        "it is not supported; leave it out, and give an allocator and a storage_type for memory other than the "
        "host's"
    )
