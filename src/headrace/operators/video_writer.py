"""VideoWriterOp: write frames to a video file, or to a server of streams."""

from __future__ import annotations

import logging
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.contexts import ExecutionContext, InputContext
from headrace.core.parameters import REQUIRED, declared, parameter
from headrace.core.run_files import path_of_start
from headrace.core.spec import OperatorSpec
from headrace.operators.frame_memory import FrameSink
from headrace.operators.messages import find_tensor
from headrace.video import VideoWriter
from headrace.video.files import PIXEL_FORMATS, is_url

if TYPE_CHECKING:
    pass

_logger = logging.getLogger("headrace.video")


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
