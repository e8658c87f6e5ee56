"""Video files and streams of any kind, through PyAV: reading and writing.

PyAV is imported when a file is opened. The extra ``video`` installs it.

A video whose frames have times says when its first frame was shown, as a tag of the container: MP4's own time of
creation has whole seconds. MP4 is written in fragments, which become one index when the file is closed. So a
process that is killed leaves a file that plays.

Which encoder and decoder a video uses: NVIDIA's (NVENC, NVDEC) where they work, otherwise FFmpeg's own.

A build of FFmpeg may have NVENC on a machine without a GPU, so an encoder counts as available if it opens for the
size of the video. The log says which one was taken instead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain

_logger = logging.getLogger("headrace.video")

_START = "headrace_start"
"""The tag of a container with the time of its first frame, in nanoseconds."""
PIXEL_FORMATS = ("rgb24", "bgr24", "rgba", "bgra", "gray", "nv12", "yuv420p")
"""The pixels of arrays, in FFmpeg's names."""
UNKNOWN_INTERVAL = 33_333_333
"""The distance of frames, in nanoseconds, where a file says nothing about it: 30 a second."""
_IN_PLANES = {"nv12": "yuv420p", "p010le": "yuv420p10le"}
"""The formats of NVDEC, with those of software for the same values: FFmpeg makes RGB of the two differently."""


class VideoFileError(RuntimeError):
    """A video file is missing, truncated, or not of the expected kind."""


@dataclass(slots=True)
class VideoFrame:
    """A frame of a video file.

    Attributes
    ----------
    pixels
        uint8: RGB of shape (height, width, 3), unless the reader was asked for another format.
    time
        When it is shown, in nanoseconds after the first frame.
    """

    pixels: np.ndarray[Any, Any]
    time: int


