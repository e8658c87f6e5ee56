"""TraceFile: a file of trace events that can be opened however its writing ends.

The format is Chrome's JSON array of events, which Perfetto and other viewers open. The closing bracket may be
missing. Events are written whole, one a line, and without a buffer behind. A process that is killed leaves a file
that ends after an event, or within one in the rare case that it is killed while the system copies it: so little is
written at a time that this takes no longer than a copy of two pages. A compressed file ends with the last complete
block.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any, BinaryIO

_WAITING = 1 << 18  # characters that wait at most to be written
_AT_ONCE = 1 << 12  # characters in a call of the system, or one event


class TraceFile:
    """Writes trace events, as text in JSON.

    Parameters
    ----------
    path
        The file, compressed if its name ends with ``.gz``. An existing file is overwritten.
    """

    def __init__(self, path: Path) -> None:
        self._raw: BinaryIO = open(path, "wb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._compressed = (
            gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=4, mtime=0)
            if path.name.endswith(".gz")
            else None
        )
        self._waiting: list[str] = []
        self._length = 0
        self._separator = "[\n"

    def add(self, *events: str) -> None:
        """Add events."""
        self._waiting += events
        self._length += sum(map(len, events))
        if self._length > _WAITING:
            self.write()

    def write(self) -> None:
        """Write the events that wait."""
        if not self._waiting:
            return
        piece = ""
        for event in self._waiting:
            if piece and len(piece) + len(event) > _AT_ONCE and self._compressed is None:
                self._put(piece)
                piece = ""
            piece += self._separator + event
            self._separator = ",\n"
        self._waiting.clear()
        self._length = 0
        self._put(piece)
        if self._compressed is not None:
            self._compressed.flush(zlib.Z_SYNC_FLUSH)

    def close(self) -> None:
        """Write what waits and close the file."""
        try:
            self.write()
            self._put("\n]\n")
            if self._compressed is not None:
                self._compressed.close()
        finally:
            self._raw.close()  # also if the disk is full

    def _put(self, text: str) -> None:
        # A lone surrogate, as in the name of a file that is not UTF-8, becomes an escape of JSON.
        data = memoryview(text.encode(errors="backslashreplace"))
        while data:
            data = data[(self._compressed or self._raw).write(data) :]


def json_text(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def micros(nanoseconds: int) -> str:
    """Return nanoseconds as microseconds, exactly: a float has digits enough for a hundred days."""
    return repr(nanoseconds / 1000)
