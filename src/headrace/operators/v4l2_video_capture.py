"""V4L2VideoCaptureOp: frames of a camera."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from headrace.core.contexts import ExecutionContext, OutputContext
from headrace.core.parameters import declared, parameter
from headrace.core.spec import OperatorSpec
from headrace.operators._routines.conversion import COPY, MATRICES, TO_RGB, pack_order
from headrace.operators.frame_memory import FrameMemory
from headrace.operators.paced_source import PacedSource
from headrace.video import CameraFormat, CapturedFrame, JpegDecoder, V4L2Camera, VideoDevice
from headrace.video.v4l2_ioctl import COLORSPACE_REC709, QUANTIZATIONS, YCBCR_ENCODINGS

if TYPE_CHECKING:
    from headrace.resources import Allocator

_logger = logging.getLogger("headrace.video")


class _Frame(NamedTuple):
    array: np.ndarray[Any, Any]
    captured_at: int | None


@declared
class V4L2VideoCaptureOp(PacedSource[_Frame]):
    """Captures from a camera of Linux (Video4Linux), until the run is stopped.

    A thread waits for the camera and converts its frames, so that no worker does. If the pipeline is slower than
    the camera, the driver drops frames, which `frames_dropped` counts.

    **Output** ``signal``: a TensorMap of one tensor, named ``""``. Frames in YUYV, RGB24 and Motion JPEG are
    converted to RGBA, uint8, (height, width, 4). Those in any other format, and all with `pass_through`, are the
    bytes of the driver's buffer, without a copy: (height, width, 2) for YUYV, (height, width, 3) for RGB24, else
    one dimension. The acquisition timestamp is when the camera took the frame, by the run's clock. The metadata
    have ``V4L2_pixel_format``, ``V4L2_ycbcr_encoding`` and ``V4L2_quantization``.

    **Memory**: `num_buffers` buffers of the driver. A converted frame takes width * height * 4 bytes. A frame that
    is passed through occupies its buffer until the last operator lets go of it: let `num_buffers` be the number of
    frames in use, and two more.

    Parameters
    ----------
    device
        The device file.
    width, height
        The size; 0 for both: the device's own.
    frame_rate
        Frames per second; 0: the device's own.
    num_buffers
        The number of the driver's buffers, at least 2.
    pixel_format
        Four characters, as ``"YUYV"``, ``"RGB3"`` or ``"MJPG"``; ``"auto"`` takes the first of RGB3, YUYV and MJPG
        that offers the size and the rate, or else what the device offers.
    pass_through
        Whether to emit frames as they are.
    exposure_time
        In units of 100 µs; None: the camera chooses.
    gain
        In the camera's own units; None: the camera chooses.
    storage_type
        Where the frames are: ``"system"`` (the default), ``"host"`` (pinned), ``"device"`` or ``"cuda_managed"``.
    allocator
        The allocator of memory that is not system memory; an UnboundedAllocator unless given.
    """

    is_live = True
    read_ahead = 1  # the driver's buffers wait behind it
    open_device: ClassVar[Callable[[str], Any]] = VideoDevice
    """Opens the device file."""

    allocator: Allocator = parameter(default=None)
    device: str = "/dev/video0"
    width: int = 0
    height: int = 0
    frame_rate: float = parameter(default=0.0, minimum=0)
    num_buffers: int = parameter(default=4, minimum=2)
    pixel_format: str = "auto"
    pass_through: bool = False
    exposure_time: int | None = None
    gain: int | None = None
    storage_type: Any = None

    _camera: V4L2Camera | None = None
    frames_dropped = 0
    """The number of frames that the driver dropped, or that were damaged, in this run or the last one."""

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("signal")

    def initialize(self) -> None:
        """Check the parameters."""
        self._memory = FrameMemory(self, self.storage_type, self.allocator)

    def start(self) -> None:
        """Open the camera and begin to capture."""
        self.frames_dropped = 0
        self._camera = camera = V4L2Camera(self.device, type(self).open_device)
        chosen = camera.configure(self.width, self.height, self.frame_rate, self.pixel_format)
        camera.set_exposure(self.exposure_time)
        camera.set_gain(self.gain)
        self._facts = {
            "V4L2_pixel_format": chosen.pixel_format,
            "V4L2_ycbcr_encoding": YCBCR_ENCODINGS.get(chosen.ycbcr_encoding, str(chosen.ycbcr_encoding)),
            "V4L2_quantization": QUANTIZATIONS.get(chosen.quantization, str(chosen.quantization)),
        }
        self._convert = _converter(chosen, self.pass_through)
        camera.start(self.num_buffers)
        super().start()

    def stop(self) -> None:
        """Stop capturing and close the camera."""
        camera, self._camera = self._camera, None
        if camera is None:
            return
        try:
            camera.wake()
            super().stop()
        finally:
            camera.close()
        if self.frames_dropped:
            _logger.warning("operator %r: %d frames were dropped", self.name, self.frames_dropped)

    def frames(self) -> Generator[_Frame, None, None]:
        """Wait for frames and convert them, on a thread of their own."""
        camera, convert = self._camera, self._convert
        assert camera is not None
        last = None
        while True:
            captured = camera.wait()
            if captured is None:
                return
            if last is not None and captured.sequence > last + 1:
                self.frames_dropped += captured.sequence - last - 1
            last = captured.sequence
            array = convert(captured)
            if array is None:
                self.frames_dropped += 1
                continue
            frame = _Frame(array, captured.timestamp)
            del captured, array  # a buffer whose frame was converted goes back now
            yield frame
            del frame

    def time_of(self, number: int, frame: _Frame) -> int | None:
        """Return None: a frame is due when it comes."""
        return None

    def emit_frame(self, frame: _Frame, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit a frame."""
        if self.is_metadata_enabled:
            self.metadata.update(self._facts)
        age = 0 if frame.captured_at is None else max(time.monotonic_ns() - frame.captured_at, 0)
        placed = self._memory.place({"": frame.array}, op_output, context, "signal")
        op_output.emit(placed, "signal", acq_timestamp=context.timestamp - age)