class VideoReader:
    """The frames of a video, decoded while it is iterated over, each time from the beginning.

    Parameters
    ----------
    path
        The file, of any kind that FFmpeg reads; a picture is a video of one frame. Or a URL, such as
        ``"rtsp://camera/stream"``, which is opened when the first frame is asked for.
    ignore_corrupted
        Whether to skip what cannot be decoded, with a warning; otherwise it raises :class:`VideoFileError`.
    pixel_format
        What frames are decoded to: ``"rgb24"``, ``"bgr24"``, ``"rgba"`` or ``"bgra"`` of the shape (height, width,
        channels), ``"gray"`` of (height, width), ``"nv12"`` or ``"yuv420p"`` of (3/2 height, width).
    hardware
        Whether NVDEC decodes, if this build of FFmpeg and the machine have it.
    timeout
        How long a URL may stay silent, in seconds.
    options
        Options of FFmpeg for the container.

    Attributes
    ----------
    width, height
        The size of the frames; 0 for a URL that has not been opened.
    rate
        The mean number of frames per second, or None where the file does not say.
    codec
        The name of the codec.
    start
        The time of the first frame in nanoseconds, from the origin of the times that were written; None where the
        file does not say.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        ignore_corrupted: bool = True,
        pixel_format: str = "rgb24",
        hardware: bool = False,
        timeout: float = 5.0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if pixel_format not in PIXEL_FORMATS:
            raise ValueError(f"pixel_format must be one of {', '.join(PIXEL_FORMATS)}, not {pixel_format!r}")
        self.path: str | Path = str(path) if is_url(path) else Path(path).expanduser()
        self.ignore_corrupted = ignore_corrupted
        self._pixel_format = pixel_format
        self._hardware = hardware
        self._timeout = timeout
        self._options = dict(options or {})
        self.width = self.height = 0
        self.codec = ""
        self.rate: float | None = None
        self.start: int | None = None
        if not is_url(path):
            self._open(hardware=False).close()

    def __iter__(self) -> Iterator[VideoFrame]:
        return self.frames()

    def frames(self) -> Generator[VideoFrame, None, None]:
        """Decode the frames, from the beginning."""
        first: Fraction | None = None
        last = -1
        skipped = 0
        with self._open(self._hardware) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            step = round(1e9 / self.rate) if self.rate else UNKNOWN_INTERVAL
            packets = container.demux(stream)
            while True:
                packet = None
                try:
                    packet = next(packets, None)  # None also after an error: nothing can be found behind it
                    if packet is None:
                        break
                    decoded = packet.decode()
                except _av().error.FFmpegError as error:
                    if packet is None and is_url(self.path):
                        raise VideoFileError(f"{self.path}: the connection was lost: {error}") from error
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
                    yield VideoFrame(_pixels(frame, self._pixel_format), time)
        if skipped:
            _logger.warning("%s: skipped %d packets that could not be decoded", self.path, skipped)
        if last < 0:
            raise VideoFileError(f"{self.path}: no frame of its video could be decoded")

    def _open(self, hardware: bool) -> Any:
        av = _av()
        options, arguments = self._options, {}
        if is_url(self.path):
            options = {**_url_options(str(self.path)), **options}
            arguments["timeout"] = self._timeout
        elif not Path(self.path).is_file():
            raise VideoFileError(f"there is no file {self.path}")
        try:
            container = open_input(av, str(self.path), hardware, options=options, **arguments)
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise VideoFileError(f"{self.path} is not a video that can be read: {error}") from error
        if not container.streams.video:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "none"
            container.close()
            raise VideoFileError(f"{self.path} has no video stream; its streams are of kind: {kinds}")
        stream = container.streams.video[0]
        if stream.codec_context is None:
            codec = codec_text(av, container)
            container.close()
            raise VideoFileError(
                f"{self.path}: this build of FFmpeg has no decoder for the codec of its video, "
                f"which it calls {codec!r}"
            )
        self.width, self.height = int(stream.width), int(stream.height)
        self.codec = str(stream.codec_context.name)
        rate = stream.average_rate or stream.guessed_rate
        self.rate = float(rate) if rate else None
        tags = {name.lower(): value for name, value in container.metadata.items()}
        self.start = int(tags[_START]) if _is_number(tags.get(_START, "")) else None
        return container


# The units of times. The rates 24, 25, 30, 50, 60 and 59.94 are whole numbers of the first, and MPEG-4 takes none
# finer. The second is for exact times. MP4 counts the time between two frames with 32 bits: FFmpeg loses all times
# behind a longer gap.
_TICK, _FINE_TICK = Fraction(1, 60_000), Fraction(1, 1_000_000)
_STEP = Fraction(1, 1000)  # between two frames of the same time: what every container keeps
_LONGEST_GAP = 2**31 - 1  # ticks
_LATEST = 1e12  # seconds; more than that is no time, and its ticks do not fit FFmpeg's integers
_SLOWEST, _FASTEST = 1e-4, 1e6  # frames a second; FFmpeg's rates are fractions of 32 bits


class VideoWriter(AbstractContextManager["VideoWriter"]):
    """Writes a video; the extension of a file chooses the container. Close it, or use it in a ``with``.

    Parameters
    ----------
    path
        The file, as in ``"run.mp4"``. A file of this name is replaced; its folder is created. Or the URL of a
        server that takes streams, as in ``"rtsp://server/name"``.
    rate
        Frames per second.
    codec
        ``"h264"`` (unless given) or ``"hevc"``, for which the encoder is chosen, or an encoder of FFmpeg. H.264
        becomes MPEG-4 where this build of FFmpeg has no encoder for it. ``"ffv1"`` in an ``.mkv`` is lossless.
    quality
        The constant quality of H.264 and HEVC: 0 is best, 51 smallest. Other codecs ignore it.
    preset
        The preset of H.264 and HEVC, from ``"ultrafast"`` to ``"veryslow"``, whose files are smaller. Others ignore
        it.
    bit_rate
        Bits per second in place of a quality; 0: as many as the quality takes.
    pixel_format
        The pixels in the file, in FFmpeg's names, as ``"yuv444p"``; chosen unless given.
    array_format
        The pixels of the arrays: ``""`` tells grey, RGB and RGBA by the shape; or ``"bgr24"``, ``"bgra"``, or
        ``"nv12"`` or ``"yuv420p"`` of the shape (3/2 height, width).
    hardware
        Whether NVENC encodes ``"h264"`` and ``"hevc"``, if it works here.
    options
        Options of FFmpeg for the container.

    Attributes
    ----------
    frames_retimed
        The number of frames that were no later than the one before, and were shown later than they said.
    """

    def __init__(
        self,
        path: str | Path,
        rate: float = 30.0,
        *,
        codec: str | None = None,
        quality: int = 18,
        preset: str = "medium",
        bit_rate: int = 0,
        pixel_format: str = "",
        array_format: str = "",
        hardware: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if not _SLOWEST <= rate <= _FASTEST:  # true for NaN
            raise ValueError(
                f"the rate of the video {path} must be more than 0, from {_SLOWEST:g} to {_FASTEST:g} frames a "
                f"second, not {rate!r}"
            )
        if array_format and array_format not in PIXEL_FORMATS:
            raise ValueError(f"array_format must be one of {', '.join(PIXEL_FORMATS)}, not {array_format!r}")
        self._preset = preset
        self._first: float | Fraction | None = None
        self._shown_at = -1
        self.path: str | Path = str(path) if is_url(path) else Path(path).expanduser()
        self.rate = Fraction(float(rate)).limit_denominator(100_000)
        self.frames_retimed = 0
        self._codec = codec or "h264"
        self._quality = quality
        self._bit_rate = bit_rate
        self._pixel_format = pixel_format
        self._array_format = array_format
        self._hardware = hardware
        self._options = dict(options or {})
        self._tick = _TICK
        self._container: Any = None
        self._stream: Any = None
        self._shape: tuple[int, ...] = ()
        self._count = 0
        self._is_closed = False
        _av()  # missing is missing now, not at the first frame

    def __len__(self) -> int:
        return self._count

    def write(self, pixels: Any, time: float | Fraction | None = None) -> None:
        """Add a frame.

        Parameters
        ----------
        pixels
            An array in host memory, uint8: (height, width) or (height, width, 1) is grey, (height, width, 3) RGB,
            (height, width, 4) RGBA, whose alpha is ignored. All frames have the shape of the first.
        time
            When the frame is shown, in seconds from any origin; the video begins with its first frame. If the
            first time is a Fraction, times are kept to a microsecond, and two frames are at most 35 minutes apart;
            otherwise to a sixty-thousandth of a second, and at most 9 hours. A frame that is no later than the one
            before is shown a millisecond after it; if its time is earlier by an interval of `rate` or more, as
            after a clock that was set back, an interval after it. Without times all frames follow at `rate`.
        """
        if self._is_closed:
            raise ValueError(f"the video {self.path} has been closed")
        array = np.asarray(pixels)
        kind = self._kind_of(array)
        if self._shape and array.shape != self._shape:
            raise ValueError(
                f"frame {self._count} of {self.path} has the shape {array.shape}; those before it have "
                f"{self._shape}, and a video has one size"
            )
        if self._container is not None and (self._first is None) != (time is None):
            raise ValueError(
                f"frame {self._count} of {self.path} has {'no time' if time is None else 'a time'}, and those "
                "before it are different; give all of them times, or none"
            )
        if time is not None and not abs(float(time)) <= _LATEST:  # false for NaN, too
            raise ValueError(f"frame {self._count} of {self.path} is shown at {time} s, which is no time")
        if self._container is None:
            self._first = time
            self._open(array.shape, kind)
        av = _av()
        array = array[:, :, 0] if array.shape[2:] == (1,) else array
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(array), format=kind)
        frame.pts, frame.time_base = self._count, 1 / self.rate
        if time is not None:
            frame.pts, frame.time_base = self._ticks(time), self._tick
        with self._named_errors():
            self._container.mux(self._stream.encode(frame))
        self._count += 1

    def _kind_of(self, array: np.ndarray[Any, Any]) -> str:
        """Return the pixel format of an array; raise if it is no frame."""
        given = self._array_format
        kinds: dict[tuple[int, ...], str] = {(): "gray", (1,): "gray", (3,): "rgb24", (4,): "rgba"}
        if given:
            channels = {"bgr24": 3, "rgb24": 3, "bgra": 4, "rgba": 4}.get(given)
            kinds = {(): given} if channels is None else {(channels,): given}
        kind = kinds.get(array.shape[2:]) if array.ndim in (2, 3) else None
        is_halved = given in ("nv12", "yuv420p")
        if (
            array.dtype != np.uint8
            or kind is None
            or (is_halved and (array.shape[0] % 3 or array.shape[1] % 2))
        ):
            shapes = "(height, width) or (height, width, 1, 3 or 4)"
            if given:
                shapes = (
                    "(3/2 height, width), both even" if is_halved else f"(height, width, ...) for {given}"
                )
            raise ValueError(
                f"frame {self._count} of {self.path} is {array.dtype} of shape {array.shape}; expected uint8 of "
                f"shape {shapes}"
            )
        if not array.size:
            raise ValueError(f"frame {self._count} of {self.path} is empty: its shape is {array.shape}")
        return kind

    def _ticks(self, time: float | Fraction) -> int:
        """Return when a frame is shown, in ticks from the first one."""
        assert self._first is not None
        at = round((time - self._first) / self._tick)
        if at <= self._shown_at:
            # A doubled or a swapped time moves one frame, and not those behind it, however fast they come. Behind a
            # clock that was set back, frames follow at the rate.
            self.frames_retimed += 1
            interval = max(1, round(1 / (self.rate * self._tick)))
            is_set_back = self._shown_at - at >= interval
            at = self._shown_at + (interval if is_set_back else min(interval, round(_STEP / self._tick)))
        elif at - self._shown_at > _LONGEST_GAP:
            raise ValueError(
                f"frame {self._count} of {self.path} is shown {float((at - self._shown_at) * self._tick):.0f} s "
                f"after the one before it; a video has at most {float(_LONGEST_GAP * self._tick):.0f} s between "
                "two frames"
            )
        self._shown_at = at
        return at

    def _open(self, shape: tuple[int, ...], kind: str) -> None:
        av = _av()
        height, width = shape[:2]
        height = height * 2 // 3 if kind in ("nv12", "yuv420p") else height
        codec = choose_encoder(av, self._codec, width, height, self._hardware)
        try:
            arguments: dict[str, Any] = {"options": {**self._container_options(av), **self._options}}
            if is_url(self.path):
                arguments["format"] = "rtsp" if _url_options(str(self.path)) else None
            else:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            container = av.open(str(self.path), "w", **arguments)
        except (OSError, ValueError, av.error.FFmpegError) as error:
            raise VideoFileError(f"a video cannot be written to {self.path}: {error}") from error
        try:
            stream = container.add_stream(codec, rate=self.rate)
            stream.width, stream.height = width, height
            stream.pix_fmt = self._pixel_format or _pixel_format(av, codec, width, height)
            options = {} if self._bit_rate else quality_options(codec, self._quality, self._preset)
            if self._bit_rate:
                stream.bit_rate = self._bit_rate
            if is_url(self.path) and codec == "libx264":
                # Whoever watches sees a frame when it is written, and can begin within a second.
                options |= {"tune": "zerolatency", "g": str(max(1, round(self.rate)))}
            if self._first is not None:
                is_exact = isinstance(self._first, Fraction)
                container.metadata[_START] = str(round(self._first * 1_000_000_000))
                self._tick = _FINE_TICK if is_exact and codec != "mpeg4" else _TICK
                stream.codec_context.time_base = stream.time_base = self._tick
                # In the order in which they are shown: of others a container knows a wrong length.
                options["bf"] = "0"
            stream.options = options
        except (ValueError, av.error.FFmpegError) as error:
            container.close()
            raise VideoFileError(f"{self.path} cannot be encoded with {codec!r}: {error}") from error
        self._container, self._stream, self._shape = container, stream, shape

    def _container_options(self, av: Any) -> dict[str, str]:
        if is_url(self.path):
            return _url_options(str(self.path))
        if Path(self.path).suffix.lower() not in (".mp4", ".m4v", ".mov"):
            return {}
        # FFmpeg 7.1 writes the index of the whole file at the end; before that, it stays in fragments.
        is_new = av.library_versions["libavformat"] >= (61, 7)
        fragments = "hybrid_fragmented" if is_new else "empty_moov+default_base_moof"
        return {
            "movflags": f"{fragments}+frag_keyframe+use_metadata_tags",
            "frag_duration": "1000000",
            "flush_packets": "1",
        }

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


def is_url(path: str | Path) -> bool:
    """Return whether a path is the URL of a stream."""
    return isinstance(path, str) and "://" in path


def _url_options(url: str) -> dict[str, str]:
    """Return FFmpeg's options for a URL: RTSP over TCP, which loses no packets and passes firewalls."""
    return {"rtsp_transport": "tcp"} if url.startswith(("rtsp://", "rtsps://")) else {}


