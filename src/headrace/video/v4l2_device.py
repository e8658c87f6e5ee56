"""VideoDevice: the four system calls that a camera is used by. Tests put another class in its place."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import select
import stat
from pathlib import Path
from typing import Any

from headrace.video.errors import CameraError


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
