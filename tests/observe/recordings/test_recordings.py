"""Recordings: what was written is read, from files that are whole, cut short, damaged or made to harm."""

from __future__ import annotations

import json
import logging
import os
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from mcap.data_stream import ReadDataStream, RecordBuilder
from mcap.reader import SeekingReader
from mcap.records import Channel, Header, McapRecord, Message, MessageIndex, Metadata, Schema

from headrace.observe import RecordedMessage, RecordedPort, RecordedRun, Recording, RecordingError, encode
from headrace.observe.recordings.recording_format import LONGEST_RUN, TREE
from headrace.observe.recordings.recording_writer import RecordingWriter

CAM, SINK = RecordedPort("cam", "out"), RecordedPort("sink", "in", False, 1)
RUN = RecordedRun("app", [CAM, SINK], [("cam", "out", "sink", "in", 1)], started=5, epoch=7)
MAGIC = b"\x89MCAP0\r\n"


def write(path: Path, values: list[Any], run: RecordedRun = RUN, is_complete: bool = True) -> None:
    path.unlink(missing_ok=True)  # some file systems bring a file that is overwritten to the disk: 5 ms
    writer = RecordingWriter(path)
    writer.begin(run)
    for number, value in enumerate(values):
        details = (number // 2, number, 1000 * number + 50, 100 + number, {"n": number})
        writer.carry(RecordedMessage((CAM, SINK)[number % 2], *details, value))
    writer.end(is_complete)


def put(path: Path, content: bytes | bytearray) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def packed(*records: McapRecord) -> bytes:
    builder = RecordBuilder()
    for record in records:
        record.write(builder)
    return bytes(builder.end())


def test_messages_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path / "a.mcap", ["x", [1, 2], None])
    with Recording(tmp_path / "a.mcap") as recording:
        assert recording.is_complete
        assert recording.problem is None
        assert recording.run == RUN
        assert [port.name for port in recording.ports] == ["cam.out", "sink.in:1"]
        found = list(recording)
    assert found == [
        RecordedMessage(CAM, 0, 0, 0, 100, {"n": 0}, "x"),
        RecordedMessage(SINK, 0, 1, 1000, 101, {"n": 1}, [1, 2]),
        RecordedMessage(CAM, 1, 2, 2000, 102, {"n": 2}, None),
    ]


def test_the_messages_of_one_port_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.mcap", [1, 2, 3])
    recording = Recording(tmp_path / "a.mcap")
    assert [one.data for one in recording.messages("cam.out")] == [1, 3]
    with pytest.raises(
        RecordingError, match="no messages of 'cam.in'; it has messages of cam.out, sink.in:1"
    ):
        list(recording.messages("cam.in"))


def test_the_index_leads_to_every_message(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path, [bytes(400_000)] * 6)  # two in each chunk
    content = path.read_bytes()
    summary = SeekingReader(BytesIO(content)).get_summary()
    assert summary is not None
    found = []
    for chunk in summary.chunk_indexes:
        end = chunk.chunk_start_offset + chunk.chunk_length
        for channel, begin in chunk.message_index_offsets.items():
            assert begin == end
            opcode, length = struct.unpack_from("<BQ", content, begin)
            end = begin + 9 + length
            index = MessageIndex.read(ReadDataStream(BytesIO(content[begin + 9 : end])))
            assert (opcode, index.channel_id) == (7, channel)
            for time, offset in index.records:
                place = chunk.chunk_start_offset + 49 + offset  # behind the head of the chunk
                head = struct.unpack_from("<BQHIQ", content, place)
                assert (head[0], head[2], head[4]) == (5, channel, time)
                found.append((channel, head[3]))
        assert end == chunk.chunk_start_offset + chunk.chunk_length + chunk.message_index_length
    assert sorted(found) == [(channel, sequence) for channel in (1, 2) for sequence in range(3)]


def test_a_file_cut_at_any_byte_has_all_complete_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    values = ["first", b"second" * 5, [3.0] * 4]
    counts = []
    for _ in values:
        write(path, values[: len(counts) + 1], is_complete=False)
        counts.append(path.stat().st_size)  # each message is complete when it was written
        assert [one.data for one in Recording(path)] == values[: len(counts)]
    write(path, values)
    for length in range(path.stat().st_size - 1, -1, -1):
        os.truncate(path, length)
        try:
            recording = Recording(path)
        except RecordingError as error:
            what = "is empty" if not length else "no MCAP file" if length < 8 else "before the run began"
            assert what in str(error)  # noqa: PT017
            assert length < 400
            continue
        read = [one.data for one in recording]
        assert read == values[: len(read)]
        assert len(read) == 3 or length < counts[2]