def _is_number(text: str) -> bool:
    return len(text) < 20 and text.removeprefix("-").isdecimal()


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


def _pixels(frame: Any, pixel_format: str) -> Any:
    """Return the pixels of a decoded frame, which do not depend on what decoded it."""
    planes = _IN_PLANES.get(frame.format.name)
    if planes is not None and pixel_format != frame.format.name:
        try:  # on several threads, FFmpeg 8.1 turns P010 into values that differ from call to call
            frame = frame.reformat(format=planes, threads=1)
        except TypeError:  # an earlier PyAV, which takes no number and uses one
            frame = frame.reformat(format=planes)
    return frame.to_ndarray(format=pixel_format)


ENCODERS = {"h264": ("h264_nvenc", "libx264", "mpeg4"), "hevc": ("hevc_nvenc", "libx265")}
"""The encoders of a codec, the best first: that of the hardware, then those that run everywhere."""


def choose_encoder(av: Any, codec: str, width: int, height: int, hardware: bool) -> str:
    """Return the encoder of a codec; any other name than those in `ENCODERS` is an encoder itself.

    Parameters
    ----------
    av
        PyAV.
    codec
        The codec.
    width, height
        The size of the frames.
    hardware
        Whether to take NVENC if it works.
    """
    if codec not in ENCODERS:
        return codec
    first, *software = ENCODERS[codec]
    if hardware and first in av.codecs_available:
        problem = _problem_with(av, first, width, height)
        if problem is None:
            _logger.info("%s is encoded by %s", codec, first)
            return first
        _logger.info("%s does not work here (%s); %s is encoded in software", first, problem, codec)
    elif hardware:
        _logger.info("this build of FFmpeg has no %s; %s is encoded in software", first, codec)
    return next((one for one in software if one in av.codecs_available), software[0])


