"""V4L2Camera: a camera of Linux, its formats, its settings and its frames; and the system calls that it is used by.

Tests put another class in the place of VideoDevice, which makes the calls.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import select
import stat
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain
from headrace.video import v4l2_ioctl as v4l2


class CameraError(RuntimeError):
    """There is no such camera, it does not offer what was asked for, or it has gone."""


class VideoDevice:
    """An open device file such as ``/dev/video0``.

    Parameters
    ----------
    path
        The device file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            if not stat.S_ISCHR(os.stat(path).st_mode):
                raise CameraError(f"{path} is not a device file; {_found()}")
            self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise CameraError(f"there is no camera {path}; {_found()}") from error
        except PermissionError as error:
            raise CameraError(
                f"{path} may not be opened by this user; on most systems, adding the user to the group 'video' "
                "allows it"
            ) from error
        except OSError as error:
            raise CameraError(f"{path} cannot be opened: {error.strerror}") from error
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ioctl(self, request: int, argument: Any) -> None:
        """Send a request; raise OSError if the device refuses it."""
        while True:
            try:
                fcntl.ioctl(self._file, request, argument)
                return
            except InterruptedError:
                continue

    def mmap(self, length: int, offset: int) -> Any:
        """Return the memory of a buffer; it is unmapped when the last reference goes."""
        return mmap.mmap(self._file, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)

    def wait(self) -> bool:
        """Wait until a frame can be taken (True) or `wake` was called (False)."""
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        ready = dict(poll.poll())
        if self._wake_read in ready:
            return False
        if ready[self._file] & select.POLLIN:
            return True
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    def wake(self) -> None:
        """End every `wait`, from now on; may be called from any thread."""
        os.write(self._wake_write, b"x")

    def close(self) -> None:
        """Close the device."""
        for file in (self._file, self._wake_read, self._wake_write):
            os.close(file)


def video_devices() -> dict[str, str]:
    """Return the video devices of this machine, and what each calls itself."""
    found = {}
    for folder in sorted(Path("/sys/class/video4linux").glob("video*")):
        try:
            found[f"/dev/{folder.name}"] = (folder / "name").read_text().strip()
        except OSError:
            continue
    return found


def _found() -> str:
    devices = video_devices()
    if not devices:
        return "this machine has no video devices"
    return "this machine has " + ", ".join(f"{path} ({name})" for path, name in devices.items())


class JpegDecoder:
    """Decodes JPEG pictures to RGBA, with PyAV."""

    def __init__(self) -> None:
        self._av = import_or_explain(
            "av", "video", "to decode Motion JPEG; pass_through=True takes it as it is"
        )
        self._codec = self._av.CodecContext.create("mjpeg", "r")

    def __call__(self, data: Any) -> np.ndarray[Any, Any] | None:
        """Return the picture, (height, width, 4), or None if it cannot be decoded."""
        try:
            frames = self._codec.decode(self._av.Packet(bytes(data)))
        except self._av.error.FFmpegError:
            return None
        return frames[0].to_ndarray(format="rgba") if frames else None


# The formats that are chosen unless one is named; those that need no decoder come first.
_PREFERRED = ("RGB3", "YUYV", "MJPG")
_ALIASES = {"RGB24": "RGB3", "MJPEG": "MJPG", "YUY2": "YUYV"}
# The rates that count as equal: those of television are fractions, as 30000/1001, and people write 29.97.
_LESS, _MORE = Fraction(999, 1000), Fraction(1001, 1000)


