"""Recording: a file of the messages of ports, read.

The file is an MCAP file (`recording_writer`, docs/record-and-replay.md). One that is complete has an index at its
end, and opening it reads the index alone. One without an end is read from its beginning, chunk by chunk, up to the
last complete one. A chunk is read as a whole and compared with its checksum when one of its messages is asked for.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import struct
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from headrace.observe.recordings.carriers import RecordedMessage, RecordedPort, RecordedRun, RecordingError
from headrace.observe.recordings.payloads import PayloadError, unpack
from headrace.observe.recordings.recording_format import (
    CHUNK_HEAD,
    IMAGE,
    LONGEST_RUN,
    MAGIC,
    MESSAGE_HEAD,
    PROFILE,
    RECORD_HEAD,
    VERSION,
    EndOfFile,
    McapError,
    Opcode,
    ReadDataStream,
    StreamReader,
    get_chunk_data_stream,
    records,
)

__all__ = ["Recording"]

_log = logging.getLogger("headrace.observe")
_FOOTER = RECORD_HEAD.size + 20 + len(MAGIC)  # bytes
_MOST_DECOMPRESSED = 1 << 30  # bytes of a compressed chunk
_KEPT_CHUNKS = 4


class _Entry(NamedTuple):
    """A message in the index."""

    chunk: int
    """Where its chunk begins in the file."""
    number: int
    """Its number among the messages of the chunk."""
    channel: int
    time: int


class Recording:
    """A recording that is read.

    Opening it reads its index. A message is read and checked when it is asked for. A file whose process was killed
    is read up to the last complete message, with a warning.

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
    run
        The run that was recorded.
    is_complete
        Whether that run came to its end.
    problem
        Why not everything that was recorded can be read, and how much can be, in words; None if all can.

    Raises
    ------
    RecordingError
        If the file is not a recording, or is damaged.
    """

    run: RecordedRun

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
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[RecordedPort, bool]] = {}  # the port, and whether messages are images
        self._entries: list[_Entry] = []
        self._chunks: OrderedDict[int, list[tuple[int, int, int, memoryview]]] = OrderedDict()
        self._lock = threading.Lock()
        self._check_profile()
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
        messages = self._messages_of(entry.chunk)
        found = messages[entry.number] if entry.number < len(messages) else None
        if found is None or (found[0], found[2]) != (entry.channel, entry.time):
            raise self._damaged(entry.chunk, f"a message of {port.name!r} is not where the index has it")
        _, sequence, time, content = found
        try:
            value = unpack(content, is_image, self._allow_pickle)
            step, acq_timestamp, metadata, data = _parts_of(value)
        except PayloadError as error:
            raise RecordingError(f"{self.name}, message {sequence} of {port.name!r}: {error}") from error
        return RecordedMessage(port, sequence, step, time - self._began, acq_timestamp, metadata, data)

    # Opening.

    def _check_profile(self) -> None:
        found = self._read(0, min(len(MAGIC), self._size))
        if not found:
            raise RecordingError(f"{self.name} is empty: the file has 0 bytes")
        if found != MAGIC:
            raise RecordingError(f"{str(self.path)!r} is not a recording of headrace: it is no MCAP file")
        header = self._record_at(len(MAGIC))
        if header is not None and getattr(header, "profile", None) != PROFILE:
            raise RecordingError(f"{str(self.path)!r} is not a recording of headrace, but another MCAP file")

    def _find_messages(self, strict: bool) -> str | None:
        """Find the messages, and return what is wrong with the file, if anything."""
        why: RecordingError | None = None
        if self._size > _FOOTER and self._read(self._size - len(MAGIC), len(MAGIC)) == MAGIC:
            try:
                self._read_index()
                return None
            except RecordingError as error:
                why = error
        self._entries, self._channels = [], {}
        offset, damage = self._scan()
        why = why or damage
        if not hasattr(self, "run"):
            killed = f"{self.name} has no messages: its process was killed before the run began"
            raise why or RecordingError(killed)
        amount = f"the {len(self)} messages in its first {offset} of {self._size} bytes"
        if why is None:
            return f"{self.name} is incomplete: its process was killed, or the file was cut off; {amount} are read"
        if strict:
            raise RecordingError(f"{why}; {amount} can be read (strict=False, --no-strict)") from why
        return f"{why}; {amount} are read"

    def _read_index(self) -> None:
        """Find the messages by the index at the end of the file."""
        at = self._size - _FOOTER
        footer = self._record_at(at)
        if not isinstance(footer, records.Footer) or not len(MAGIC) <= footer.summary_start <= at:
            raise self._damaged(at, "there should be the place of the index")
        start = footer.summary_start
        content = self._read(start, self._size - start)
        if zlib.crc32(content[: -len(MAGIC) - 4]) != footer.summary_crc:
            raise self._damaged(start, "the checksum of the index is wrong")
        summary = self._parse(start, content)
        for record in summary:
            if isinstance(record, records.MetadataIndex) and record.name == PROFILE:
                self._read_run(record.offset)
        if not hasattr(self, "run"):
            raise self._damaged(start, "the index has no description of the run")
        self._describe(start, summary)
        expected: dict[int, int] = {}
        for record in summary:
            if isinstance(record, records.Statistics):
                expected = record.channel_message_counts
            elif isinstance(record, records.ChunkIndex):
                self._read_chunk_index(record)
        if Counter(entry.channel for entry in self._entries) != expected:
            counts = f"{sum(expected.values())} messages were recorded, and the index has {len(self)}"
            raise self._damaged(start, counts)

    def _read_chunk_index(self, chunk: records.ChunkIndex) -> None:
        at = chunk.chunk_start_offset + chunk.chunk_length
        places = [
            (place, index.channel_id, time)
            for index in self._parse(at, self._read(at, chunk.message_index_length))
            if isinstance(index, records.MessageIndex)
            for time, place in index.records
        ]
        self._add_entries(chunk.chunk_start_offset, [(channel, time) for _, channel, time in sorted(places)])

    def _add_entries(self, chunk: int, messages: list[tuple[int, int]]) -> None:
        for number, (channel, time) in enumerate(messages):
            if channel not in self._channels:
                raise self._damaged(chunk, f"a message is of channel {channel}, which is not described")
            self._entries.append(_Entry(chunk, number, channel, time))

    def _scan(self) -> tuple[int, RecordingError | None]:
        """Find the messages from the beginning of the file.

        Returns where they end, and what is wrong there; None if the file ends there.
        """
        offset = len(MAGIC)
        try:
            while offset + RECORD_HEAD.size <= self._size:
                opcode, length = RECORD_HEAD.unpack(self._read(offset, RECORD_HEAD.size))
                end = offset + RECORD_HEAD.size + length
                # A message outside of a chunk was written just before the process was killed.
                if end > self._size or opcode in (Opcode.MESSAGE, Opcode.DATA_END):
                    break
                if opcode == Opcode.METADATA:
                    self._read_run(offset)
                elif opcode == Opcode.CHUNK and hasattr(self, "run"):
                    messages = self._read_chunk(offset)
                    self._add_entries(offset, [(channel, time) for channel, _, time, _ in messages])
                elif opcode not in (Opcode.HEADER, Opcode.MESSAGE_INDEX):
                    raise self._damaged(offset, f"there is no record of the kind {opcode} here")
                offset = end
        except RecordingError as error:
            return offset, error
        return offset, None

    def _describe(self, offset: int, described: list[records.McapRecord]) -> None:
        """Note the ports of channels."""
        for record in described:
            if isinstance(record, records.Schema):
                self._schemas[record.id] = record.name
            elif isinstance(record, records.Channel):
                try:
                    port = self.ports[int(record.metadata["port"])]
                except (LookupError, ValueError) as error:
                    raise self._damaged(offset, f"channel {record.id} is of no port of the run") from error
                self._channels[record.id] = port, self._schemas.get(record.schema_id) == IMAGE

    def _read_run(self, offset: int) -> None:
        """Read the description of the run."""
        try:
            described = self._record_at(offset).metadata  # type: ignore[union-attr]
            version, text = int(described["version"]), described["run"]
            if zlib.crc32(text.encode()) != int(described["crc32"], 16):
                raise ValueError("its checksum is wrong")
            if version <= VERSION:
                self.run = _parse_run(json.loads(text))
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, RecordingError):
                raise
            raise self._damaged(
                offset, f"the description of the run is not valid ({error!r:.200})"
            ) from error
        if version > VERSION:
            raise RecordingError(
                f"{self.name} has version {version} of the format: a newer headrace wrote it, and this one reads "
                f"version {VERSION}"
            )

    # Reading.

    def _damaged(self, offset: int, why: str) -> RecordingError:
        return RecordingError(f"{self.name} is damaged at byte {offset}: {why}")

    def _read(self, offset: int, size: int) -> bytearray:
        if not 0 <= size <= self._size - offset:
            raise self._damaged(offset, f"{size} bytes should be here")
        content = bytearray(size)  # no longer than the file
        view, at = memoryview(content), 0
        while at < size:
            count = os.preadv(self._file, [view[at:]], offset + at)
            if not count:
                raise self._damaged(offset, "the file has become shorter")
            at += count
        return content

    def _parse(self, offset: int, content: bytes | bytearray) -> list[records.McapRecord]:
        """Return the records of bytes that begin at a place of the file."""
        found: list[records.McapRecord] = []
        try:
            found.extend(StreamReader(BytesIO(content), skip_magic=True, emit_chunks=True).records)
        except EndOfFile:
            pass
        except (McapError, ValueError, struct.error) as error:
            raise self._damaged(offset, f"a record is not valid ({error!r:.200})") from error
        return found

    def _record_at(self, offset: int) -> records.McapRecord | None:
        """Return a record that is no chunk; None if the file ends within it."""
        if offset + RECORD_HEAD.size > self._size:
            return None
        _, length = RECORD_HEAD.unpack(self._read(offset, RECORD_HEAD.size))
        if offset + RECORD_HEAD.size + length > self._size:
            return None
        if length > 2 * LONGEST_RUN:
            raise self._damaged(offset, f"a record of {length} bytes is here")
        return next(iter(self._parse(offset, self._read(offset, RECORD_HEAD.size + length))), None)

    def _messages_of(self, chunk: int) -> list[tuple[int, int, int, memoryview]]:
        """Return channel, sequence, time and payload of each message of a chunk."""
        with self._lock:
            messages = self._chunks.get(chunk)
            if messages is None:
                messages = self._chunks[chunk] = self._read_chunk(chunk)
                if len(self._chunks) > _KEPT_CHUNKS:
                    self._chunks.popitem(last=False)
            return messages

    def _read_chunk(self, offset: int) -> list[tuple[int, int, int, memoryview]]:
        try:
            content = memoryview(self._chunk_at(offset))
            messages, at = [], 0
            while at < len(content):
                opcode, length = RECORD_HEAD.unpack_from(content, at)
                end = at + RECORD_HEAD.size + length
                if opcode == Opcode.MESSAGE:
                    body = content[at + RECORD_HEAD.size : end]
                    channel, sequence, time, _ = MESSAGE_HEAD.unpack_from(body)
                    messages.append((channel, sequence, time, body[MESSAGE_HEAD.size :]))
                elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                    self._describe(offset, self._parse(offset, bytes(content[at:end])))
                at = end
        except struct.error as error:
            raise self._damaged(offset, f"a chunk is not valid ({error})") from error
        return messages

    def _chunk_at(self, offset: int) -> bytes | bytearray:
        """Return the contents of a chunk, decompressed and checked."""
        head = self._read(offset, CHUNK_HEAD.size)
        opcode, length, *_, size, checksum, name_length, stored = CHUNK_HEAD.unpack(head)
        if opcode != Opcode.CHUNK:
            raise self._damaged(offset, "a chunk should be here")
        if name_length:
            content: bytes | bytearray = self._decompress(
                offset, self._read(offset + RECORD_HEAD.size, length)
            )
        elif size == stored == length + RECORD_HEAD.size - CHUNK_HEAD.size:
            content = self._read(offset + CHUNK_HEAD.size, size)
        else:
            raise self._damaged(
                offset, f"the length of a chunk is {length}, and its messages have {size} bytes"
            )
        if zlib.crc32(content) != checksum:
            raise self._damaged(offset, "the checksum of a chunk is wrong")
        return content

    def _decompress(self, offset: int, content: bytearray) -> bytes:
        try:
            chunk = records.Chunk.read(ReadDataStream(BytesIO(content)))
            size = chunk.uncompressed_size
            if chunk.compression == "zstd":
                import zstandard

                size = max(size, zstandard.frame_content_size(chunk.data))  # which it would allocate
            if size <= _MOST_DECOMPRESSED:
                stream, size = get_chunk_data_stream(chunk)
                return bytes(stream.read(size))
        except Exception as error:  # what the libraries raise for bytes that cannot be
            raise self._damaged(offset, f"a chunk cannot be decompressed ({error!r:.200})") from error
        raise self._damaged(
            offset, f"a chunk of {size} bytes is compressed; at most {_MOST_DECOMPRESSED} may be"
        )


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


def _parse_run(found: Any) -> RecordedRun:
    """Return the run of a description from a file."""
    return RecordedRun(
        application=str(found["application"]),
        ports=[
            RecordedPort(str(one["operator"]), str(one["port"]), bool(one["is_output"]), _index(one["index"]))
            for one in found["ports"]
        ],
        flows=[
            (str(source), str(output), str(target), str(input_), _index(index))
            for source, output, target, input_, index in found["flows"]
        ],
        started=int(found["started"]),
        epoch=int(found["epoch"]),
    )


def _index(found: Any) -> int | None:
    return None if found is None else int(found)
