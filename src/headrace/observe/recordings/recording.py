"""Recordings: files of the messages of ports, read."""

from __future__ import annotations

import json
import logging
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.observe.recordings.payloads import PayloadError, decode
from headrace.observe.recordings.recording_format import (
    HEAD_SIZE,
    LONGEST_HEADER,
    MAGIC,
    TIMES,
    VERSION,
    Head,
    RecordingError,
)

__all__ = ["RecordedMessage", "RecordedPort", "Recording", "RecordingError"]

_log = logging.getLogger("headrace.observe")


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


class Recording:
    """A recording that is read.

    Opening it reads the heads of its records and checks their checksums, lengths and numbers. A message is read and
    checked when it is asked for. A file whose process was killed is read up to the last complete message, with a
    warning.

    Parameters
    ----------
    path
        The file.
    pickle
        Whether pickled objects in it are loaded. That runs code which the file names, so the file must be trusted.
    strict
        Whether a damaged file is an error. Otherwise it is read up to the damage, with a warning that says how much
        that is. A message whose own bytes are damaged is always an error, when it is asked for; those around it can
        be read.

    Attributes
    ----------
    problem
        Why not everything that was recorded can be read, and how much can be, in words; None if all can.

    Raises
    ------
    RecordingError
        If the file is not a recording, or is damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pickle: bool = False,
        strict: bool = True,
        _warns: bool = True,
    ) -> None:
        self.path = Path(path)
        self._allow_pickle = pickle
        self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)  # which a pipe would wait for
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no ordinary file"
            raise RecordingError(f"{str(self.path)!r} is {what}, and a recording is one file")
        self._size = status.st_size
        self.is_complete = False
        """Whether the run that was recorded came to its end."""
        self.started = self.epoch = 0
        """When the run began on its time line, and what to add to that for the time since the epoch."""
        self._entries: list[tuple[int, Head]] = []  # where each message is in the file, and its head
        self._counts: list[int] = []
        self.problem = self._read_index(strict)
        self._began = min((head.time for _, head in self._entries), default=0)
        if self.problem is not None and _warns:
            _log.warning("%s", self.problem)

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
        for number, (_, head) in enumerate(self._entries):
            if chosen[head.port]:
                yield self.load(number)

    def count(self, port: RecordedPort) -> int:
        """Return the number of messages of a port."""
        return self._counts[self.ports.index(port)]

    def outline(self) -> list[tuple[RecordedPort, int, int]]:
        """Return the port, the step and the time of each message, as :class:`RecordedMessage` has them."""
        return [(self.ports[head.port], head.step, head.time - self._began) for _, head in self._entries]

    def load(self, number: int) -> RecordedMessage:
        """Return a message by its number among all; may be called from any thread."""
        offset, head = self._entries[number]
        port = self.ports[head.port]
        try:
            acq_timestamp, metadata, data = self._checked(
                decode(self._read_body(offset, head), self._allow_pickle)
            )
        except PayloadError as error:
            raise RecordingError(
                f"{self._name}, message {head.sequence} of {port.name!r}: {error}"
            ) from error
        return RecordedMessage(
            port, head.sequence, head.step, head.time - self._began, acq_timestamp, metadata, data
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

    def _read_index(self, strict: bool) -> str | None:
        """Find the messages, and return what is wrong with the file, if anything."""
        self._check_magic()
        offset = self._read_start()
        try:
            while not self.is_complete:
                head = self._head_at(offset)
                if head is None:
                    return (
                        f"{self._name} is incomplete: its process was killed, or the file was cut off; "
                        f"{self._amount(offset)} are read"
                    )
                if head.kind == b"M":
                    self._add_entry(offset, head)
                elif head.kind == b"E":
                    self._read_end(offset, head)
                else:
                    raise self._damaged(
                        offset, f"there should be a message, not a record of the kind {head.kind!r}"
                    )
                offset += HEAD_SIZE + head.length
        except RecordingError as error:
            if strict:
                raise RecordingError(
                    f"{error}; {self._amount(offset)} can be read (strict=False, --no-strict)"
                ) from error
            return f"{error}; {self._amount(offset)} are read"
        return None

    def _amount(self, offset: int) -> str:
        count = len(self._entries)
        return f"the {count} messages in its first {offset} of {self._size} bytes"

    def _check_magic(self) -> None:
        found = os.pread(self._file, len(MAGIC) + 1, 0)
        if not found:
            raise RecordingError(f"{self._name} is empty: the file has 0 bytes")
        if found[:-1] != MAGIC:
            raise RecordingError(f"{str(self.path)!r} is not a recording of headrace")
        version = found[-1]
        if version > VERSION:
            raise RecordingError(
                f"{self._name} has version {version} of the format: a newer headrace wrote it, and this one reads "
                f"version {VERSION}"
            )
        if version != VERSION:
            raise RecordingError(
                f"{self._name} is damaged at byte {len(MAGIC)}: there is no version {version}"
            )

    def _read_start(self) -> int:
        """Read the header and the times; return where messages begin."""
        offset = len(MAGIC) + 1
        for wanted, what in ((b"H", "a header"), (b"T", "the times of the run")):
            head = self._head_at(offset)
            if head is None:
                raise RecordingError(
                    f"{self._name} has no messages: its process was killed before the run began"
                )
            if head.kind != wanted or head.length > LONGEST_HEADER:
                raise self._damaged(offset, f"there should be {what}")
            if wanted == b"H":
                self._read_header(offset, head)
            elif head.length != TIMES.size:
                raise self._damaged(
                    offset, f"the times of the run should have {TIMES.size} bytes, not {head.length}"
                )
            else:
                self.started, self.epoch = TIMES.unpack(self._read_body(offset, head))
            offset += HEAD_SIZE + head.length
        self._counts = [0] * len(self.ports)
        return offset

    def _head_at(self, offset: int) -> Head | None:
        """Return the head of a record; None if the file ends within the record."""
        content = os.pread(self._file, HEAD_SIZE, offset)
        if len(content) < HEAD_SIZE:
            return None
        head = Head.unpack(content)
        if head is None:
            raise self._damaged(offset, "the checksum of a head is wrong")
        return head if offset + HEAD_SIZE + head.length <= self._size else None

    def _add_entry(self, offset: int, head: Head) -> None:
        if head.port >= len(self.ports):
            raise self._damaged(offset, f"a message is of port {head.port}, and there are {len(self.ports)}")
        expected = self._counts[head.port]
        if head.sequence != expected:
            name = self.ports[head.port].name
            raise self._damaged(
                offset, f"message {expected} of {name!r} should be here, and message {head.sequence} is"
            )
        self._counts[head.port] += 1
        self._entries.append((offset, head))

    def _read_header(self, offset: int, head: Head) -> None:
        try:
            header = json.loads(self._read_body(offset, head))
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
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, RecordingError):
                raise
            raise self._damaged(offset, f"the header is not valid ({error!r:.200})") from error

    def _read_end(self, offset: int, head: Head) -> None:
        if head.length > LONGEST_HEADER:
            raise self._damaged(offset, "its end is too long")
        try:
            count = json.loads(self._read_body(offset, head))["messages"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, RecordingError):
                raise
            raise self._damaged(offset, "its end is not valid") from error
        if count != len(self._entries):
            raise self._damaged(offset, f"{count} messages were recorded, and there are {len(self._entries)}")
        end = offset + HEAD_SIZE + head.length
        if end < self._size:
            raise self._damaged(end, f"{self._size - end} bytes follow its end")
        self.is_complete = True

    def _read_body(self, offset: int, head: Head) -> bytearray:
        body = bytearray(head.length)  # no longer than the file
        view, at = memoryview(body), 0
        while at < head.length:
            count = os.preadv(self._file, [view[at:]], offset + HEAD_SIZE + at)
            if not count:
                raise self._damaged(offset, "the file has become shorter")
            at += count
        if zlib.crc32(body) != head.checksum:
            what = "a record"
            if head.kind == b"M":
                what = f"message {head.sequence} of {self.ports[head.port].name!r}"
            raise self._damaged(offset, f"the checksum of {what} is wrong")
        return body
