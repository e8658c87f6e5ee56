"""Video files of any kind, through PyAV: reading and writing.

PyAV is imported when a file is opened. The extra ``video`` installs it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain
from headrace.video.entities import UNKNOWN_INTERVAL
from headrace.video.errors import VideoFileError

_logger = logging.getLogger("headrace.video")


@dataclass(slots=True)
class VideoFrame:
    """A frame of a video file.

    Attributes
    ----------
    pixels
        RGB, uint8, of shape (height, width, 3).
    time
        When it is shown, in nanoseconds after the first frame.
    """

    pixels: np.ndarray[Any, Any]
    time: int


class VideoReader:
    """The frames of a video file, decoded while it is iterated over, each time from the beginning.

    Parameters
    ----------
    path
        The file, of any kind that FFmpeg reads; a picture is a video of one frame.
    ignore_corrupted
        Whether to skip what cannot be decoded, with a warning; otherwise it raises :class:`VideoFileError`.

    Attributes
    ----------
    width, height
        The size of the frames.
    rate
        The mean number of frames per second, or None where the file does not say.
    codec
        The name of the codec.
    """

    def __init__(self, path: str | Path, *, ignore_corrupted: bool = True) -> None:
        self.path = Path(path).expanduser()
        self.ignore_corrupted = ignore_corrupted
        with self._open() as container:
            stream = container.streams.video[0]
            self.width, self.height = int(stream.width), int(stream.height)
            self.codec = str(stream.codec_context.name)
            rate = stream.average_rate or stream.guessed_rate
            self.rate: float | None = float(rate) if rate else None

    def __iter__(self) -> Iterator[VideoFrame]:
        return self.frames()

    def frames(self) -> Generator[VideoFrame, None, None]:
        """Decode the frames, from the beginning."""
        first: Fraction | None = None
        last = -1
        skipped = 0
        with self._open() as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            step = round(1e9 / self.rate) if self.rate else UNKNOWN_INTERVAL
            packets = container.demux(stream)
            while True:
                try:
                    packet = next(
                        packets, None
                    )  # None also after an error, behind which nothing can be found
                    if packet is None:
                        break
                    decoded = packet.decode()
                except _av().error.FFmpegError as error:
                    if not self.ignore_corrupted:
                        raise VideoFileError(
                            f"{self.path}: what follows the frame at {max(last, 0) / 1e9:.3f} s cannot be decoded: "
                            f"{error}"
                        ) from error
                    skipped += 1
                    continue
                for frame in decoded:
                    if frame.pts is None:
                        time = 0 if last < 0 else last + step
                    else:
                        shown = frame.pts * Fraction(frame.time_base)
                        first = shown if first is None else first
                        time = max(round((shown - first) * 1_000_000_000), last + 1)
                    last = time
                    yield VideoFrame(frame.to_ndarray(format="rgb24"), time)
        if skipped:
            _logger.warning("%s: skipped %d packets that could not be decoded", self.path, skipped)
        if last < 0:
            raise VideoFileError(f"{self.path}: no frame of its video could be decoded")

    def _open(self) -> Any:
        av = _av()
        if not self.path.is_file():
            raise VideoFileError(f"there is no file {self.path}")
        try:
            container = av.open(str(self.path))
        except (av.error.FFmpegError, UnicodeDecodeError) as error:
            raise VideoFileError(f"{self.path} is not a video that can be read: {error}") from error
        if not container.streams.video:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "none"
            container.close()
            raise VideoFileError(f"{self.path} has no video stream; its streams are of kind: {kinds}")
        return container


# The unit of times: the rates 24, 25, 30, 50, 60 and 59.94 are whole numbers of it, and MPEG-4 takes none finer.
_TICK = Fraction(1, 60_000)
_LATEST = 1e12  # seconds; more than that is no time, and its ticks do not fit FFmpeg's integers
_SLOWEST, _FASTEST = 1e-4, 1e6  # frames a second; FFmpeg's rates are fractions of 32 bits


class VideoWriter(AbstractContextManager["VideoWriter"]):
    """Writes a video file; its extension chooses the container. Close it, or use it in a ``with``.

    Parameters
    ----------
    path
        The file, as in ``"run.mp4"``. A file of this name is replaced; its folder is created.
    rate
        Frames per second.
    codec
        A codec of FFmpeg; H.264 unless given, or MPEG-4 where this build of FFmpeg has no encoder for H.264.
        ``"ffv1"`` in an ``.mkv`` is lossless.
    quality
        The constant rate factor of H.264: 0 is best, 51 smallest. Other codecs ignore it.
    preset
        The preset of H.264, from ``"ultrafast"`` to ``"veryslow"``, whose files are smaller. Others ignore it.
    """

    def __init__(
        self,
        path: str | Path,
        rate: float = 30.0,
        *,
        codec: str | None = None,
        quality: int = 18,
        preset: str = "medium",
    ) -> None:
        if not _SLOWEST <= rate <= _FASTEST:  # true for NaN
            raise ValueError(
                f"the rate of the video {path} must be more than 0, from {_SLOWEST:g} to {_FASTEST:g} frames a "
                f"second, not {rate!r}"
            )
        self._preset = preset
        self._first: float | None = None
        self._shown_at = -1
        self._is_timed = False
        self.path = Path(path).expanduser()
        self.rate = Fraction(float(rate)).limit_denominator(100_000)
        self._codec = codec
        self._quality = quality
        self._container: Any = None
        self._stream: Any = None
        self._shape: tuple[int, ...] = ()
        self._count = 0
        self._is_closed = False
        _av()  # missing is missing now, not at the first frame

    def __len__(self) -> int:
        return self._count

    def write(self, pixels: Any, time: float | None = None) -> None:
        """Add a frame.

        Parameters
        ----------
        pixels
            An array in host memory, uint8: (height, width) or (height, width, 1) is grey, (height, width, 3) RGB,
            (height, width, 4) RGBA, whose alpha is ignored. All frames have the shape of the first.
        time
            When the frame is shown, in seconds from any origin; the video begins with its first frame. A frame that
            is no later than the one before follows it at `rate`. Without times all frames follow at `rate`.
        """
        if self._is_closed:
            raise ValueError(f"the video {self.path} has been closed")
        array = np.asarray(pixels)
        if (
            array.dtype != np.uint8
            or array.ndim not in (2, 3)
            or array.shape[2:] not in ((), (1,), (3,), (4,))
        ):
            raise ValueError(
                f"frame {self._count} of {self.path} is {array.dtype} of shape {array.shape}; expected uint8 of "
                "shape (height, width) or (height, width, 1, 3 or 4)"
            )
        if not array.size:
            raise ValueError(f"frame {self._count} of {self.path} is empty: its shape is {array.shape}")
        if self._shape and array.shape != self._shape:
            raise ValueError(
                f"frame {self._count} of {self.path} has the shape {array.shape}; those before it have "
                f"{self._shape}, and a video has one size"
            )
        if self._container is None:
            self._is_timed = time is not None
            self._open(array.shape)
        elif self._is_timed != (time is not None):
            raise ValueError(
                f"frame {self._count} of {self.path} has {'no time' if self._is_timed else 'a time'}, and those "
                "before it are different; give all of them times, or none"
            )
        av = _av()
        kind = {(): "gray", (1,): "gray", (3,): "rgb24", (4,): "rgba"}[array.shape[2:]]
        array = array[:, :, 0] if array.shape[2:] == (1,) else array
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(array), format=kind)
        frame.pts, frame.time_base = self._count, 1 / self.rate
        if time is not None:
            frame.pts, frame.time_base = self._ticks(time), _TICK
        with self._named_errors():
            self._container.mux(self._stream.encode(frame))
        self._count += 1

    def _ticks(self, time: float) -> int:
        """Return when a frame is shown, in ticks from the first one."""
        if not abs(time) <= _LATEST:  # false for NaN, too
            raise ValueError(f"frame {self._count} of {self.path} is shown at {time} s, which is no time")
        if self._first is None:
            self._first = time
        at = round((time - self._first) / _TICK)
        if at <= self._shown_at:
            at = self._shown_at + max(1, round(1 / (self.rate * _TICK)))
        self._shown_at = at
        return at

    def _open(self, shape: tuple[int, ...]) -> None:
        av = _av()
        codec = self._codec or ("libx264" if "libx264" in av.codecs_available else "mpeg4")
        height, width = shape[:2]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            container = av.open(str(self.path), "w")
        except (OSError, ValueError, av.error.FFmpegError) as error:
            raise VideoFileError(f"a video cannot be written to {self.path}: {error}") from error
        try:
            stream = container.add_stream(codec, rate=self.rate)
            stream.width, stream.height = width, height
            stream.pix_fmt = _pixel_format(av, codec, width, height)
            if codec.startswith("libx264"):
                stream.options = {"crf": str(self._quality), "preset": self._preset}
            if self._is_timed:
                stream.codec_context.time_base = stream.time_base = _TICK
                # In the order in which they are shown: of others a container knows a wrong length.
                stream.options = {**stream.options, "bf": "0"}
        except (ValueError, av.error.FFmpegError) as error:
            container.close()
            raise VideoFileError(f"{self.path} cannot be encoded with {codec!r}: {error}") from error
        self._container, self._stream, self._shape = container, stream, shape

    def close(self) -> None:
        """Finish the file; may be called more than once. A video without frames leaves no file."""
        self._is_closed = True
        container, self._container = self._container, None
        if container is not None:
            with self._named_errors():
                try:
                    container.mux(self._stream.encode())
                finally:
                    container.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Name the file in FFmpeg's errors: it opens encoders and files at a frame, and writes some at the end."""
        try:
            yield
        except (OSError, ValueError, _av().error.FFmpegError) as error:
            what = "the last frames" if self._is_closed else f"frame {self._count}"
            size = "×".join(map(str, self._shape[1::-1]))
            raise VideoFileError(
                f"{self.path}: {what}, of {size} pixels, cannot be encoded with "
                f"{self._stream.codec_context.name!r} or written: {error}"
            ) from error

    def __exit__(self, *_: object) -> None:
        self.close()


def write_video(path: str | Path, frames: Iterable[Any], rate: float = 30.0, **options: Any) -> int:
    """Write frames to a video file and return their number; see :class:`VideoWriter` for the options."""
    with VideoWriter(path, rate, **options) as writer:
        for pixels in frames:
            writer.write(pixels)
    return len(writer)


def _pixel_format(av: Any, codec: str, width: int, height: int) -> str:
    """Return the pixel format to encode in: what every player shows, where the codec and the size allow it."""
    offered = [one.name for one in av.Codec(codec, "w").video_formats or ()]
    # Half as many colours as pixels each way need an even size; H.264 shows other sizes at full colour.
    wanted = ["yuv420p"] if width % 2 == 0 and height % 2 == 0 else ["yuv444p"]
    if codec == "ffv1":
        wanted = ["bgr0", "gbrp"]  # lossless for RGB, too
    return next(
        (one for one in [*wanted, "yuv420p", "yuvj420p"] if not offered or one in offered), offered[0]
    )


def _av() -> Any:
    return import_or_explain("av", "video", "to read and write video files")