@dataclass(frozen=True, slots=True)
class CameraFormat:
    """The format that a camera sends in.

    Attributes
    ----------
    pixel_format
        The four characters of its code, as ``"YUYV"``.
    width, height
        The size in pixels.
    bytes_per_line, size
        The bytes of a row and of a frame.
    ycbcr_encoding, quantization, colorspace
        How colours are coded, by the numbers of V4L2.
    """

    pixel_format: str
    width: int
    height: int
    bytes_per_line: int
    size: int
    ycbcr_encoding: int = 0
    quantization: int = 0
    colorspace: int = 0


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A frame in a buffer of the driver, which goes back there when the last array over it is gone.

    Attributes
    ----------
    sequence
        Its number, counted by the driver; numbers that are missing were dropped.
    timestamp
        When it was captured, in nanoseconds of the monotonic clock; None where the driver does not say.
    """

    _bytes: np.ndarray[Any, Any]
    sequence: int
    timestamp: int | None

    def data(self) -> np.ndarray[Any, Any]:
        """Return its bytes as an array, which keeps the buffer."""
        return self._bytes


class V4L2Camera(AbstractContextManager["V4L2Camera"]):
    """A camera of Linux. Close it, or use it in a ``with``.

    Parameters
    ----------
    path
        The device file, as ``"/dev/video0"``.
    open_device
        Opens it: :class:`VideoDevice`, or what stands for it in tests.
    """

    def __init__(self, path: str, open_device: Callable[[str], Any] = VideoDevice) -> None:
        self.path = path
        self.format: CameraFormat | None = None
        self._memory: list[Any] = []
        # Reentrant: a frame may be collected, and its buffer given back, on the thread that holds the lock.
        self._lock = threading.RLock()
        self._is_streaming = False
        self._device = open_device(path)
        try:
            self._check()
        except BaseException:
            self._device.close()
            raise

    def _error(self, what: str) -> CameraError:
        return CameraError(f"{self.path} ({self.card}) {what}")

    def _ask(self, request: int, argument: Any, refusal: str) -> Any:
        """Send a request and return its argument; raise an error if the device refuses it."""
        try:
            self._device.ioctl(request, argument)
        except OSError as error:
            busy = "; another program uses it" if error.errno == errno.EBUSY else ""
            raise self._error(f"{refusal}: {error.strerror}{busy}") from error
        return argument

    # What it is, and its formats.

    def _check(self) -> None:
        capability = v4l2.v4l2_capability()
        try:
            self._device.ioctl(v4l2.VIDIOC_QUERYCAP, capability)
        except OSError as error:
            raise CameraError(f"{self.path} is not a video device: {error.strerror}") from error
        self.card = capability.card.decode(errors="replace")
        flags = capability.capabilities
        if flags & v4l2.CAP_DEVICE_CAPS:
            flags = capability.device_caps
        if not flags & v4l2.CAP_VIDEO_CAPTURE:
            raise self._error(
                "captures in several planes, which is not supported"
                if flags & v4l2.CAP_VIDEO_CAPTURE_MPLANE
                else "is no capture node; a camera often has several nodes, of which the first captures"
            )
        if not flags & v4l2.CAP_STREAMING:
            raise self._error("has no streaming i/o, which is needed")

    def formats(self) -> dict[str, str]:
        """Return the pixel formats that it offers, and what each is called."""
        found: dict[str, str] = {}
        for index in range(1000):
            entry = v4l2.v4l2_fmtdesc(index=index, type=v4l2.BUF_TYPE_VIDEO_CAPTURE)
            try:
                self._device.ioctl(v4l2.VIDIOC_ENUM_FMT, entry)
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOTTY):
                    break
                raise self._error(f"does not say what it offers: {error.strerror}") from error
            found[_fourcc(entry.pixelformat)] = entry.description.decode(errors="replace")
        return found

    # Settings.

    def configure(
        self, width: int = 0, height: int = 0, frame_rate: float = 0.0, pixel_format: str = "auto"
    ) -> CameraFormat:
        """Choose format, size and rate; 0 and ``"auto"`` leave the choice to the device.

        A driver takes what comes nearest to what it is asked for, and tells that. So the formats are set one after
        the other, until one has the size and the rate.
        """
        if bool(width) != bool(height) or width < 0 or height < 0:
            raise CameraError(
                f"{self.path}: give both width and height, or 0 for both, not {width} by {height}"
            )
        settings = v4l2.v4l2_format(type=v4l2.BUF_TYPE_VIDEO_CAPTURE)
        pix = self._ask(v4l2.VIDIOC_G_FMT, settings, "does not tell its format").fmt.pix
        size = (width, height) if width else (pix.width, pix.height)
        chosen: list[str] = []
        for wanted in self._candidates(pixel_format, _fourcc(pix.pixelformat)):
            got = self._set_format(settings, wanted, size)
            if got.pixel_format != wanted or (width and (got.width, got.height) != size):
                chosen.append(f"{got.width}x{got.height} in {got.pixel_format}")
                continue
            rate = self._set_rate(frame_rate) if frame_rate else Fraction(0)
            if rate * _LESS <= frame_rate <= rate * _MORE:
                self.format = got
                return got
            chosen.append(f"{float(rate):g} frames per second in {wanted}")
        at_rate = f" at {frame_rate:g} frames per second" if frame_rate else ""
        raise self._error(
            f"does not offer {size[0]}x{size[1]}{at_rate}; asked for it, it chose {', '.join(chosen)}"
        )

    def _candidates(self, wanted: str, current: str) -> list[str]:
        """Return the formats to try, the best first; raise an error that lists what there is."""
        offered = self.formats()
        name = _ALIASES.get(wanted.upper(), wanted)
        if wanted == "auto":
            return [one for one in dict.fromkeys((*_PREFERRED, current, *offered)) if one in offered] or [
                current
            ]
        if name not in offered:
            listed = ", ".join(f"{one} ({text})" for one, text in offered.items()) or "none"
            raise self._error(f"does not offer the pixel format {wanted!r}; it offers {listed}")
        return [name]

    def _set_format(self, settings: Any, pixel_format: str, size: tuple[int, int]) -> CameraFormat:
        """Set a format and a size, and return what the device chose."""
        pix = settings.fmt.pix
        pix.pixelformat, (pix.width, pix.height), pix.field = _code(pixel_format), size, v4l2.FIELD_NONE
        pix.bytesperline = pix.sizeimage = 0
        self._ask(v4l2.VIDIOC_S_FMT, settings, f"refuses {pixel_format} at {size[0]}x{size[1]}")
        return CameraFormat(
            _fourcc(pix.pixelformat),
            pix.width,
            pix.height,
            pix.bytesperline,
            pix.sizeimage,
            pix.ycbcr_enc,
            pix.quantization,
            pix.colorspace,
        )

    def _set_rate(self, rate: float) -> Fraction:
        """Set the rate, and return the one that the device chose."""
        refusal = "does not let its rate be set; use frame_rate=0"
        parameters = v4l2.v4l2_streamparm(type=v4l2.BUF_TYPE_VIDEO_CAPTURE)
        capture = self._ask(v4l2.VIDIOC_G_PARM, parameters, refusal).parm.capture
        if not capture.capability & v4l2.CAP_TIMEPERFRAME:
            raise self._error(f"{refusal}: it has one rate")
        interval = 1 / Fraction(rate).limit_denominator(1001)
        per_frame = capture.timeperframe
        per_frame.numerator, per_frame.denominator = interval.numerator, interval.denominator
        self._ask(v4l2.VIDIOC_S_PARM, parameters, refusal)
        return Fraction(per_frame.denominator, per_frame.numerator or 1)

    def set_exposure(self, value: int | None) -> None:
        """Set the exposure time in units of 100 µs; None lets the camera choose."""
        if value is None:
            # Cameras of USB know aperture priority, others auto; one without this control chooses always.
            if not self._try_control(v4l2.CID_EXPOSURE_AUTO, v4l2.EXPOSURE_APERTURE_PRIORITY):
                self._try_control(v4l2.CID_EXPOSURE_AUTO, v4l2.EXPOSURE_AUTO)
            return
        self._try_control(v4l2.CID_EXPOSURE_AUTO, v4l2.EXPOSURE_MANUAL)
        self._set_control(v4l2.CID_EXPOSURE_ABSOLUTE, value, "exposure_time")

    def set_gain(self, value: int | None) -> None:
        """Set the gain; None lets the camera choose."""
        self._try_control(v4l2.CID_AUTOGAIN, int(value is None))
        if value is not None:
            self._set_control(v4l2.CID_GAIN, value, "gain")

    def _try_control(self, number: int, value: int) -> bool:
        with suppress(OSError):
            self._device.ioctl(v4l2.VIDIOC_S_CTRL, v4l2.v4l2_control(number, value))
            return True
        return False

    def _set_control(self, number: int, value: int, name: str) -> None:
        missing = f"has no control for {name}; leave it out, or give None"
        known = self._ask(v4l2.VIDIOC_QUERYCTRL, v4l2.v4l2_queryctrl(id=number), missing)
        if known.flags & v4l2.CTRL_FLAG_DISABLED:
            raise self._error(f"{missing}: it is disabled")
        if not known.minimum <= value <= known.maximum:
            raise CameraError(
                f"{self.path} ({self.card}): {name} must be {known.minimum} to {known.maximum}, not {value}"
            )
        self._ask(v4l2.VIDIOC_S_CTRL, v4l2.v4l2_control(number, value), f"refuses {name} {value}")

    # Frames.

    def start(self, buffers: int = 4) -> None:
        """Begin to capture."""
        if self.format is None:
            self.configure()
        refusal = "cannot capture"
        kind = v4l2.BUF_TYPE_VIDEO_CAPTURE
        request = v4l2.v4l2_requestbuffers(count=buffers, type=kind, memory=v4l2.MEMORY_MMAP)
        count = self._ask(v4l2.VIDIOC_REQBUFS, request, refusal).count
        if count < 2:
            raise self._error(f"gives {count} buffers of {buffers} asked for; 2 are needed")
        for index in range(count):
            buffer = self._ask(v4l2.VIDIOC_QUERYBUF, _buffer(index), refusal)
            try:
                self._memory.append(self._device.mmap(buffer.length, buffer.m.offset))
            except OSError as error:
                raise self._error(f"{refusal}: {error.strerror}") from error
            self._ask(v4l2.VIDIOC_QBUF, _buffer(index), refusal)
        self._ask(v4l2.VIDIOC_STREAMON, ctypes.c_int32(kind), refusal)
        self._is_streaming = True

    def wait(self) -> CapturedFrame | None:
        """Wait for the next frame, and return it; None if `wake` was called meanwhile."""
        while True:
            try:
                if not self._device.wait():
                    return None
                buffer = _buffer(0)
                self._device.ioctl(v4l2.VIDIOC_DQBUF, buffer)
            except BlockingIOError:
                continue
            except OSError as error:
                gone = "was removed" if error.errno == errno.ENODEV else f"failed: {error.strerror}"
                raise self._error(f"{gone} while capturing") from error
            if buffer.flags & v4l2.BUF_FLAG_ERROR:
                self._queue(buffer.index)  # its data is damaged, and its number is missing
                continue
            return self._captured(buffer)

    def _captured(self, buffer: Any) -> CapturedFrame:
        timestamp = None
        if buffer.flags & v4l2.BUF_FLAG_TIMESTAMP_MASK == v4l2.BUF_FLAG_TIMESTAMP_MONOTONIC:
            timestamp = buffer.timestamp.tv_sec * 1_000_000_000 + buffer.timestamp.tv_usec * 1_000
        memory = self._memory[buffer.index]
        size = min(buffer.bytesused or buffer.length, len(memory))
        # Views of this array refer to it, and it to the memory, which stays mapped as long.
        data = np.frombuffer(memory, np.uint8, size)
        weakref.finalize(data, self._queue, buffer.index).atexit = False
        return CapturedFrame(data, buffer.sequence, timestamp)

    def _queue(self, index: int) -> None:
        """Return a buffer to the driver; nothing happens once the camera is closed."""
        with self._lock:
            if self._is_streaming:
                with suppress(OSError):  # the camera has gone, which the next wait reports
                    self._device.ioctl(v4l2.VIDIOC_QBUF, _buffer(index))

    def wake(self) -> None:
        """End every `wait`; may be called from any thread."""
        self._device.wake()

    def close(self) -> None:
        """Stop capturing and close the device; frames that are still held stay readable."""
        with self._lock:
            if self._device is None:
                return
            if self._is_streaming:
                self._is_streaming = False
                with suppress(OSError):  # it has gone
                    self._device.ioctl(v4l2.VIDIOC_STREAMOFF, ctypes.c_int32(v4l2.BUF_TYPE_VIDEO_CAPTURE))
            self._memory.clear()
            device, self._device = self._device, None
            device.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _buffer(index: int) -> Any:
    return v4l2.v4l2_buffer(index=index, type=v4l2.BUF_TYPE_VIDEO_CAPTURE, memory=v4l2.MEMORY_MMAP)


def _fourcc(code: int) -> str:
    return (code & 0x7FFFFFFF).to_bytes(4, "little").decode("latin-1").rstrip()


def _code(pixel_format: str) -> int:
    return int.from_bytes(pixel_format.ljust(4).encode("latin-1")[:4], "little")