def test_a_process_killed_while_it_writes_leaves_the_messages_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mcap"
    writer = RecordingWriter(path)
    writer.begin(RUN)
    writer.carry(RecordedMessage(CAM, 0, 0, 0, None, None, "first"))
    monkeypatch.setattr(os, "pwrite", lambda *arguments: None)  # the head of the chunk stays as it was
    writer.carry(RecordedMessage(CAM, 1, 1, 0, None, None, "second"))
    writer.end(False)
    recording = Recording(path)
    assert [one.data for one in recording] == ["first"]
    assert "the 1 messages in its first" in (recording.problem or "")


def test_a_changed_bit_anywhere_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path, ["text", [1, 2]])
    content = path.read_bytes()
    expected = (RUN, list(Recording(path)))
    errors = 0
    for place in range(len(content)):
        with path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), content[max(place - 1, 0) : place], max(place - 1, 0))  # as it was
            os.pwrite(file.fileno(), bytes([content[place] ^ 1 << place % 8]), place)
        try:
            recording = Recording(path)
            assert (recording.run, list(recording)) == expected
        except RecordingError as error:
            errors += 1
            known = ("is damaged at", "is not a", "has version")
            assert any(text in str(error) for text in known)  # noqa: PT017
    assert errors > len(content) // 2  # all but the index and the end, which are for other tools


def third_message(content: bytes) -> int:
    """Return where the third message of cam.out begins."""
    return content.index(struct.pack("<HI", 1, 2)) - 9


def test_a_damaged_chunk_leaves_the_others_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path, [bytes(700_000), b"text that is long enough" * 30_000, bytes(700_000)])
    content = bytearray(path.read_bytes())
    content[content.index(b"long")] ^= 1
    put(path, content)
    for strict in (True, False):
        recording = Recording(path, strict=strict)
        assert [len(recording.load(number).data) for number in (0, 2)] == [700_000] * 2
        with pytest.raises(
            RecordingError, match=r"a.mcap' is damaged at byte \d+: the checksum of a chunk is"
        ):
            recording.load(1)


def test_a_missing_message_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path, [bytes(700_000)] * 8)
    content = path.read_bytes()
    fifth = content.rindex(b"\x06", 0, third_message(content))
    (length,) = struct.unpack_from("<Q", content, fifth + 1)
    put(path, content[:fifth] + content[fifth + 9 + length :])
    with pytest.raises(RecordingError, match="message 2 of 'cam.out' should be here, and message 3 is"):
        Recording(path)


