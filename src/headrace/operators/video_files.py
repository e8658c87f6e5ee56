"""VideoReaderOp and VideoWriterOp: frames of a video file, or of a stream such as RTSP, and the way back.

A file is read ahead and paced by the run's clock (`PacedSource`). A stream is live: its frames are emitted as they
come. A stream that goes away is opened again by the operator's condition, at a time of the run's clock, so that no
thread sleeps meanwhile and a test of an hour's retries takes no time.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.errors import noting
from headrace.core.parameters import REQUIRED, declared, parameter
from headrace.core.run_files import path_of_start
from headrace.core.spec import OperatorSpec
from headrace.core.values import Duration, nanoseconds
from headrace.operators.frame_memory import FrameMemory, FrameSink
from headrace.operators.paced_source import PacedSource
from headrace.operators.tensor_operator import find_tensor
from headrace.video import ClipFrame, VideoFileError, VideoReader, VideoWriter, play
from headrace.video.clips import VideoClip
from headrace.video.files import PIXEL_FORMATS, is_url

if TYPE_CHECKING:
    from headrace.resources import Allocator

_logger = logging.getLogger("headrace.video")


@declared
class VideoReaderOp(PacedSource[ClipFrame]):
    """Plays a video file and ends with it, or receives a stream such as RTSP.

    The video is read and decoded on a thread of its own. A file plays in real time, by the run's clock, or as fast
    as frames are received. Frames of a stream are emitted when they come; one that is older than the frames that
    `read_ahead` allows waits at the sender.

    **Output** ``output``: a TensorMap with one tensor, named ``""``: RGB, uint8, (height, width, 3), unless
    `pixel_format` says otherwise. The acquisition timestamp of a frame is its time in the video plus the start of
    the video: that which `VideoWriterOp` wrote into a file, 0 in other files. A stream starts when its first frame
    arrives, by the run's clock, or earlier, if a later frame arrives with less delay.

    **Memory**: `read_ahead` frames in system memory. In other memory than that, one block for each frame that is in
    use downstream.

    Parameters
    ----------
    path
        The file, or a URL such as ``"rtsp://camera/stream"``.
    pixel_format
        ``"rgb24"``, ``"bgr24"``, ``"rgba"``, ``"bgra"``, ``"gray"`` of the shape (height, width), or ``"nv12"`` or
        ``"yuv420p"`` of the shape (3/2 height, width).
    realtime
        Whether a file keeps to its times; otherwise frames are emitted as fast as they are received.
    repeat
        Whether a file starts over at the end.
    count
        The number of frames, over all repeats; 0: no limit.
    ignore_corrupted
        Whether to skip what cannot be decoded, with a warning; otherwise it is an error.
    reconnect
        How many times in a row to open a stream again that has gone away, before that is an error. With 0, the end
        of the stream is the end of the source, and a lost connection is an error.
    reconnect_delay
        How long to wait before each of these attempts, by the run's clock.
    timeout
        How long a stream may be silent before it has gone away, in seconds. A run that ends while the stream is
        silent waits for it no longer than that.
    hardware
        Whether NVDEC decodes, if this build of FFmpeg and the machine have it; otherwise software does.
    options
        Options of FFmpeg for the container, as ``{"rtsp_transport": "udp"}``; RTSP uses TCP otherwise.
    allocator
        The allocator of memory that is not system memory; an UnboundedAllocator unless given.
    storage_type
        Where the frames are: ``"system"`` (the default), ``"host"`` (pinned), ``"device"`` or ``"cuda_managed"``.
    read_ahead
        The number of frames that are read ahead.
    """

    path: str | Path = parameter(default=REQUIRED)
    pixel_format: str = parameter(default="rgb24", choices=PIXEL_FORMATS)
    realtime: bool = True
    repeat: bool = False
    count: int = parameter(default=0, minimum=0)
    ignore_corrupted: bool = True
    reconnect: int = parameter(default=0, minimum=0)
    reconnect_delay: Duration = parameter(default="1s", check=lambda delay: nanoseconds(delay, "it"))
    timeout: float = parameter(default=5.0, minimum=0)
    hardware: bool = True
    options: dict[str, str] = parameter(default_factory=dict)
    allocator: Allocator = parameter(default=None)
    storage_type: Any = None
    read_ahead: int = parameter(default=4, minimum=1)

    times_reconnected = 0
    """How many times a stream that had gone away was opened again and sent frames, in this run or the last one."""

    _retry_at: int | None = None

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("output")

    def initialize(self) -> None:
        """Check the parameters, and find the file."""
        self._memory = FrameMemory(self, self.storage_type, self.allocator)
        self.is_live = is_url(self.path)
        with noting(f"raised for operator {self.name!r}"):
            self._reader = VideoReader(
                self.path,
                ignore_corrupted=self.ignore_corrupted,
                pixel_format=self.pixel_format,
                hardware=self.hardware,
                timeout=self.timeout,
                options=self.options,
            )

    def start(self) -> None:
        """Begin to read."""
        self.times_reconnected = self._attempts = 0
        self._start: int | None = None
        self._retry_at = None
        super().start()

    def frames(self) -> Generator[ClipFrame, None, None]:
        """Read the video, on a thread of its own."""
        if not self.is_live:
            yield from play(VideoClip(Path(self.path), self._reader), repeat=self.repeat, count=self.count)
            return
        left = self.count - self.frames_emitted if self.count else -1
        for frame in self._reader.frames():
            yield ClipFrame({"": frame.pixels}, frame.time, 0)
            left -= 1
            if left == 0:
                return
        if self.reconnect:
            raise VideoFileError(f"{self.path}: the stream ended")

    def time_of(self, number: int, frame: ClipFrame) -> int | None:
        """Return when a frame is due."""
        return frame.time if self.realtime and not self.is_live else None

    def restart_time(self) -> int | None:
        """Return when to open the stream again."""
        return self._retry_at

    def compute(self, op_input: Any, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit a frame, or open a stream again."""
        if self._retry_at is not None:
            self._retry_at, self._start = None, None
            self.begin_frames()
            return
        try:
            super().compute(op_input, op_output, context)
        except VideoFileError as error:
            if self._attempts == self.reconnect or not self.is_live:
                tried = f" (after {self._attempts} attempts to open it again)" if self._attempts else ""
                raise VideoFileError(f"operator {self.name!r}: {error}{tried}") from error
            self._attempts += 1
            delay = nanoseconds(self.reconnect_delay, "reconnect_delay")
            self._retry_at = context.timestamp + delay
            _logger.warning(
                "operator %r: %s; attempt %d of %d to open it again follows in %g s",
                self.name,
                error,
                self._attempts,
                self.reconnect,
                delay / 1e9,
            )

    def emit_frame(self, frame: ClipFrame, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit a frame."""
        acquired = frame.acq_timestamp
        if self.is_live:
            if self._attempts:
                self._attempts = 0
                self.times_reconnected += 1
            # No frame arrives before it was acquired, so the frame with the least delay tells the start best.
            latest = context.timestamp - frame.time
            self._start = latest if self._start is None else min(self._start, latest)
            acquired = self._start + frame.time
        placed = self._memory.place(frame.tensors, op_output, context, "output")
        op_output.emit(placed, "output", acq_timestamp=acquired)


@declared
class VideoWriterOp(FrameSink):
    """Writes every frame it receives to a video file, or sends it to an RTSP server.

    A frame is shown at its acquisition timestamp; frames without one follow each other at `frame_rate`. The file
    keeps the timestamp of the first frame, so that `VideoReaderOp` gives each frame its own again, to the
    microsecond in an MP4 file and to the millisecond in a Matroska file. A frame that is no later than the one
    before is shown a millisecond after it, or an interval of `frame_rate` after it if its time is earlier by that
    much. `frames_retimed` counts such frames.

    The file is finished when the run ends, for whatever reason. An MP4 file of a process that was killed plays,
    except for its last second. If the operator or the process of its fragment is started again, it goes on in
    another file: ``run-2.mp4`` next to ``run.mp4``.

    **Input** ``input``: an array of any library, or a dict or TensorMap with one. uint8, of the shape (height,
    width), (height, width, 1), (height, width, 3) for RGB or (height, width, 4) for RGBA, unless `in_pixel_format`
    is given. All frames have the same shape. A frame on a device is copied to the host on the operator's stream,
    and encoded in a later compute.

    **Memory**: the encoder's; for frames on a device up to four frames of pinned memory.

    Parameters
    ----------
    path
        The file, whose extension chooses the container, or a URL such as ``"rtsp://server/name"``.
    codec
        ``"h264"`` or ``"hevc"``, or the name of an encoder of FFmpeg, such as ``"ffv1"``.
    hardware
        Whether NVENC encodes ``"h264"`` and ``"hevc"`` if it works here; otherwise software does. The log says
        which.
    quality
        The constant quality of ``"h264"`` and ``"hevc"``: 0 is best, 51 smallest.
    preset
        How long the software encoders look for a smaller result, from ``"ultrafast"`` to ``"veryslow"``.
    bit_rate
        Bits per second in place of a quality; 0: as many as the quality takes.
    frame_rate
        Frames per second, of frames without an acquisition timestamp.
    pixel_format
        The pixels in the file, in FFmpeg's names, as ``"yuv444p"``; ``""`` takes what every player shows.
    in_pixel_format
        The pixels of the frames: ``""`` tells grey, RGB and RGBA by the shape; or ``"bgr24"``, ``"bgra"``, or
        ``"nv12"`` or ``"yuv420p"`` of the shape (3/2 height, width).
    in_tensor_name
        The tensor to write; ``""`` takes the only one.
    options
        Options of FFmpeg for the container.
    """

    path: str | Path = parameter(default=REQUIRED)
    codec: str = "h264"
    hardware: bool = True
    quality: int = parameter(default=18, minimum=0, maximum=51)
    preset: str = "medium"
    bit_rate: int = parameter(default=0, minimum=0)
    frame_rate: float = 30.0
    pixel_format: str = ""
    in_pixel_format: str = parameter(default="", choices=("", *PIXEL_FORMATS))
    in_tensor_name: str = ""
    options: dict[str, str] = parameter(default_factory=dict)

    frames_written = 0
    """The number of frames that were written in this run, or in the last one."""
    frames_retimed = 0
    """The number of those whose timestamp was no later than that of the frame before."""

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the input."""
        spec.input("input")

    def open_writer(self) -> VideoWriter:
        """Prepare the video; the file is created with the first frame, which has its size."""
        self.frames_written = self.frames_retimed = 0
        path = self.path if is_url(self.path) else path_of_start(Path(self.path).expanduser(), self)
        return VideoWriter(
            path,
            self.frame_rate,
            codec=self.codec,
            quality=self.quality,
            preset=self.preset,
            bit_rate=self.bit_rate,
            pixel_format=self.pixel_format,
            array_format=self.in_pixel_format,
            hardware=self.hardware,
            options=self.options,
        )

    def compute(self, op_input: InputContext, op_output: Any, context: ExecutionContext) -> None:
        """Write one frame."""
        tensor = find_tensor(op_input.receive("input"), self.in_tensor_name, self, "input")
        acquired = op_input.get_acquisition_timestamp("input")
        self.add_frame({"": tensor}, op_input, acquired)

    def stop(self) -> None:
        """Write what is left and finish the file."""
        super().stop()
        if self.frames_retimed:
            _logger.warning(
                "operator %r: %d of %d frames were no later than the one before, and were moved",
                self.name,
                self.frames_retimed,
                self.frames_written,
            )

    def write_frame(self, arrays: dict[str, np.ndarray[Any, Any]], details: int | None) -> None:
        """Write one frame at the time at which it was acquired."""
        self._writer.write(arrays[""], None if details is None else Fraction(details, 1_000_000_000))
        self.frames_written += 1
        self.frames_retimed = self._writer.frames_retimed