def _problem_with(av: Any, encoder: str, width: int, height: int) -> Exception | None:
    try:
        context = av.CodecContext.create(encoder, "w")
        context.width, context.height, context.pix_fmt = width, height, "yuv420p"
        context.time_base, context.framerate = Fraction(1, 30), Fraction(30)
        context.open()
    except (ValueError, OSError, av.error.FFmpegError) as error:
        return error
    return None


def quality_options(encoder: str, quality: int, preset: str) -> dict[str, str]:
    """Return the options of an encoder for a constant quality."""
    if encoder.startswith(("libx264", "libx265")):
        return {"crf": str(quality), "preset": preset}
    return {"rc": "vbr", "cq": str(quality)} if encoder.endswith("_nvenc") else {}


def open_input(av: Any, source: str, hardware: bool, **arguments: Any) -> Any:
    """Open a container, decoded by NVDEC if asked for and this build of FFmpeg and the machine have it."""
    module = getattr(av.codec, "hwaccel", None)
    if hardware and module is not None and "cuda" in module.hwdevices_available():
        accelerator = module.HWAccel("cuda", allow_software_fallback=True)
        try:
            accelerator.create(av.Codec("h264", "r"))  # before the source: a live one is connected to once
        except Exception as error:
            _logger.info("NVDEC does not work here (%s); %s is decoded in software", error, source)
        else:
            container = av.open(source, hwaccel=accelerator, **arguments)
            is_used = any(stream.codec_context.is_hwaccel for stream in container.streams.video)
            _logger.info(
                "%s is decoded %s", source, "by NVDEC" if is_used else "in software: NVDEC has no such codec"
            )
            return container
    return av.open(source, **arguments)


def codec_text(av: Any, container: Any) -> str:
    """Return FFmpeg's name for the codec of a video that it cannot decode: ``"none (Zq9x / 0x7839715A)"``."""
    level = av.logging.get_level()
    av.logging.set_level(av.logging.INFO)  # FFmpeg describes a container in its log alone
    try:
        found = re.search(r"Video: ([^,\n]+)", container.dumps_format())
    finally:
        av.logging.set_level(level)
    return found[1].strip() if found is not None else "unknown"