def test_a_file_that_was_cut_off_says_how_much_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.mcap"
    write(path, ["first", "second"], is_complete=False)
    size = path.stat().st_size
    with caplog.at_level(logging.WARNING, "headrace.observe"):
        assert len(Recording(path)) == 2
    (text,) = caplog.messages
    assert text == (
        f"recording {str(path)!r} is incomplete: its process was killed, or the file was cut off; "
        f"the 2 messages in its first {size} of {size} bytes are read"
    )
    caplog.clear()
    write(path, ["first", "second"])
    assert Recording(path).problem is None
    assert not caplog.messages


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty: it has 0 bytes"),
        (b"RIFF", "it is no MCAP file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "it is no MCAP file"),
        (MAGIC + packed(Header("ros2", "")) + MAGIC, "is not a recording of headrace, but another MCAP file"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "a.mcap"
    put(path, content)
    for strict in (True, False):
        with pytest.raises(RecordingError, match=f"a.mcap' .*{what}"):
            Recording(path, strict=strict)


def test_a_description_that_no_reader_accepts_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path, [1])
    with pytest.raises(
        RecordingError, match=r"a.mcap' cannot be written: the names of its 2 ports and 0 flows"
    ):
        RecordingWriter(path).begin(RecordedRun("a" * LONGEST_RUN, [CAM, SINK], []))
    assert len(Recording(path)) == 1  # the file is left as it was


def described(text: str, version: str = "1", checksum: int | None = None) -> bytes:
    checksum = zlib.crc32(text.encode()) if checksum is None else checksum
    return packed(Metadata("headrace", {"version": version, "run": text, "crc32": f"{checksum:x}"}))


PORTS = [{"operator": "cam", "port": "out", "is_output": True, "index": None}]
FOUND: dict[str, Any] = {"application": "app", "ports": PORTS, "flows": [], "started": 0, "epoch": 0}
HEADER = MAGIC + packed(Header("headrace", ""))
GOOD = described(json.dumps(FOUND))
SCHEMA, CHANNEL = Schema(1, b"", "ros2msg", TREE), Channel(1, "cam.out", "cdr", {"port": "0"}, 1)


def chunk(*records: McapRecord, size: int = 0, name: int = 0, raw: bytes = b"") -> bytes:
    content = packed(*records) + raw
    head = struct.pack("<QQQIIQ", 0, 0, len(content) + size, zlib.crc32(content), name, len(content))
    return struct.pack("<BQ", 6, len(head) + len(content)) + head + content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (packed(Header("headrace", ""))[:1] + b"\xff" * 8 + b"\x89MCAP0\r\n", "records do not lead there"),
        (chunk(SCHEMA, CHANNEL), "the description of the run should be here"),
        (described("{}"), "damaged"),
        (described("[" * 100_000), "damaged"),
        (described(json.dumps({**FOUND, "ports": [{"operator": 1}]})), "damaged"),
        (described(json.dumps({**FOUND, "flows": [[1]]})), "damaged"),
        (described(json.dumps({**FOUND, "flows": [["a", "b", "c", "d", 1e999]]})), "damaged"),
        (described("{}", checksum=3), "the checksum of the description of the run is wrong"),
        (described("{}", version="2"), "version 2 of the format: a newer headrace wrote it"),
        (described("{}", version="x"), "damaged"),
        (packed(Metadata("headrace", {"a": "b"})), "damaged"),
        (GOOD + struct.pack("<BQ", 99, 0), "a record of the kind 99 is here"),
        (GOOD + chunk(Message(1, 0, b"", 0, 0)), "a message is of channel 1, which was not described"),
        (GOOD + chunk(SCHEMA, Channel(1, "x", "cdr", {"port": "7"}, 1)), "damaged"),
        (GOOD + chunk(SCHEMA, Channel(1, "x", "cdr", {}, 1)), "damaged"),
        (GOOD + chunk(SCHEMA, CHANNEL, Message(1, 0, b"", 0, 5)), "message 0 of 'cam.out' should be here"),
        (GOOD + chunk(SCHEMA, size=1), "the messages of a chunk of"),
        (GOOD + chunk(raw=struct.pack("<BQ", 5, 1 << 40) + bytes(30)), "is longer than its chunk"),
        (GOOD + chunk(SCHEMA, name=4), "a chunk is compressed.*mcap decompress"),
        (GOOD + chunk(Metadata("x", {})), "a record of the kind 12 is in a chunk"),
        (GOOD + struct.pack("<BQQ", 11, 8, 3), "3 messages were recorded, and 0 are here"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.mcap"
    put(path, HEADER + content)
    with pytest.raises(RecordingError, match=why):
        Recording(path)


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it: reading would wait
    for name, what in (("folder", "a folder"), ("pipe", "no ordinary file")):
        with pytest.raises(RecordingError, match=rf"{name}' is {what}, and a recording is one file"):
            Recording(tmp_path / name)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"step": 0, "acq_timestamp": None, "metadata": None},
        {"step": "x", "acq_timestamp": None, "metadata": None, "data": 1},
        {"step": 0, "acq_timestamp": "x", "metadata": None, "data": 1},
        {"step": 0, "acq_timestamp": None, "metadata": {1: 2}, "data": 1},
    ],
)
def test_a_payload_that_is_no_message_is_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.mcap"
    put(path, HEADER + GOOD + chunk(SCHEMA, CHANNEL, Message(1, 0, encode(value), 0, 0)))
    with pytest.raises(RecordingError, match="message 0 of 'cam.out': the payload is damaged"):
        list(Recording(path))


def test_a_file_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    first, second = (RecordingWriter(tmp_path / name) for name in ("a.mcap", "same.mcap"))
    (tmp_path / "same.mcap").symlink_to(tmp_path / "a.mcap")
    first.begin(RUN)
    first.carry(RecordedMessage(CAM, 0, 0, 0, None, None, "first"))
    with pytest.raises(RecordingError, match=r"'.*same.mcap' is being written already"):
        second.begin(RUN)
    first.end(True)
    with Recording(tmp_path / "a.mcap") as recording:
        assert [one.data for one in recording] == ["first"]
    second.begin(RUN)
    second.end(True)
    with Recording(tmp_path / "a.mcap") as recording:
        assert list(recording) == []


def test_a_recording_is_read_on_while_another_replaces_it(tmp_path: Path) -> None:
    write(tmp_path / "a.mcap", [1, 2, 3])
    with Recording(tmp_path / "a.mcap") as before:
        writer = RecordingWriter(tmp_path / "a.mcap")
        writer.begin(RUN)
        writer.end(True)
        assert [one.data for one in before] == [1, 2, 3]
