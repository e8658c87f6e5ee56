"""A camera driver for tests: what stands behind a V4L2 device file, in place of `VideoDevice`."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from typing import Any, ClassVar

import numpy as np

from headrace.video import v4l2_ioctl as v4l2


def code(fourcc: str) -> int:
    return int.from_bytes(fourcc.encode(), "little")


class FakeDriver:
    """A camera with the given formats, which captures what `send` is called with.

    It keeps to the rules of a driver: a size or a rate that it does not have becomes its first one. A buffer must
    be queued to be filled, is filled in order, and cannot be taken before that. A frame without a queued buffer is
    dropped.
    """

    formats: ClassVar[dict[str, tuple[tuple[int, int], ...]]] = {
        "YUYV": ((64, 48), (32, 16)),
        "MJPG": ((64, 48),),
    }
    rates: tuple[tuple[int, int], ...] = ((1, 30), (1, 15))
    capabilities = v4l2.CAP_VIDEO_CAPTURE | v4l2.CAP_STREAMING
    controls: ClassVar[dict[int, tuple[int, int]]] = {
        v4l2.CID_EXPOSURE_AUTO: (0, 3),
        v4l2.CID_EXPOSURE_ABSOLUTE: (1, 500),
        v4l2.CID_AUTOGAIN: (0, 1),
        v4l2.CID_GAIN: (0, 100),
    }
    line_padding = 0
    quantization = encoding = 0
    max_buffers = 32

    def __init__(self, path: str = "/dev/video9") -> None:
        self.path = path
        self.fourcc, self.size = next(iter(self.formats)), next(iter(self.formats.values()))[0]
        self.interval = self.rates[0] if self.rates else (1, 30)
        self.set_controls: list[tuple[int, int]] = []
        self.memory: list[bytearray] = []
        self.queued: deque[int] = deque()
        self.filled: deque[tuple[int, int, int]] = deque()
        self.sequence = 0
        self.is_on = self.is_closed = self.is_woken = self.is_gone = False
        self.changed = threading.Condition()

    # What a test does.

    def send(self, data: Any, flags: int = v4l2.BUF_FLAG_TIMESTAMP_MONOTONIC, waits: bool = False) -> bool:
        """Capture a frame; return whether there was a buffer for it. With `waits`, wait for one."""
        payload = bytes(data)
        with self.changed:
            if waits:
                self.changed.wait_for(lambda: self.queued)
            number, self.sequence = self.sequence, self.sequence + 1
            if not self.is_on or not self.queued:
                return False
            index = self.queued.popleft()
            self.memory[index][: len(payload)] = payload
            self.filled.append((index, len(payload), flags | number << 32))
            self.changed.notify_all()
            return True

    def unplug(self) -> None:
        with self.changed:
            self.is_gone = True
            self.changed.notify_all()

    def on_start(self) -> None:
        """Called when the camera begins to capture."""

    # What a camera does.

    def ioctl(self, request: int, argument: Any) -> None:
        assert not self.is_closed
        with self.changed:
            name = next(name for name, number in v4l2.REQUESTS.items() if number == request)
            if self.is_gone:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            getattr(self, name.removeprefix("VIDIOC_").lower())(argument)

    def querycap(self, it: Any) -> None:
        it.card = b"Test camera"
        it.capabilities = v4l2.CAP_DEVICE_CAPS | 0xFFFF
        it.device_caps = self.capabilities

    def enum_fmt(self, it: Any) -> None:
        name = self._at(list(self.formats), it.index)
        it.pixelformat, it.description = code(name), f"Format {name}".encode()

    def g_fmt(self, it: Any) -> None:
        pix = it.fmt.pix
        pix.width, pix.height = self.size
        pix.pixelformat = code(self.fourcc)
        pixel = {"YUYV": 2, "RGB3": 3, "GREY": 1}.get(self.fourcc, 0)
        pix.bytesperline = pix.width * pixel + self.line_padding if pixel else 0
        pix.sizeimage = (pix.bytesperline or pix.width * 4) * pix.height
        pix.quantization, pix.ycbcr_enc = self.quantization, self.encoding

    def s_fmt(self, it: Any) -> None:
        self.fourcc = next(name for name in self.formats if code(name) == it.fmt.pix.pixelformat)
        offered, size = self.formats[self.fourcc], (it.fmt.pix.width, it.fmt.pix.height)
        self.size = size if size in offered else offered[0]
        self.g_fmt(it)

    def g_parm(self, it: Any) -> None:
        it.parm.capture.capability = v4l2.CAP_TIMEPERFRAME
        it.parm.capture.timeperframe.numerator, it.parm.capture.timeperframe.denominator = self.interval

    def s_parm(self, it: Any) -> None:
        per_frame = it.parm.capture.timeperframe
        interval = (per_frame.numerator, per_frame.denominator)
        self.interval = interval if interval in self.rates else self.rates[0]
        self.g_parm(it)

    def queryctrl(self, it: Any) -> None:
        if it.id not in self.controls:
            raise OSError(errno.EINVAL, "Invalid argument")
        it.minimum, it.maximum = self.controls[it.id]

    def s_ctrl(self, it: Any) -> None:
        if it.id not in self.controls:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.set_controls.append((it.id, it.value))

    def reqbufs(self, it: Any) -> None:
        it.count = min(it.count, self.max_buffers)
        width, height = self.size
        self.memory = [bytearray((width * 4 + self.line_padding) * height) for _ in range(it.count)]

    def querybuf(self, it: Any) -> None:
        it.length, it.m.offset = len(self.memory[it.index]), it.index * 4096

    def mmap(self, length: int, offset: int) -> Any:
        return self.memory[offset // 4096]

    def qbuf(self, it: Any) -> None:
        assert it.index not in self.queued
        self.queued.append(it.index)
        self.changed.notify_all()

    def dqbuf(self, it: Any) -> None:
        if not self.filled:
            raise BlockingIOError(errno.EAGAIN, "no frame")
        it.index, it.bytesused, flags = self.filled.popleft()
        it.flags, it.sequence, it.length = flags & 0xFFFFFFFF, flags >> 32, len(self.memory[it.index])
        now = time.monotonic_ns()
        it.timestamp.tv_sec, it.timestamp.tv_usec = now // 1_000_000_000, now // 1_000 % 1_000_000

    def streamon(self, it: Any) -> None:
        self.is_on = True
        self.changed.notify_all()
        self.on_start()

    def streamoff(self, it: Any) -> None:
        self.is_on = False
        self.queued.clear()

    def wait(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.filled or self.is_woken or self.is_gone)
            if self.is_woken:
                return False
            if self.is_gone:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            return True

    def wake(self) -> None:
        with self.changed:
            self.is_woken = True
            self.changed.notify_all()

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True

    @staticmethod
    def _at(items: Any, index: int) -> Any:
        if index >= len(items):
            raise OSError(errno.EINVAL, "Invalid argument")
        return items[index]


def yuyv(number: int, width: int = 64, height: int = 48) -> np.ndarray:
    """A grey frame whose brightness is the number."""
    frame = np.full((height, width, 2), 128, np.uint8)
    frame[..., 0] = number
    return frame
