"""Lines: what a process of a part writes, passed on by the driver in whole lines.

Processes that write to one pipe or file tear each other's lines. What they write before the run begins, the driver
has written already: every process runs the program from its beginning. So each has pipes of its own, and the driver
passes on what comes after the beginning of the run, line by line.

A child of the process may keep its pipes, and write to them for ever. What was written until the process ended is
passed on, and nothing that comes later.
"""

from __future__ import annotations

import fcntl
import os
import termios
from array import array
from collections.abc import Callable
from typing import Any

_CHUNK = 1 << 16
_LAST_WORDS = 2000  # bytes that are kept of what is not passed on


class Lines:
    """The lines of one pipe.

    Parameters
    ----------
    descriptor
        The end of the pipe to read from, which it owns from now on.
    stream
        Returns the stream to write to, which the program may replace in the meantime.
    on_error
        Called with the exception if the stream takes no more; then nothing more is written to it.
    """

    def __init__(
        self, descriptor: int, stream: Callable[[], Any], on_error: Callable[[BaseException], None]
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._stream = stream
        self._on_error = on_error
        self._kept = b""
        self._is_open = False
        self.is_closed = False

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._descriptor

    def open(self) -> None:
        """Pass on what is written from now on, and forget what was written before."""
        self.read_all()
        self._is_open, self._kept = True, b""

    @property
    def last_words(self) -> str:
        """The end of what was not passed on."""
        return self._kept[-_LAST_WORDS:].decode(errors="replace").strip()

    def read(self) -> bool:
        """Read once; return False if there is nothing to read now."""
        return self._read() > 0

    def _read(self, most: int = _CHUNK) -> int:
        """Read once, at most so many bytes; return how many."""
        if self.is_closed:
            return 0
        try:
            data = os.read(self._descriptor, min(most, _CHUNK))
        except BlockingIOError:
            return 0
        if not data:
            self._end()
            return 0
        self._kept += data
        if self._is_open:
            whole, newline, self._kept = self._kept.rpartition(b"\n")
            self._write(whole + newline)
        else:
            self._kept = self._kept[-_LAST_WORDS:]
        return len(data)

    def read_all(self) -> None:
        """Read what was written before this call, and not what is written meanwhile."""
        left = 0 if self.is_closed else _available(self._descriptor)
        while left > 0 and (size := self._read(left)):
            left -= size

    def close(self) -> None:
        """Close the pipe; pass on a last line without an end."""
        self._end()
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _end(self) -> None:
        """Read no more. The pipe stays open: its number, by which a selector knows it, must not be another's."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._is_open:
            rest, self._kept = self._kept, b""
            self._write(rest)

    def _write(self, data: bytes) -> None:
        try:
            write(self._stream(), data)
        except (OSError, ValueError) as error:  # nobody reads it any more
            self._is_open = False
            self._on_error(error)


def _available(descriptor: int) -> int:
    """Return how many bytes wait in a pipe."""
    count = array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def write(stream: Any, data: bytes) -> None:
    """Write bytes to a stream of text as they are, if it has a stream of bytes behind it."""
    if not data or stream is None:
        return
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(data.decode(errors="replace"))
    else:
        stream.write("")  # makes room, if the line of progress is there
        stream.flush()
        buffer.write(data)
    if hasattr(stream, "flush"):  # the program may have put anything that writes in its place
        stream.flush()
