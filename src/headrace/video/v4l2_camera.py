"""V4L2Camera: a camera of Linux, its formats, its settings and its frames."""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from headrace.video import v4l2_ioctl as v4l2
from headrace.video.errors import CameraError
from headrace.video.v4l2_device import VideoDevice

__all__ = ["CameraFormat", "CapturedFrame", "V4L2Camera"]

# What is chosen without a wish: what needs no decoder first.
_PREFERRED = ("RGB3", "YUYV", "MJPG")
_ALIASES = {"RGB24": "RGB3", "MJPEG": "MJPG", "YUY2": "YUYV"}


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


class CapturedFrame:
    """A frame in a buffer of the driver, which goes back there when the last array over it is gone.

    Attributes
    ----------
    sequence
        Its number, counted by the driver; numbers that are missing were dropped.
    timestamp
        When it was captured, in nanoseconds of the monotonic clock; None where the driver does not say.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_give_back", "_memory", "sequence", "timestamp")

    def __init__(
        self, memory: Any, size: int, sequence: int, timestamp: int | None, give_back: Callable[[], None]
    ) -> None:
        self._memory = memory  # mapped as long as this lives
        self._give_back = give_back
        self.sequence = sequence
        self.timestamp = timestamp
        address = np.frombuffer(memory, np.uint8).ctypes.data
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }

    def data(self) -> np.ndarray[Any, Any]:
        """Return its bytes as an array, which keeps the buffer."""
        return np.asarray(self)

    def __del__(self) -> None:
        give_back = getattr(self, "_give_back", None)
        if give_back is not None:
            give_back()


class V4L2Camera:
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

    # What it offers.

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
            why = (
                "it captures in several planes, which is not supported"
                if flags & v4l2.CAP_VIDEO_CAPTURE_MPLANE
                else "it is no capture node; a camera often has several nodes, of which the first captures"
            )
            raise CameraError(f"{self.path} ({self.card}) cannot be used: {why}")
        if not flags & v4l2.CAP_STREAMING:
            raise CameraError(f"{self.path} ({self.card}) has no streaming i/o, which is needed")

    def formats(self) -> dict[str, str]:
        """Return the pixel formats that it offers, and what each is called."""
        found = {}
        for entry in self._enumerate(
            v4l2.VIDIOC_ENUM_FMT, lambda: v4l2.v4l2_fmtdesc(type=v4l2.BUF_TYPE_VIDEO_CAPTURE)
        ):
            found[_fourcc(entry.pixelformat)] = entry.description.decode(errors="replace")
        return found

    def sizes(self, pixel_format: str) -> list[tuple[int, int] | SizeRange]:
        """Return the sizes that it offers in a format: pairs, or a :class:`SizeRange`."""
        found: list[Any] = []
        code = _code(pixel_format)
        for entry in self._enumerate(
            v4l2.VIDIOC_ENUM_FRAMESIZES, lambda: v4l2.v4l2_frmsizeenum(pixel_format=code)
        ):
            if entry.type == v4l2.FRMSIZE_TYPE_DISCRETE:
                found.append((entry.size.discrete.width, entry.size.discrete.height))
            else:
                step = entry.size.stepwise
                found.append(
                    SizeRange(
                        *(getattr(step, name) for name, _ in step._fields_)  # in the order of the fields
                    )
                )
                break
        return found

    def rates(self, pixel_format: str, width: int, height: int) -> list[Fraction | tuple[Fraction, Fraction]]:
        """Return the rates that it offers at a size: numbers, or the pair of the lowest and the highest."""
        found: list[Any] = []
        code = _code(pixel_format)
        for entry in self._enumerate(
            v4l2.VIDIOC_ENUM_FRAMEINTERVALS,
            lambda: v4l2.v4l2_frmivalenum(pixel_format=code, width=width, height=height),
        ):
            if entry.type == v4l2.FRMSIZE_TYPE_DISCRETE:
                found.append(_rate(entry.interval.discrete))
            else:
                found.append((_rate(entry.interval.stepwise.max), _rate(entry.interval.stepwise.min)))
                break
        return found

    def _enumerate(self, request: int, make: Callable[[], Any]) -> Iterator[Any]:
        for index in range(1000):
            entry = make()
            entry.index = index
            try:
                self._device.ioctl(request, entry)
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOTTY):
                    return
                raise CameraError(f"{self.path} does not say what it offers: {error.strerror}") from error
            yield entry

    # Settings.

    def configure(
        self, width: int = 0, height: int = 0, frame_rate: float = 0.0, pixel_format: str = "auto"
    ) -> CameraFormat:
        """Choose format, size and rate; 0 and ``"auto"`` leave the choice to the device."""
        if bool(width) != bool(height) or width < 0 or height < 0:
            raise CameraError(
                f"{self.path}: give both width and height, or 0 for both, not {width} by {height}"
            )
        current = self._current()
        size = (width, height) if width else (current.fmt.pix.width, current.fmt.pix.height)
        chosen = self._choose(
            pixel_format, size, bool(width), frame_rate, _fourcc(current.fmt.pix.pixelformat)
        )
        pix = current.fmt.pix
        pix.pixelformat, (pix.width, pix.height), pix.field = _code(chosen), size, v4l2.FIELD_NONE
        pix.bytesperline = pix.sizeimage = 0
        try:
            self._device.ioctl(v4l2.VIDIOC_S_FMT, current)
        except OSError as error:
            busy = "; another program uses it" if error.errno == errno.EBUSY else ""
            raise CameraError(
                f"{self.path} ({self.card}) refuses {chosen} at {size[0]}x{size[1]}: {error.strerror}{busy}"
            ) from error
        self.format = CameraFormat(
            _fourcc(pix.pixelformat),
            pix.width,
            pix.height,
            pix.bytesperline,
            pix.sizeimage,
            pix.ycbcr_enc,
            pix.quantization,
            pix.colorspace,
        )
        if pixel_format != "auto" and self.format.pixel_format != chosen:
            raise CameraError(
                f"{self.path} ({self.card}) chose {self.format.pixel_format} in place of {chosen}"
            )
        if width and (self.format.width, self.format.height) != size:
            raise CameraError(
                f"{self.path} ({self.card}) chose {self.format.width}x{self.format.height} in place of "
                f"{width}x{height}; {self._offered_sizes(chosen)}"
            )
        if frame_rate:
            self._set_rate(frame_rate)
        return self.format

    def _current(self) -> Any:
        current = v4l2.v4l2_format(type=v4l2.BUF_TYPE_VIDEO_CAPTURE)
        try:
            self._device.ioctl(v4l2.VIDIOC_G_FMT, current)
        except OSError as error:
            raise CameraError(
                f"{self.path} ({self.card}) does not tell its format: {error.strerror}"
            ) from error
        return current

    def _choose(
        self, wanted: str, size: tuple[int, int], size_matters: bool, frame_rate: float, current: str
    ) -> str:
        """Return the first format that has what is asked for; raise an error that lists what there is."""
        offered = self.formats()
        name = _ALIASES.get(wanted.upper(), wanted)
        if wanted == "auto":
            candidates = [one for one in (*_PREFERRED, current, *offered) if one in offered] or [current]
        elif name in offered:
            candidates = [name]
        else:
            listed = ", ".join(f"{one} ({text})" for one, text in offered.items()) or "none"
            raise CameraError(
                f"{self.path} ({self.card}) does not offer the pixel format {wanted!r}; it offers {listed}"
            )
        with_size = [one for one in candidates if not size_matters or self._has_size(one, size)]
        if not with_size:
            raise CameraError(
                f"{self.path} ({self.card}) does not offer {size[0]}x{size[1]}; "
                + "; ".join(dict.fromkeys(self._offered_sizes(one) for one in candidates))
            )
        with_rate = [one for one in with_size if not frame_rate or self._has_rate(one, size, frame_rate)]
        if not with_rate:
            listed = "; ".join(dict.fromkeys(self._offered_rates(one, size) for one in with_size))
            raise CameraError(
                f"{self.path} ({self.card}) does not offer {frame_rate:g} frames per second at "
                f"{size[0]}x{size[1]}; {listed}"
            )
        return with_rate[0]

    def _has_size(self, pixel_format: str, size: tuple[int, int]) -> bool:
        offered = self.sizes(pixel_format)
        # A driver that lists nothing is asked by setting it.
        return not offered or any(
            one.has(*size) if isinstance(one, SizeRange) else one == size for one in offered
        )

    def _has_rate(self, pixel_format: str, size: tuple[int, int], rate: float) -> bool:
        offered = self.rates(pixel_format, *size)
        return not offered or any(
            one[0] * Fraction(999, 1000) <= rate <= one[1] * Fraction(1001, 1000)
            if isinstance(one, tuple)
            else _is_close(one, rate)
            for one in offered
        )

    def _offered_sizes(self, pixel_format: str) -> str:
        sizes = ", ".join(
            str(one) if isinstance(one, SizeRange) else f"{one[0]}x{one[1]}"
            for one in self.sizes(pixel_format)
        )
        return f"in {pixel_format} it offers {sizes or 'what it does not list'}"

    def _offered_rates(self, pixel_format: str, size: tuple[int, int]) -> str:
        rates = ", ".join(
            f"{float(one[0]):g} to {float(one[1]):g}" if isinstance(one, tuple) else f"{float(one):g}"
            for one in self.rates(pixel_format, *size)
        )
        return f"in {pixel_format} it offers {rates or 'what it does not list'}"

    def _set_rate(self, rate: float) -> None:
        parameters = v4l2.v4l2_streamparm(type=v4l2.BUF_TYPE_VIDEO_CAPTURE)
        interval = 1 / Fraction(rate).limit_denominator(1001)
        try:
            self._device.ioctl(v4l2.VIDIOC_G_PARM, parameters)
            if not parameters.parm.capture.capability & v4l2.CAP_TIMEPERFRAME:
                raise OSError(errno.ENOTTY, "it has one rate")
            per_frame = parameters.parm.capture.timeperframe
            per_frame.numerator, per_frame.denominator = interval.numerator, interval.denominator
            self._device.ioctl(v4l2.VIDIOC_S_PARM, parameters)
        except OSError as error:
            raise CameraError(
                f"{self.path} ({self.card}) does not let its rate be set: {error.strerror}; use frame_rate=0"
            ) from error
        got = _rate(parameters.parm.capture.timeperframe)
        if not _is_close(got, rate):
            assert self.format is not None
            size = (self.format.width, self.format.height)
            raise CameraError(
                f"{self.path} ({self.card}) chose {float(got):g} frames per second in place of {rate:g}; "
                + self._offered_rates(self.format.pixel_format, size)
            )

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
        try:
            self._device.ioctl(v4l2.VIDIOC_S_CTRL, v4l2.v4l2_control(number, value))
        except OSError:
            return False
        return True

    def _set_control(self, number: int, value: int, name: str) -> None:
        known = v4l2.v4l2_queryctrl(id=number)
        try:
            self._device.ioctl(v4l2.VIDIOC_QUERYCTRL, known)
            if known.flags & v4l2.CTRL_FLAG_DISABLED:
                raise OSError(errno.EINVAL, "disabled")
        except OSError as error:
            raise CameraError(
                f"{self.path} ({self.card}) has no control for {name}; leave it out, or give None"
            ) from error
        if not known.minimum <= value <= known.maximum:
            raise CameraError(
                f"{self.path} ({self.card}): {name} must be {known.minimum} to {known.maximum}, not {value}"
            )
        try:
            self._device.ioctl(v4l2.VIDIOC_S_CTRL, v4l2.v4l2_control(number, value))
        except OSError as error:
            raise CameraError(
                f"{self.path} ({self.card}) refuses {name} {value}: {error.strerror}"
            ) from error

    # Frames.

    def start(self, buffers: int = 4) -> None:
        """Begin to capture."""
        if self.format is None:
            self.configure()
        request = v4l2.v4l2_requestbuffers(
            count=buffers, type=v4l2.BUF_TYPE_VIDEO_CAPTURE, memory=v4l2.MEMORY_MMAP
        )
        try:
            self._device.ioctl(v4l2.VIDIOC_REQBUFS, request)
            if request.count < 2:
                raise CameraError(
                    f"{self.path} ({self.card}) gives {request.count} buffers of {buffers} asked for; 2 are needed"
                )
            for index in range(request.count):
                buffer = _buffer(index)
                self._device.ioctl(v4l2.VIDIOC_QUERYBUF, buffer)
                self._memory.append(self._device.mmap(buffer.length, buffer.m.offset))
                self._device.ioctl(v4l2.VIDIOC_QBUF, _buffer(index))
            self._device.ioctl(v4l2.VIDIOC_STREAMON, ctypes.c_int32(v4l2.BUF_TYPE_VIDEO_CAPTURE))
        except OSError as error:
            busy = "; another program uses it" if error.errno == errno.EBUSY else ""
            raise CameraError(f"{self.path} ({self.card}) cannot capture: {error.strerror}{busy}") from error
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
                raise CameraError(f"{self.path} ({self.card}) {gone} while capturing") from error
            if buffer.flags & v4l2.BUF_FLAG_ERROR:
                self._queue(buffer.index)  # its data is damaged, and its number is missing
                continue
            return self._captured(buffer)

    def _captured(self, buffer: Any) -> CapturedFrame:
        timestamp = None
        if buffer.flags & v4l2.BUF_FLAG_TIMESTAMP_MASK == v4l2.BUF_FLAG_TIMESTAMP_MONOTONIC:
            timestamp = buffer.timestamp.tv_sec * 1_000_000_000 + buffer.timestamp.tv_usec * 1_000
        memory, index = self._memory[buffer.index], buffer.index
        size = min(buffer.bytesused or buffer.length, len(memory))
        return CapturedFrame(memory, size, buffer.sequence, timestamp, lambda: self._queue(index))

    def _queue(self, index: int) -> None:
        """Return a buffer to the driver; nothing happens once the camera is closed."""
        with self._lock:
            if self._is_streaming:
                try:
                    self._device.ioctl(v4l2.VIDIOC_QBUF, _buffer(index))
                except OSError:
                    return  # the camera has gone, which the next wait reports

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

    def __enter__(self) -> V4L2Camera:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes in steps."""

    min_width: int
    max_width: int
    step_width: int
    min_height: int
    max_height: int
    step_height: int

    def has(self, width: int, height: int) -> bool:
        """Return whether a size is among them."""
        return (
            self.min_width <= width <= self.max_width
            and self.min_height <= height <= self.max_height
            and (width - self.min_width) % (self.step_width or 1) == 0
            and (height - self.min_height) % (self.step_height or 1) == 0
        )

    def __str__(self) -> str:
        return (
            f"{self.min_width}x{self.min_height} to {self.max_width}x{self.max_height} in steps of "
            f"{self.step_width}x{self.step_height}"
        )


def _buffer(index: int) -> Any:
    return v4l2.v4l2_buffer(index=index, type=v4l2.BUF_TYPE_VIDEO_CAPTURE, memory=v4l2.MEMORY_MMAP)


def _rate(interval: Any) -> Fraction:
    return Fraction(interval.denominator, interval.numerator or 1)


def _is_close(one: Fraction, rate: float) -> bool:
    return abs(float(one) - rate) <= 0.001 * rate


def _fourcc(code: int) -> str:
    return (code & 0x7FFFFFFF).to_bytes(4, "little").decode("latin-1").rstrip()


def _code(pixel_format: str) -> int:
    return int.from_bytes(pixel_format.ljust(4).encode("latin-1")[:4], "little")