_Convert = Callable[[CapturedFrame], "np.ndarray[Any, Any] | None"]
_CHANNELS = {"YUYV": 2, "RGB3": 3}


def _converter(chosen: CameraFormat, pass_through: bool) -> _Convert:
    """Return what makes an array of a captured frame; it returns None for one that is damaged."""
    height, width = chosen.height, chosen.width
    channels = _CHANNELS.get(chosen.pixel_format)
    if chosen.pixel_format == "MJPG" and not pass_through:
        decode = JpegDecoder()
        return lambda captured: decode(captured.data())
    if channels is None:
        return CapturedFrame.data
    line = max(chosen.bytes_per_line, width * channels)
    order, opaque = pack_order(range(4)), 255
    is_709 = chosen.ycbcr_encoding == 2 or (
        chosen.ycbcr_encoding == 0 and chosen.colorspace == COLORSPACE_REC709
    )
    matrix = MATRICES["709" if is_709 else "601", chosen.quantization == 1]

    def convert(captured: CapturedFrame) -> np.ndarray[Any, Any] | None:
        data = captured.data()
        if data.size < line * (height - 1) + width * channels:
            return None
        pixels = np.lib.stride_tricks.as_strided(data, (height, width, channels), (line, channels, 1))
        if pass_through:
            return pixels
        rgba = np.empty((height, width, 4), np.uint8)
        if channels == 2:
            TO_RGB["yuyv"].host(rgba, pixels, height, width, 4, order, opaque, *matrix)
        else:
            COPY[pixels.dtype].host(rgba, pixels, height * width, 3, 4, order, 1.0, 0.0, opaque, 0)
        return rgba

    return convert
