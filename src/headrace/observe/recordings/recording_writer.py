"""RecordingWriter: writes the messages of ports to an MCAP file.

Each message is appended to the file. Then the head of its chunk, which has the length and the checksum, is written
again. So a process may be killed at any time: the file has every message before. A chunk ends before it grows
longer than a megabyte; a longer message has a chunk of its own.

Decided against:

- ``mcap.writer.Writer``, which collects a chunk in memory and copies it three times. A 4K frame of 25 MB took
  214 ms with it and 102 ms here, on a busy machine (2-core VM, tmpfs). Also, a chunk that it has
  collected is lost when the process is killed.
- compressing chunks. lz4 takes 250 ms for such a frame of noise, zstd 230 ms. ``mcap compress`` does it later, and
  `Recording` reads the result.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from headrace.observe.recordings import recording_format as mcap
from headrace.observe.recordings.carriers import (
    Carrier,
    RecordedMessage,
    RecordedPort,
    RecordedRun,
    RecordingError,
)
from headrace.observe.recordings.payloads import Payload, pack

_CHUNK = 1 << 20  # bytes
_SMALL = 1 << 14  # bytes that are copied into one piece: cheaper than a write for each of their parts
_MOST_PORTS = 0x7FFF  # each of them may need two of MCAP's 65,535 channels


class RecordingWriter(Carrier):
    """A recording that is written.

    Parameters
    ----------
    path
        The file, which is replaced if it exists when the run begins. Who reads it then reads on what it was, such
        as a replay of it in this very run.
    pickle
        Whether keys of dicts that are no numbers, text or tuples of these are pickled.

    Raises
    ------
    RecordingError
        When the run begins, if it has more ports than a file can, or if somebody else writes the file; the file is
        left as it is.
    """

    def __init__(self, path: str | os.PathLike[str], pickle: bool = False) -> None:
        self.path = Path(path)
        self._allow_pickle = pickle
        self._channels: dict[tuple[RecordedPort, str], mcap.records.Channel] = {}
        self._schemas: dict[str, mcap.records.Schema] = {}
        self._counts: Counter[int] = Counter()
        self._chunks: list[mcap.records.ChunkIndex] = []
        # The chunk that is being written, the checksum of its data, and the places of its messages by channel.
        self._chunk: mcap.records.ChunkIndex | None = None
        self._checksum = 0
        self._places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def begin(self, run: RecordedRun) -> None:
        """Create the file."""
        self._run = run
        description = json.dumps(asdict(run))
        if len(description) > mcap.LONGEST_RUN or len(run.ports) > _MOST_PORTS:
            raise RecordingError(
                f"recording {str(self.path)!r} cannot be written: the names of its {len(run.ports)} ports and "
                f"{len(run.flows)} flows take {len(description)} bytes, and at most {_MOST_PORTS} ports and "
                f"{mcap.LONGEST_RUN} bytes are allowed; record fewer ports"
            )
        self._file = self._create()
        header = _bytes(mcap.records.Header(mcap.PROFILE, "headrace"))
        checksum = f"{zlib.crc32(description.encode()):08x}"
        metadata = {"version": str(mcap.VERSION), "run": description, "crc32": checksum}
        content = _bytes(mcap.records.Metadata(mcap.PROFILE, metadata))
        self._metadata = mcap.records.MetadataIndex(len(mcap.MAGIC + header), len(content), mcap.PROFILE)
        self._file.write(mcap.MAGIC + header + content)
        self._file.flush()

    def _create(self) -> BinaryIO:
        """Create the file, in place of one that nobody writes; whoever reads that reads on."""
        path = self.path
        if path.is_file():
            path = path.resolve()
            with open(path, "r+b") as before:  # which is not writable if the program shall not replace it
                self._lock(before)
            with suppress(PermissionError):  # of the folder: then its content is replaced
                path.unlink()
        file = open(path, "wb")  # noqa: SIM115 (it stays open for the run)
        self._lock(file)
        return file

    def _lock(self, file: BinaryIO) -> None:
        """Lock the file while it is being written, or raise; where files have no locks, do nothing."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise RecordingError(
                f"recording {str(self.path)!r} is being written already, by this program or by another; record "
                "to another file"
            ) from None
        except OSError:
            pass

    def carry(self, message: RecordedMessage) -> None:
        """Add a message."""
        time = max(message.time + self._run.epoch, 0)
        parts = {
            "step": message.step,
            "acq_timestamp": message.acq_timestamp,
            "metadata": message.metadata,
            "data": message.data,
        }
        is_image, payload = pack(parts, self._allow_pickle, time)
        size = sum(map(len, payload))
        if self._chunk is not None and self._chunk.uncompressed_size + size > _CHUNK:
            self._end_chunk(self._chunk)
        chunk = self._chunk or self._begin_chunk(time)
        channel = self._channel(chunk, message.port, mcap.IMAGE if is_image else mcap.TREE)
        self._places[channel].append((time, chunk.uncompressed_size))
        length = mcap.MESSAGE_HEAD.size - mcap.RECORD_HEAD.size + size
        sequence = message.sequence & 0xFFFFFFFF
        head = mcap.MESSAGE_HEAD.pack(mcap.Opcode.MESSAGE, length, channel, sequence, time, time)
        self._add(chunk, [head, *payload])
        chunk.message_start_time = min(chunk.message_start_time, time)
        chunk.message_end_time = max(chunk.message_end_time, time)
        self._file.flush()
        os.pwrite(self._file.fileno(), self._head_of(chunk), chunk.chunk_start_offset)
        self._counts[channel] += 1

    def end(self, is_complete: bool) -> None:
        """Write the index, unless the recording is incomplete, and close the file."""
        try:
            if is_complete:
                if self._chunk is not None:
                    self._end_chunk(self._chunk)
                self._write_summary()
        finally:
            self._file.close()

    def _begin_chunk(self, time: int) -> mcap.records.ChunkIndex:
        chunk = self._chunk = mcap.records.ChunkIndex(
            mcap.CHUNK_HEAD.size, self._file.tell(), "", 0, time, 0, {}, time, 0
        )
        self._checksum = 0
        self._file.write(self._head_of(chunk))
        return chunk

    def _add(self, chunk: mcap.records.ChunkIndex, parts: Payload) -> None:
        """Add bytes to a chunk, whose head in the file is written later."""
        size = sum(map(len, parts))
        for part in [b"".join(parts)] if size < _SMALL else parts:
            self._checksum = zlib.crc32(part, self._checksum)
            self._file.write(part)
        chunk.uncompressed_size += size
        chunk.compressed_size = chunk.uncompressed_size
        chunk.chunk_length = mcap.CHUNK_HEAD.size + chunk.uncompressed_size

    def _head_of(self, chunk: mcap.records.ChunkIndex) -> bytes:
        length, size = chunk.chunk_length - mcap.RECORD_HEAD.size, chunk.uncompressed_size
        times = chunk.message_start_time, chunk.message_end_time
        return mcap.CHUNK_HEAD.pack(mcap.Opcode.CHUNK, length, *times, size, self._checksum, 0, size)

    def _end_chunk(self, chunk: mcap.records.ChunkIndex) -> None:
        began = self._file.tell()
        for channel, entries in self._places.items():
            chunk.message_index_offsets[channel] = self._file.tell()
            self._file.write(_bytes(mcap.records.MessageIndex(channel, entries)))
        chunk.message_index_length = self._file.tell() - began
        self._chunks.append(chunk)
        self._chunk = None
        self._places.clear()

    def _channel(self, chunk: mcap.records.ChunkIndex, port: RecordedPort, schema: str) -> int:
        """Return the number of the channel of a port, after it was described in the chunk."""
        channel = self._channels.get((port, schema))
        if channel is None:
            if schema not in self._schemas:
                self._schemas[schema] = mcap.records.Schema(
                    len(self._schemas) + 1, mcap.SCHEMAS[schema].encode(), "ros2msg", schema
                )
                self._add(chunk, [_bytes(self._schemas[schema])])
            channel = mcap.records.Channel(
                id=len(self._channels) + 1,
                topic=port.name,
                message_encoding="cdr",
                metadata={"port": str(self._run.ports.index(port))},
                schema_id=self._schemas[schema].id,
            )
            self._channels[port, schema] = channel
            self._add(chunk, [_bytes(channel)])
        return int(channel.id)

    def _write_summary(self) -> None:
        statistics = mcap.records.Statistics(
            attachment_count=0,
            channel_count=len(self._channels),
            channel_message_counts=self._counts,
            chunk_count=len(self._chunks),
            message_count=self._counts.total(),
            message_end_time=max((chunk.message_end_time for chunk in self._chunks), default=0),
            message_start_time=min((chunk.message_start_time for chunk in self._chunks), default=0),
            metadata_count=1,
            schema_count=len(self._schemas),
        )
        self._file.write(_bytes(mcap.records.DataEnd(0)))
        start = self._file.tell()
        described = (*self._schemas.values(), *self._channels.values())
        summary = _bytes(*described, statistics, *self._chunks, self._metadata)
        footer = _bytes(mcap.records.Footer(start, 0, 0))[:-4]
        checksum = zlib.crc32(summary + footer)
        self._file.write(summary + footer + struct.pack("<I", checksum) + mcap.MAGIC)


def _bytes(*described: mcap.records.McapRecord) -> bytes:
    builder = mcap.RecordBuilder()
    for record in described:
        record.write(builder)
    return bytes(builder.end())
