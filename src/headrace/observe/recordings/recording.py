"""Recording: a file of the messages of ports, read.

The file is an MCAP file (`recording_format`). Opening it reads the heads of its chunks
and messages, and skips the rest, so that a file without an end is read like any other. The index at the end is for
other tools: it does not tell the sequences of messages, which show whether one is missing. A chunk is read as a
whole and compared with its checksum when one of its messages is asked for.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from headrace.observe.recordings import recording_format as mcap
from headrace.observe.recordings.carriers import RecordedMessage, RecordedPort, RecordedRun, RecordingError
from headrace.observe.recordings.payloads import PayloadError, decode

_log = logging.getLogger("headrace.observe")
_KEPT_CHUNKS = 4
_SKIPPED = (mcap.Opcode.MESSAGE_INDEX, mcap.Opcode.DATA_END, mcap.Opcode.SCHEMA, mcap.Opcode.CHANNEL)


class _Chunk(NamedTuple):
    """Where the contents of a chunk are in the file, and their checksum."""

    start: int
    size: int
    checksum: int


class _Entry(NamedTuple):
    """A message in the file: its chunk, where its payload is in there, its port, and whether it is an image."""

    chunk: _Chunk
    place: int
    end: int
    port: RecordedPort
    is_image: bool
    sequence: int
    time: int


class Recording:
    """A recording that is read.

    Opening it finds its messages. A message is read and checked when it is asked for. A file whose process was
    killed is read up to the last complete message, with a warning.

    Parameters
    ----------
    path
        The file.
    pickle
        Whether pickled objects in it are loaded. That runs code which the file names, so the file must be trusted.
    strict
        Whether a damaged file is an error. Otherwise it is read up to the damage, with a warning that says how much
        that is. A message whose own bytes are damaged is always an error, when it is asked for, and so are the
        messages that share its chunk, which is about a megabyte long. All others can be read.

    Attributes
    ----------
    is_complete
        Whether that run came to its end.
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
        self.name = f"recording {str(self.path)!r}"
        self._allow_pickle = pickle
        status = os.stat(self.path)
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no ordinary file"
            raise RecordingError(f"{str(self.path)!r} is {what}, and a recording is one file")
        self._size = status.st_size
        self._file = open(self.path, "rb")  # noqa: SIM115 (it stays open)
        self._run: RecordedRun | None = None
        self._at = len(mcap.MAGIC)  # how far it was read
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[RecordedPort, bool]] = {}  # the port, and whether messages are images
        self._counts: Counter[RecordedPort] = Counter()
        self._entries: list[_Entry] = []
        self._contents: OrderedDict[_Chunk, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self.problem = self._open(strict)
        self.is_complete = self.problem is None
        self._began = min((entry.time for entry in self._entries), default=0)
        if self.problem is not None and _warns:
            _log.warning("%s", self.problem)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
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
    def run(self) -> RecordedRun:
        """The run that was recorded."""
        if self._run is None:
            raise ValueError("the description of the run should be here")
        return self._run

    @property
    def ports(self) -> list[RecordedPort]:
        """The ports that were recorded."""
        return self.run.ports

    def messages(
        self, port: str | None = None, *, is_output: bool | None = None
    ) -> Iterator[RecordedMessage]:
        """Yield the messages in their order, of all ports or of one, such as ``"camera.out"``.

        `is_output` chooses between an input and an output of the same name.
        """
        ports = self.ports
        chosen = {one for one in ports if port in (None, one.name) and is_output in (None, one.is_output)}
        if not chosen and ports:
            names = ", ".join(one.name for one in ports)
            raise RecordingError(f"{self.name} has no messages of {port!r}; it has messages of {names}")
        for number, entry in enumerate(self._entries):
            if entry.port in chosen:
                yield self.load(number)

    def outline(self) -> list[tuple[RecordedPort, int]]:
        """Return the port and the time of each message, as :class:`RecordedMessage` has them."""
        return [(entry.port, entry.time - self._began) for entry in self._entries]

    def load(self, number: int) -> RecordedMessage:
        """Return a message by its number among all; may be called from any thread."""
        entry = self._entries[number]
        content = memoryview(self._contents_of(entry.chunk))[entry.place : entry.end]
        try:
            value = decode(content, self._allow_pickle, is_image=entry.is_image)
            return _message(entry, entry.time - self._began, value)
        except PayloadError as error:
            raise RecordingError(
                f"{self.name}, message {entry.sequence} of {entry.port.name!r}: {error}"
            ) from error

    def _contents_of(self, chunk: _Chunk) -> bytes:
        """Return the contents of a chunk, which are compared with its checksum."""
        with self._lock:
            contents = self._contents.get(chunk)
            if contents is None:
                contents = self._read(chunk.start, chunk.size)
                if zlib.crc32(contents) != chunk.checksum:
                    where = chunk.start - mcap.CHUNK_HEAD.size
                    raise RecordingError(
                        f"{self.name} is damaged at byte {where}: the checksum of a chunk is wrong"
                    )
                self._contents[chunk] = contents
                if len(self._contents) > _KEPT_CHUNKS:
                    self._contents.popitem(last=False)
            return contents

    # Opening.

    def _open(self, strict: bool) -> str | None:
        """Find the messages, and return what is wrong with the file, if anything."""
        magic = mcap.MAGIC
        if not self._size:
            raise RecordingError(f"{str(self.path)!r} is empty: it has 0 bytes")
        if self._read(0, min(len(magic), self._size)) != magic:
            raise RecordingError(f"{str(self.path)!r} is not a recording of headrace: it is no MCAP file")
        damage = None
        try:
            if self._find_messages():
                return None
            if self._size > 2 * len(magic) and self._read(self._size - len(magic), len(magic)) == magic:
                damage = "the file has an end, and its records do not lead there"
        except (RecordingError, OSError):
            raise
        except Exception as error:  # what mcap, JSON and struct raise for bytes that cannot be
            damage = str(error) if type(error) is ValueError else f"a record is not valid ({error!r:.200})"
        if damage is None and self._run is None:
            raise RecordingError(f"{self.name} has no messages: its process was killed before the run began")
        why = "is incomplete: its process was killed, or the file was cut off"
        if damage is not None:
            why = f"is damaged at byte {self._at}: {damage}"
        amount = f"the {len(self)} messages in its first {self._at} of {self._size} bytes"
        if damage is not None and (strict or self._run is None):
            raise RecordingError(f"{self.name} {why}; {amount} can be read (strict=False, --no-strict)")
        return f"{self.name} {why}; {amount} are read"

    def _find_messages(self) -> bool:
        """Read the records of the file; return whether they show that all messages were found."""
        opcodes = mcap.Opcode
        for opcode, place, end, _ in self._records(self._at, self._size):
            # A message outside of a chunk was written just before the process was killed.
            if end > self._size or opcode == opcodes.MESSAGE:
                break
            if opcode == opcodes.CHUNK:
                self._read_chunk(place, end)
            elif opcode == opcodes.HEADER:
                if mcap.records.Header.read(self._stream(place, end)).profile != mcap.PROFILE:
                    what = "is not a recording of headrace, but another MCAP file"
                    raise RecordingError(f"{str(self.path)!r} {what}")
            elif opcode == opcodes.METADATA:
                self._read_run(mcap.records.Metadata.read(self._stream(place, end)).metadata)
            elif opcode == opcodes.STATISTICS:
                count = int.from_bytes(self._read(place, 8), "little")
                if count != len(self):
                    raise ValueError(f"{count} messages were recorded, and {len(self)} are here")
                return True
            elif opcode not in _SKIPPED:
                raise ValueError(f"a record of the kind {opcode} is here")
            self._at = end
        return False

    def _read_chunk(self, place: int, end: int) -> None:
        """Find the messages of a chunk."""
        head, opcodes = mcap.CHUNK_HEAD, mcap.Opcode
        place -= mcap.RECORD_HEAD.size
        *_, size, checksum, name_length, _ = head.unpack(self._read(place, head.size))
        if name_length:
            raise ValueError(
                "a chunk is compressed, which is not read here; run 'mcap decompress' on the file"
            )
        chunk = _Chunk(place + head.size, size, checksum)
        if chunk.start + size != end:
            raise ValueError(f"the messages of a chunk of {end - place} bytes have {size} bytes")
        for opcode, place, limit, head_of_record in self._records(chunk.start, end):
            if limit > end:
                raise ValueError(f"a record of {limit - place} bytes is longer than its chunk")
            if opcode == opcodes.MESSAGE:
                self._read_message(chunk, place, limit, head_of_record)
            elif opcode == opcodes.SCHEMA:
                schema = mcap.records.Schema.read(self._stream(place, limit))
                self._schemas[schema.id] = schema.name
            elif opcode == opcodes.CHANNEL:
                described = mcap.records.Channel.read(self._stream(place, limit))
                port = self.ports[int(described.metadata["port"])]
                self._channels[described.id] = port, self._schemas[described.schema_id] == mcap.IMAGE
            else:
                raise ValueError(f"a record of the kind {opcode} is in a chunk")

    def _read_message(self, chunk: _Chunk, place: int, end: int, head: bytes) -> None:
        """Find a message of a chunk."""
        _, _, channel, sequence, time, _ = mcap.MESSAGE_HEAD.unpack(head)
        if channel not in self._channels:
            raise ValueError(f"a message is of channel {channel}, which was not described")
        port, is_image = self._channels[channel]
        expected = self._counts[port] & 0xFFFFFFFF
        if sequence != expected:
            raise ValueError(f"message {expected} of {port.name!r} should be here, and message {sequence} is")
        self._counts[port] += 1
        begin = place + mcap.MESSAGE_HEAD.size - mcap.RECORD_HEAD.size - chunk.start
        self._entries.append(_Entry(chunk, begin, end - chunk.start, port, is_image, sequence, time))

    def _read_run(self, described: dict[str, str]) -> None:
        """Read the description of the run."""
        version, text = int(described["version"]), described["run"]
        if version > mcap.VERSION:
            raise RecordingError(
                f"{self.name} has version {version} of the format: a newer headrace wrote it, and this one reads "
                f"version {mcap.VERSION}"
            )
        if zlib.crc32(text.encode()) != int(described["crc32"], 16):
            raise ValueError("the checksum of the description of the run is wrong")
        found = json.loads(text)
        ports = [
            RecordedPort(str(one["operator"]), str(one["port"]), bool(one["is_output"]), _index(one["index"]))
            for one in found["ports"]
        ]
        flows = [(str(a), str(b), str(c), str(d), _index(index)) for a, b, c, d, index in found["flows"]]
        started, epoch = int(found["started"]), int(found["epoch"])
        self._run = RecordedRun(str(found["application"]), ports, flows, started, epoch)

    def _records(self, at: int, end: int) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield the kind of each record, where its contents begin and end, and the head that a message has.

        The end may be beyond the end of the file.
        """
        while at + mcap.RECORD_HEAD.size <= end:
            head = self._read(at, min(mcap.MESSAGE_HEAD.size, end - at))
            opcode, length = mcap.RECORD_HEAD.unpack_from(head)
            at += mcap.RECORD_HEAD.size
            yield opcode, at, at + length, head
            at += length

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        content = self._file.read(size)  # no longer than the file was
        if len(content) < size:
            raise RecordingError(f"{self.name} is damaged at byte {offset}: the file has become shorter")
        return content

    def _stream(self, place: int, end: int) -> mcap.ReadDataStream:
        if end - place > 2 * mcap.LONGEST_RUN:
            raise ValueError(f"a record of {end - place} bytes is here")
        return mcap.ReadDataStream(BytesIO(self._read(place, end - place)))


def _message(entry: _Entry, time: int, value: Any) -> RecordedMessage:
    """Return a message of the value that its payload holds."""
    match value:
        case {
            "step": int(step),
            "acq_timestamp": int() | None as acq_timestamp,
            "metadata": dict() | None as metadata,
            "data": data,
        } if len(value) == 4 and all(type(name) is str for name in metadata or ()):
            return RecordedMessage(entry.port, entry.sequence, step, time, acq_timestamp, metadata, data)
    raise PayloadError("the payload is damaged: it is no message")


def _index(found: Any) -> int | None:
    return None if found is None else int(found)
