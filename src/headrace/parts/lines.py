"""Lines: what a process of a part writes, passed on in whole lines by whoever started it.

Processes that write to one pipe or file tear each other's lines. What they write before the run begins, the driver
has written already: every process runs the program from its beginning. So each has pipes of its own, and what it
writes behind a mark (`begin`) is passed on, line by line.

A child of the process may keep its pipes, and write to them for ever. What was written until the process ended is
passed on, and nothing that comes later.
"""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

_CHUNK = 1 << 16
_LAST_WORDS = 2000  # bytes that are kept of what is not passed on
BEGIN = b"\0headrace: the run begins\0"
"""What a process writes to both of its streams before what is passed on."""


def begin() -> None:
    """Let what this process writes be passed on from now on."""
    for descriptor in (1, 2):
        with suppress(OSError):  # the program has closed it
            os.write(descriptor, BEGIN)


class Lines:
    """The lines of one pipe.

    Parameters
    ----------
    pipe
        The end to read from, unbuffered, which it owns from now on.
    write
        Called with what is passed on.
    """

    def __init__(self, pipe: IO[bytes], write: Callable[[bytes], object]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._write = write
        self._kept = b""
        self._is_open = False
        self.is_closed = False

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._pipe.fileno()

    @property
    def last_words(self) -> str:
        """The end of what was not passed on."""
        return self._kept[-_LAST_WORDS:].decode(errors="replace").strip()

    def read(self, most: int = _CHUNK) -> int:
        """Read once, at most so many bytes; return how many."""
        if self.is_closed:
            return 0
        try:
            data = os.read(self._pipe.fileno(), min(most, _CHUNK))
        except BlockingIOError:
            return 0
        if not data:
            self._end()
            return 0
        self._kept += data
        if not self._is_open:
            _, mark, rest = self._kept.partition(BEGIN)
            self._is_open = bool(mark)
            self._kept = rest if mark else self._kept[-_LAST_WORDS:]
        if self._is_open:
            whole, newline, self._kept = self._kept.rpartition(b"\n")
            self._write(whole + newline)
        return len(data)

    def close(self) -> None:
        """Close the pipe; pass on what was written before this call, and a last line without an end."""
        left = 0 if self.is_closed else _available(self._pipe)
        while left > 0 and (size := self.read(left)):
            left -= size
        self._end()
        self._pipe.close()

    def _end(self) -> None:
        """Read no more. The pipe stays open: its number, by which a selector knows it, must not be another's."""
        if not self.is_closed and self._is_open:
            rest, self._kept = self._kept, b""
            self._write(rest)
        self.is_closed = True


def _available(pipe: IO[bytes]) -> int:
    """Return how many bytes wait in a pipe."""
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def print_lines(number: int, data: bytes) -> None:
    """Write bytes to standard output (1) or error (2), which the program may have replaced, as they are."""
    stream: Any = sys.stdout if number == 1 else sys.stderr
    if not data or stream is None:
        return
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(data.decode(errors="replace"))
    else:
        stream.write("")  # makes room, if the line of progress is there
        stream.flush()
        buffer.write(data)
    if hasattr(stream, "flush"):
        stream.flush()
