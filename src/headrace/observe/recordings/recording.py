"""Recording: a file of the messages of ports, read.

The file is an MCAP file (`recording_format`, docs/record-and-replay.md). Opening it reads the heads of its chunks
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


class _Entry(NamedTuple):
    """A message in the file."""

    chunk: int
    """Where its chunk begins."""
    place: int
    """Where its payload begins in the contents of the chunk."""
    size: int
    channel: int
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
        self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)  # which a pipe would wait for
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no ordinary file"
            raise RecordingError(f"{str(self.path)!r} is {what}, and a recording is one file")
        self._size = status.st_size
        self._run: RecordedRun | None = None
        self._at = len(mcap.MAGIC)  # how far it was read
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[RecordedPort, bool]] = {}  # the port, and whether messages are images
        self._entries: list[_Entry] = []
        self._counts: Counter[RecordedPort] = Counter()
        self._chunks: OrderedDict[int, bytearray] = OrderedDict()
        self._lock = threading.Lock()
        self.problem = self._find_messages(strict)
        self.is_complete = self.problem is None
        self._began = min((entry.time for entry in self._entries), default=0)
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
            if self._channels[entry.channel][0] in chosen:
                yield self.load(number)

    def outline(self) -> list[tuple[RecordedPort, int]]:
        """Return the port and the time of each message, as :class:`RecordedMessage` has them."""
        return [(self._channels[entry.channel][0], entry.time - self._began) for entry in self._entries]

    def load(self, number: int) -> RecordedMessage:
        """Return a message by its number among all; may be called from any thread."""
        entry = self._entries[number]
        port, is_image = self._channels[entry.channel]
        content = memoryview(self._contents_of(entry.chunk))[entry.place : entry.place + entry.size]
        try:
            value = decode(content, self._allow_pickle, is_image=is_image)
            step, acq_timestamp, metadata, data = _parts_of(value)
        except PayloadError as error:
            raise RecordingError(
                f"{self.name}, message {entry.sequence} of {port.name!r}: {error}"
            ) from error
        time = entry.time - self._began
        return RecordedMessage(port, entry.sequence, step, time, acq_timestamp, metadata, data)

    def _contents_of(self, chunk: int) -> bytearray:
        """Return the contents of a chunk, which are compared with its checksum."""
        with self._lock:
            contents = self._chunks.get(chunk)
            if contents is None:
                *_, size, checksum, _, _ = mcap.CHUNK_HEAD.unpack(self._read(chunk, mcap.CHUNK_HEAD.size))
                contents = self._read(chunk + mcap.CHUNK_HEAD.size, size)
                if zlib.crc32(contents) != checksum:
                    text = f"{self.name} is damaged at byte {chunk}: the checksum of a chunk is wrong"
                    raise RecordingError(text)
                self._chunks[chunk] = contents
                if len(self._chunks) > _KEPT_CHUNKS:
                    self._chunks.popitem(last=False)
            return contents

    # Opening.

    def _find_messages(self, strict: bool) -> str | None:
        """Find the messages, and return what is wrong with the file, if anything."""
        magic, head = mcap.MAGIC, mcap.RECORD_HEAD
        if not self._size:
            raise RecordingError(f"{str(self.path)!r} is empty: it has 0 bytes")
        if self._read(0, min(len(magic), self._size)) != magic:
            raise RecordingError(f"{str(self.path)!r} is not a recording of headrace: it is no MCAP file")
        damage = None
        try:
            while self._at + head.size <= self._size:
                opcode, length = head.unpack(self._read(self._at, head.size))
                end = self._at + head.size + length
                # A message outside of a chunk was written just before the process was killed.
                if end > self._size or opcode == mcap.Opcode.MESSAGE:
                    break
                if self._read_record(opcode, length):
                    return None
                self._at = end
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

    def _read_record(self, opcode: int, length: int) -> bool:
        """Read a record, which is there in full; return whether it shows that all messages were found."""
        place = self._at + mcap.RECORD_HEAD.size
        if opcode == mcap.Opcode.CHUNK:
            self._read_chunk(length)
        elif opcode == mcap.Opcode.HEADER:
            if mcap.records.Header.read(self._stream(place, length)).profile != mcap.PROFILE:
                what = "is not a recording of headrace, but another MCAP file"
                raise RecordingError(f"{str(self.path)!r} {what}")
        elif opcode == mcap.Opcode.METADATA:
            self._read_run(mcap.records.Metadata.read(self._stream(place, length)).metadata)
        elif opcode == mcap.Opcode.STATISTICS:
            count = int.from_bytes(self._read(place, 8), "little")
            if count != len(self):
                raise ValueError(f"{count} messages were recorded, and {len(self)} are here")
            return True
        elif opcode not in _SKIPPED:
            raise ValueError(f"a record of the kind {opcode} is here")
        return False

    def _read_chunk(self, length: int) -> None:
        """Find the messages of a chunk."""
        start = self._at + mcap.CHUNK_HEAD.size
        *_, size, _, name_length, _ = mcap.CHUNK_HEAD.unpack(self._read(self._at, mcap.CHUNK_HEAD.size))
        if name_length:
            raise ValueError(
                "a chunk is compressed, which is not read here; run 'mcap decompress' on the file"
            )
        if size != self._at + mcap.RECORD_HEAD.size + length - start:
            raise ValueError(f"the messages of a chunk of {length} bytes have {size} bytes")
        at = 0
        while at < size:
            head = self._read(start + at, min(mcap.MESSAGE_HEAD.size, size - at))
            opcode, length = mcap.RECORD_HEAD.unpack_from(head)
            begin, place = at, at + mcap.RECORD_HEAD.size
            at = place + length
            if at > size:
                raise ValueError(f"a record of {length} bytes is longer than its chunk")
            if opcode == mcap.Opcode.MESSAGE:
                _, _, channel, sequence, time, _ = mcap.MESSAGE_HEAD.unpack(head)
                place = begin + mcap.MESSAGE_HEAD.size
                self._add_entry(_Entry(self._at, place, at - place, channel, sequence, time))
            elif opcode == mcap.Opcode.SCHEMA:
                schema = mcap.records.Schema.read(self._stream(start + place, length))
                self._schemas[schema.id] = schema.name
            elif opcode == mcap.Opcode.CHANNEL:
                described = mcap.records.Channel.read(self._stream(start + place, length))
                port = self.ports[int(described.metadata["port"])]
                self._channels[described.id] = port, self._schemas[described.schema_id] == mcap.IMAGE
            else:
                raise ValueError(f"a record of the kind {opcode} is in a chunk")

    def _add_entry(self, entry: _Entry) -> None:
        if entry.channel not in self._channels:
            raise ValueError(f"a message is of channel {entry.channel}, which was not described")
        port, _ = self._channels[entry.channel]
        expected = self._counts[port] & 0xFFFFFFFF
        if entry.sequence != expected:
            raise ValueError(
                f"message {expected} of {port.name!r} should be here, and message {entry.sequence} is"
            )
        self._counts[port] += 1
        self._entries.append(entry)

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

    def _read(self, offset: int, size: int) -> bytearray:
        content = bytearray(size)  # no longer than the file
        view, at = memoryview(content), 0
        while at < size:
            count = os.preadv(self._file, [view[at:]], offset + at)
            if not count:
                raise RecordingError(f"{self.name} is damaged at byte {offset}: the file has become shorter")
            at += count
        return content

    def _stream(self, offset: int, size: int) -> mcap.ReadDataStream:
        if size > 2 * mcap.LONGEST_RUN:
            raise ValueError(f"a record of {size} bytes is here")
        return mcap.ReadDataStream(BytesIO(self._read(offset, size)))


def _parts_of(value: Any) -> tuple[int, int | None, dict[str, Any] | None, Any]:
    """Return the step, acquisition timestamp, metadata and data of a message."""
    if type(value) is dict and list(value) == ["step", "acq_timestamp", "metadata", "data"]:
        step, acq_timestamp, metadata, data = value.values()
        is_named = metadata is None or (
            type(metadata) is dict and all(type(name) is str for name in metadata)
        )
        if type(step) is int and type(acq_timestamp) in (int, type(None)) and is_named:
            return step, acq_timestamp, metadata, data
    raise PayloadError("the payload is damaged: it is no message")


def _index(found: Any) -> int | None:
    return None if found is None else int(found)
