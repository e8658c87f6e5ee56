"""Recordings: what was written is read, from files that are whole, cut short, damaged or made to harm."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.observe import Recording, RecordingError
from headrace.observe.payloads import encode, prepare
from headrace.observe.recordings import RecordingWriter

HEADER: dict[str, Any] = {
    "application": "app",
    "ports": [
        {"operator": "cam", "port": "out", "is_output": True, "index": None},
        {"operator": "sink", "port": "in", "is_output": False, "index": 1},
    ],
    "flows": [["cam", "out", "sink", "in", 1]],
}


def write(path: Path, values: list[Any], header: dict[str, Any] = HEADER, is_complete: bool = True) -> None:
    writer = RecordingWriter(path, header, started=5, epoch=7)
    for number, value in enumerate(values):
        message = prepare((100 + number, {"n": number}, value), False)
        writer.add(number % 2, number // 2, number, 1000 * number + 50, encode(message))
    writer.close(is_complete)


def record(kind: bytes, body: bytes) -> bytes:
    """Return a record with the right checksum."""
    rest = struct.pack("<Qc", len(body), kind)
    return struct.pack("<I", zlib.crc32(body, zlib.crc32(rest))) + rest + body


MAGIC = b"\x89headrace-rec\r\n\x01"


def test_messages_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", ["x", [1, 2], None])
    with Recording(tmp_path / "a.rec") as recording:
        assert recording.is_complete
        assert recording.application == "app"
        assert (recording.started, recording.epoch) == (5, 7)
        assert [port.name for port in recording.ports] == ["cam.out", "sink.in:1"]
        assert recording.flows == [("cam", "out", "sink", "in", 1)]
        found = [
            (one.port.name, one.sequence, one.step, one.time, one.acq_timestamp, one.metadata, one.data)
            for one in recording
        ]
    assert found == [
        ("cam.out", 0, 0, 0, 100, {"n": 0}, "x"),
        ("sink.in:1", 0, 1, 1000, 101, {"n": 1}, [1, 2]),
        ("cam.out", 1, 2, 2000, 102, {"n": 2}, None),
    ]


def test_the_messages_of_one_port_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.rec", [1, 2, 3])
    recording = Recording(tmp_path / "a.rec")
    assert [one.data for one in recording.messages("cam.out")] == [1, 3]
    assert recording.count(recording.ports[0]) == 2
    with pytest.raises(RecordingError, match="no messages of 'cam.in'; it has those of cam.out, sink.in:1"):
        list(recording.messages("cam.in"))


def test_a_file_cut_at_any_byte_has_all_complete_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    values = ["first", b"second" * 5, [3.0] * 4]
    write(path, values)
    content = path.read_bytes()
    # Where each message is complete.
    ends = [content.index(b"second" * 5) - 30, content.index(b"second" * 5) + 30]
    counts = []
    for length in range(len(content)):
        path.write_bytes(content[:length])
        try:
            recording = Recording(path)
        except RecordingError as error:
            assert "not a recording" in str(error) or "is empty" in str(error)  # noqa: PT017
            assert not counts
            continue
        assert not recording.is_complete
        read = [one.data for one in recording]
        assert read == values[: len(read)]
        counts.append(len(read))
        if length > ends[1]:
            assert len(read) >= 2
    assert sorted(counts) == counts
    assert set(counts) == {0, 1, 2, 3}


def test_a_killed_process_leaves_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    program = f"""
import os, signal
from pathlib import Path
from tests.observe.test_recordings import HEADER, RecordingWriter, encode
writer = RecordingWriter(Path({str(path)!r}), HEADER, 0, 0)
for number in range(100):
    writer.add(0, number, number, number, encode((None, None, number)))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ}, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    recording = Recording(path)
    assert [one.data for one in recording] == list(range(100))
    assert not recording.is_complete


def test_a_changed_byte_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    write(path, ["text that is long enough"] * 3)
    content = bytearray(path.read_bytes())
    content[content.index(b"long")] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"a.rec' is damaged at byte \d+: the checksum is wrong"):
        list(Recording(path))


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(1000), MAGIC[:-1] + b"\x02"]
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="'.*a.rec' is not a recording of headrace"):
        Recording(path)


GOOD = record(b"H", json.dumps(HEADER).encode())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (record(b"M", bytes(50)), "there should be a header"),
        (record(b"H", b"{}"), "the header is not valid"),
        (record(b"H", b"[" * 100_000), "the header is not valid"),
        (record(b"H", b"\xff"), "the header is not valid"),
        (
            record(b"H", json.dumps({**HEADER, "ports": [{"operator": 1}]}).encode()),
            "the header is not valid",
        ),
        (record(b"H", json.dumps({**HEADER, "flows": [[1]]}).encode()), "the header is not valid"),
        (b"\0\0\0\0" + GOOD[4:], "the checksum is wrong"),
        (GOOD + record(b"M", b""), "a message is too short"),
        (GOOD + record(b"M", struct.pack("<IQQq", 9, 0, 0, 0)), "of port 9, and there are 2"),
        (GOOD + record(b"Z", b""), "no kind of record b'Z'"),
        (GOOD + record(b"E", b"{}"), "its end is not valid"),
        (GOOD + record(b"E", b'{"messages": 3}'), "3 messages were recorded, and there are 0"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(MAGIC + content)
    with pytest.raises(RecordingError, match=why):
        Recording(path)


@pytest.mark.parametrize(
    "payload", [b"N", b"t\x00", b"t\x03ssN", b"t\x03s\x00NN", b"t\x03Ns\x00N", b"t\x03Nd\x01i\x01\x01NN"]
)
def test_a_payload_that_is_no_message_is_refused(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(MAGIC + GOOD + record(b"M", struct.pack("<IQQq", 0, 3, 0, 0) + payload))
    with pytest.raises(RecordingError, match="message 3 of 'cam.out': the payload is damaged"):
        list(Recording(path))


def test_a_length_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(MAGIC + GOOD + struct.pack("<IQc", 0, 1 << 62, b"M") + bytes(100))
    tracemalloc.start()
    try:
        assert list(Recording(path)) == []
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_behind_the_header_are_read_or_refused(content: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(MAGIC + GOOD + content)
        file.flush()
        try:
            messages = list(Recording(file.name))
        except RecordingError as error:
            assert "damaged" in str(error)  # noqa: PT017
        else:
            assert messages == []  # the checksum of a random record is wrong
