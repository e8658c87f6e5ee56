"""Recordings: files of the messages of ports.

A file begins with 16 bytes, ``\\x89headrace-rec\\r\\n`` and the version, 1. Records follow, one after the other. A
record is a head of 13 bytes and a body. All integers are little-endian.

| head | |
| --- | --- |
| 4 bytes | CRC-32 of the rest of the head and of the body |
| 8 bytes | the length of the body |
| 1 byte | the kind: ``H`` header, ``T`` times, ``M`` message, ``E`` end |

The first record is the header: JSON with the application, the recorded ports, and the flows that begin at recorded
outputs. The second has two integers of 8 bytes: the beginning of the run on its time line, and what to add to a
time for the time since the epoch. The body of a message is:

| body | |
| --- | --- |
| 4 bytes | the port: its position in the header |
| 8 bytes | its number among the messages of the port, from 0 |
| 8 bytes | the compute that emitted or received it: its number among all computes of the operator, from 0 |
| 8 bytes | when it was emitted or received, in nanoseconds of the time line |
| the rest | a payload (`payloads`): the tuple of its acquisition timestamp, metadata and data |

The end record, JSON, holds the number of messages. A file without one is incomplete: its process was killed. Every
record before that is readable, since each is handed to the operating system as a whole, and nothing in the file
points forward.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.observe.payloads import Payload, PayloadError, decode

__all__ = ["RecordedMessage", "RecordedPort", "Recording", "RecordingError", "RecordingWriter"]

_MAGIC = b"\x89headrace-rec\r\n\x01"
_HEAD = struct.Struct("<IQc")
_PREFIX = struct.Struct("<IQQq")
_TIMES = struct.Struct("<qq")
_LONGEST_HEADER = 1 << 24
_MOST_PIECES = 512  # of one write; the operating system's limit is 1,024


class RecordingError(ValueError):
    """A file that is no recording, or a damaged one."""


@dataclass(frozen=True, slots=True)
class RecordedPort:
    """A port whose messages a recording holds."""

    operator: str
    port: str
    is_output: bool
    index: int | None = None
    """The position of the connection, at an input for any number of connections."""

    @property
    def name(self) -> str:
        """The operator and the port, as in ``"camera.out"``, with ``:index`` if there is one."""
        return f"{self.operator}.{self.port}" + ("" if self.index is None else f":{self.index}")


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message of a recording.

    Attributes
    ----------
    port
        The port that it passed.
    sequence
        Its number among the messages of the port.
    step
        The number of the compute that emitted or received it, among all computes of the operator.
    time
        When that was, in nanoseconds since the first message of the recording.
    acq_timestamp, metadata
        Its acquisition timestamp and its metadata, or None.
    data
        Its data. A tensor is a :class:`TensorCopy`, which ``np.asarray`` takes.
    """

    port: RecordedPort
    sequence: int
    step: int
    time: int
    acq_timestamp: int | None
    metadata: dict[str, Any] | None
    data: Any


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a message is in the file."""

    port: int
    sequence: int
    step: int
    time: int
    offset: int
    length: int


class Recording:
    """A recording that is read.

    Opening it reads the heads of its records; a message is read when it is asked for. A file whose process was
    killed is read up to the last complete message.

    Parameters
    ----------
    path
        The file.
    pickle
        Whether pickled objects in it are loaded. That runs code which the file names, so the file must be trusted.

    Raises
    ------
    RecordingError
        If the file is not a recording, or is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, pickle: bool = False) -> None:
        self.path = Path(path)
        self._allow_pickle = pickle
        self._file = os.open(self.path, os.O_RDONLY)
        self._size = os.fstat(self._file).st_size
        self.is_complete = False
        """Whether the run that was recorded came to its end."""
        self.started = self.epoch = 0
        """When the run began on its time line, and what to add to that for the time since the epoch."""
        self._entries: list[_Entry] = []
        self._read_index()
        self._began = min((entry.time for entry in self._entries), default=0)

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RecordedMessage]:
        return self.messages()

    def __repr__(self) -> str:
        return f"<Recording {str(self.path)!r}: {len(self)} messages of {len(self.ports)} ports>"

    @property
    def application(self) -> str:
        """The name of the application that was recorded."""
        return str(self.header["application"])

    def messages(
        self, port: str | None = None, *, is_output: bool | None = None
    ) -> Iterator[RecordedMessage]:
        """Yield the messages in their order, of all ports or of one, such as ``"camera.out"``.

        `is_output` chooses between an input and an output of the same name.
        """
        chosen = [port in (None, one.name) and is_output in (None, one.is_output) for one in self.ports]
        if not any(chosen) and self.ports:
            names = ", ".join(one.name for one in self.ports)
            raise RecordingError(f"{self._name} has no messages of {port!r}; it has those of {names}")
        for number, entry in enumerate(self._entries):
            if chosen[entry.port]:
                yield self.load(number)

    def count(self, port: RecordedPort) -> int:
        """Return the number of messages of a port."""
        position = self.ports.index(port)
        return sum(entry.port == position for entry in self._entries)

    def outline(self) -> list[tuple[RecordedPort, int, int]]:
        """Return the port, the step and the time of each message, as :class:`RecordedMessage` has them."""
        return [(self.ports[one.port], one.step, one.time - self._began) for one in self._entries]

    def load(self, number: int) -> RecordedMessage:
        """Return a message by its number among all; may be called from any thread."""
        entry = self._entries[number]
        port = self.ports[entry.port]
        body = self._read_body(entry.offset, entry.length, b"M")
        try:
            acq_timestamp, metadata, data = self._checked(
                decode(memoryview(body)[_PREFIX.size :], self._allow_pickle)
            )
        except PayloadError as error:
            raise RecordingError(
                f"{self._name}, message {entry.sequence} of {port.name!r}: {error}"
            ) from error
        return RecordedMessage(
            port, entry.sequence, entry.step, entry.time - self._began, acq_timestamp, metadata, data
        )

    @staticmethod
    def _checked(value: Any) -> tuple[int | None, dict[str, Any] | None, Any]:
        if type(value) is tuple and len(value) == 3:
            acq_timestamp, metadata, data = value
            has_names = type(metadata) is dict and all(type(name) is str for name in metadata)
            if type(acq_timestamp) in (int, type(None)) and (metadata is None or has_names):
                return acq_timestamp, metadata, data
        raise PayloadError("the payload is damaged: it is no message")

    @property
    def _name(self) -> str:
        return f"recording {str(self.path)!r}"

    def _damaged(self, offset: int, why: str) -> RecordingError:
        return RecordingError(f"{self._name} is damaged at byte {offset}: {why}")

    def _read_index(self) -> None:
        if os.pread(self._file, len(_MAGIC), 0) != _MAGIC:
            raise RecordingError(f"{str(self.path)!r} is not a recording of headrace")
        offset = len(_MAGIC)
        has_header = False
        while offset + _HEAD.size <= self._size:
            start = os.pread(self._file, _HEAD.size + _PREFIX.size, offset)
            _, length, kind = _HEAD.unpack_from(start)
            if offset + _HEAD.size + length > self._size:
                break  # the process was killed as it wrote it
            if not has_header:
                if kind != b"H" or length > _LONGEST_HEADER:
                    raise self._damaged(offset, "there should be a header")
                self._read_header(offset, length)
                has_header = True
            elif kind == b"T" and length == _TIMES.size:
                self.started, self.epoch = _TIMES.unpack(self._read_body(offset, length, b"T"))
            elif kind == b"M":
                self._add_entry(offset, length, start)
            elif kind == b"E":
                self._read_end(offset, length)
                return
            else:
                raise self._damaged(offset, f"there is no kind of record {kind!r}")
            offset += _HEAD.size + length
        if not has_header:
            raise RecordingError(f"{self._name} is empty: its process was killed before the run began")

    def _add_entry(self, offset: int, length: int, start: bytes) -> None:
        if length < _PREFIX.size:
            raise self._damaged(offset, "a message is too short")
        port, sequence, step, time = _PREFIX.unpack_from(start, _HEAD.size)
        if port >= len(self.ports):
            raise self._damaged(offset, f"a message is of port {port}, and there are {len(self.ports)}")
        self._entries.append(_Entry(port, sequence, step, time, offset, length))

    def _read_header(self, offset: int, length: int) -> None:
        try:
            header = json.loads(self._read_body(offset, length, b"H"))
            self.header: dict[str, Any] = header
            self.ports = [
                RecordedPort(
                    str(port["operator"]),
                    str(port["port"]),
                    bool(port["is_output"]),
                    None if port["index"] is None else int(port["index"]),
                )
                for port in header["ports"]
            ]
            self.flows = [
                (str(source), str(output), str(target), str(input_), None if index is None else int(index))
                for source, output, target, input_, index in header["flows"]
            ]
            str(header["application"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, RecordingError):
                raise
            raise self._damaged(offset, f"the header is not valid ({error!r:.200})") from error

    def _read_end(self, offset: int, length: int) -> None:
        if length > _LONGEST_HEADER:
            raise self._damaged(offset, "its end is too long")
        try:
            count = json.loads(self._read_body(offset, length, b"E"))["messages"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, RecordingError):
                raise
            raise self._damaged(offset, "its end is not valid") from error
        if count != len(self._entries):
            raise self._damaged(offset, f"{count} messages were recorded, and there are {len(self._entries)}")
        self.is_complete = True

    def _read_body(self, offset: int, length: int, kind: bytes) -> bytearray:
        body = bytearray(length)  # no longer than the file
        head = os.pread(self._file, _HEAD.size, offset)
        view, at = memoryview(body), 0
        while at < length:
            count = os.preadv(self._file, [view[at:]], offset + _HEAD.size + at)
            if not count:
                raise self._damaged(offset, "the file has become shorter")
            at += count
        checksum, _, found = _HEAD.unpack(head)
        if found != kind or zlib.crc32(body, zlib.crc32(head[4:])) != checksum:
            raise self._damaged(offset, "the checksum is wrong")
        return body


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
    """

    def __init__(
        self, path: str | os.PathLike[str], header: dict[str, Any], started: int, epoch: int
    ) -> None:
        self.path = Path(path)
        self.messages = 0
        self._file = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666
        )
        try:
            self._write_all([_MAGIC])
            self._write(b"H", [json.dumps(header).encode()])
            self._write(b"T", [_TIMES.pack(started, epoch)])
        except BaseException:
            os.close(self._file)
            raise

    def add(self, port: int, sequence: int, step: int, time: int, payload: Payload) -> None:
        """Add a message."""
        self._write(b"M", [_PREFIX.pack(port, sequence, step, time), *payload])
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

    def _write(self, kind: bytes, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        body = [part for part in parts if len(part)]
        head = _HEAD.pack(0, sum(map(len, body)), kind)
        checksum = zlib.crc32(head[4:])
        for part in body:
            checksum = zlib.crc32(part, checksum)
        self._write_all([struct.pack("<I", checksum) + head[4:], *body])

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
