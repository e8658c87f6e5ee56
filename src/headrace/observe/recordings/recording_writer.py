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

import json
import os
import struct
import zlib
from collections import Counter
from dataclasses import asdict
from pathlib import Path

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
_MOST_PORTS = 0x7FFF  # each of them may need two of MCAP's 65,535 channels


class RecordingWriter(Carrier):
    """A recording that is written.

    Parameters
    ----------
    path
        The file, which is replaced if it exists when the run begins.
    pickle
        Whether keys of dicts that are no numbers, text or tuples of these are pickled.

    Raises
    ------
    RecordingError
        When the run begins, if it has more ports than a file can; the file is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str], pickle: bool = False) -> None:
        self.path = Path(path)
        self._allow_pickle = pickle
        self._channels: dict[tuple[RecordedPort, str], mcap.records.Channel] = {}
        self._schemas: dict[str, mcap.records.Schema] = {}
        self._counts: Counter[int] = Counter()
        self._chunks: list[mcap.records.ChunkIndex] = []
        # The chunk that is being written: where it begins, the size and checksum of its data, its first and last
        # time, and the times and places of its messages by channel.
        self._start: int | None = None
        self._size = self._checksum = 0
        self._times = (0, 0)
        self._index: dict[int, list[tuple[int, int]]] = {}

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
        self._file = open(self.path, "wb")  # noqa: SIM115 (it stays open for the run)
        header = _bytes(mcap.records.Header(mcap.PROFILE, "headrace"))
        checksum = f"{zlib.crc32(description.encode()):08x}"
        metadata = {"version": str(mcap.VERSION), "run": description, "crc32": checksum}
        content = _bytes(mcap.records.Metadata(mcap.PROFILE, metadata))
        self._metadata = mcap.records.MetadataIndex(len(mcap.MAGIC + header), len(content), mcap.PROFILE)
        self._file.write(mcap.MAGIC + header + content)
        self._file.flush()

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
        if self._start is not None and self._size + size > _CHUNK:
            self._end_chunk()
        if self._start is None:
            self._begin_chunk(time)
        channel = self._channel(message.port, mcap.IMAGE if is_image else mcap.TREE)
        self._index.setdefault(channel, []).append((time, self._size))
        length = mcap.MESSAGE_HEAD.size - mcap.RECORD_HEAD.size + size
        sequence = message.sequence & 0xFFFFFFFF
        self._add(
            [mcap.MESSAGE_HEAD.pack(mcap.Opcode.MESSAGE, length, channel, sequence, time, time), *payload]
        )
        self._times = (min(self._times[0], time), max(self._times[1], time))
        self._write_chunk_head()
        self._counts[channel] += 1

    def end(self, is_complete: bool) -> None:
        """Write the index, unless the recording is incomplete, and close the file."""
        try:
            if is_complete:
                if self._start is not None:
                    self._end_chunk()
                self._write_summary()
        finally:
            self._file.close()

    def _begin_chunk(self, time: int) -> None:
        self._start = self._file.tell()
        self._size = self._checksum = 0
        self._times = (time, time)
        self._index = {}
        self._file.write(bytes(mcap.CHUNK_HEAD.size))
        self._write_chunk_head()

    def _add(self, parts: Payload) -> None:
        """Add bytes to the chunk."""
        for part in parts:
            self._checksum = zlib.crc32(part, self._checksum)
            self._size += len(part)
            self._file.write(part)

    def _write_chunk_head(self) -> None:
        """Bring the chunk in the file up to what was added."""
        assert self._start is not None
        self._file.flush()
        opcode, length = mcap.Opcode.CHUNK, mcap.CHUNK_HEAD.size - mcap.RECORD_HEAD.size + self._size
        head = mcap.CHUNK_HEAD.pack(opcode, length, *self._times, self._size, self._checksum, 0, self._size)
        os.pwrite(self._file.fileno(), head, self._start)

    def _end_chunk(self) -> None:
        assert self._start is not None
        length = mcap.CHUNK_HEAD.size + self._size
        places = {}
        for channel, entries in self._index.items():
            places[channel] = self._file.tell()
            self._file.write(_bytes(mcap.records.MessageIndex(channel, entries)))
        self._chunks.append(
            mcap.records.ChunkIndex(
                message_start_time=self._times[0],
                message_end_time=self._times[1],
                chunk_start_offset=self._start,
                chunk_length=length,
                message_index_offsets=places,
                message_index_length=self._file.tell() - self._start - length,
                compression="",
                compressed_size=self._size,
                uncompressed_size=self._size,
            )
        )
        self._start = None

    def _channel(self, port: RecordedPort, schema: str) -> int:
        """Return the number of the channel of a port, after it was described in the chunk."""
        channel = self._channels.get((port, schema))
        if channel is None:
            if schema not in self._schemas:
                self._schemas[schema] = mcap.records.Schema(
                    len(self._schemas) + 1, mcap.SCHEMAS[schema].encode(), "ros2msg", schema
                )
                self._add([_bytes(self._schemas[schema])])
            channel = mcap.records.Channel(
                id=len(self._channels) + 1,
                topic=port.name,
                message_encoding="cdr",
                metadata={"port": str(self._run.ports.index(port))},
                schema_id=self._schemas[schema].id,
            )
            self._channels[port, schema] = channel
            self._add([_bytes(channel)])
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
