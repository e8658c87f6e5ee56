"""RecordingWriter: writes the messages of ports to a file, in the format of `recording_format`."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.observe.recordings.payloads import Payload
from headrace.observe.recordings.recording_format import (
    LONGEST_HEADER,
    MAGIC,
    TIMES,
    VERSION,
    Head,
    RecordingError,
)

__all__ = ["RecordingWriter"]

_MOST_PIECES = 512  # of one write; the operating system's limit is 1,024


class RecordingWriter:
    """A recording that is written; one thread at a time may use it.

    Parameters
    ----------
    path
        The file, which is replaced if it exists.
    header
        The application, ports and flows.
    started, epoch
        When the run began on its time line, and what to add for the time since the epoch.

    Raises
    ------
    RecordingError
        If the header is longer than a reader accepts; the file is left as it is.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: dict[str, Any], started: int, epoch: int
    ) -> None:
        self.path = Path(path)
        self.messages = 0
        content = json.dumps(header).encode()
        if len(content) > LONGEST_HEADER:
            raise RecordingError(
                f"recording {str(self.path)!r} cannot be written: the names of its {len(header['ports'])} ports "
                f"and {len(header['flows'])} flows take {len(content)} bytes, and {LONGEST_HEADER} are allowed; "
                "record fewer ports"
            )
        self._file = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666
        )
        try:
            self._write_all([MAGIC + bytes([VERSION])])
            self._write(b"H", [content])
            self._write(b"T", [TIMES.pack(started, epoch)])
        except BaseException:
            os.close(self._file)
            raise

    def add(self, port: int, sequence: int, step: int, time: int, payload: Payload) -> None:
        """Add a message."""
        self._write(b"M", payload, port, sequence, step, time)
        self.messages += 1

    def close(self, is_complete: bool = True) -> None:
        """Write the end, unless the recording is incomplete, and close the file."""
        if self._file < 0:
            return
        try:
            if is_complete:
                self._write(b"E", [json.dumps({"messages": self.messages}).encode()])
        finally:
            file, self._file = self._file, -1
            os.close(file)

    def _write(
        self,
        kind: bytes,
        parts: Iterable[bytes | bytearray | memoryview],
        port: int = 0,
        sequence: int = 0,
        step: int = 0,
        time: int = 0,
    ) -> None:
        body = [part for part in parts if len(part)]
        checksum = 0
        for part in body:
            checksum = zlib.crc32(part, checksum)
        head = Head(checksum, sum(map(len, body)), kind, port, sequence, step, time)
        self._write_all([head.pack(), *body])

    def _write_all(self, parts: list[bytes | bytearray | memoryview]) -> None:
        if len(parts) > _MOST_PIECES:
            parts = [b"".join(parts)]
        left = [memoryview(part) for part in parts]
        while left:
            written = os.writev(self._file, left) if hasattr(os, "writev") else os.write(self._file, left[0])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if left:
                left[0] = left[0][written:]
