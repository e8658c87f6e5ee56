"""Recordings: what was written is read, from files that are whole, cut short, damaged or made to harm."""

from __future__ import annotations

import json
import logging
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
from headrace.observe.recordings.payloads import encode, prepare
from headrace.observe.recordings.recording_format import LONGEST_HEADER
from headrace.observe.recordings.recording_writer import RecordingWriter

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


def record(kind: bytes, body: bytes, port: int = 0, sequence: int = 0, length: int | None = None) -> bytes:
    """Return a record with the right checksums."""
    rest = struct.pack(
        "<IQcIQQq", zlib.crc32(body), len(body) if length is None else length, kind, port, sequence, 0, 0
    )
    return struct.pack("<I", zlib.crc32(rest)) + rest + body


def put(path: Path, content: bytes | bytearray) -> None:
    path.unlink(missing_ok=True)  # some file systems bring a file that is overwritten to the disk: 5 ms
    path.write_bytes(content)


MAGIC = b"\x89headrace-rec\r\n\x01"
HEAD = 45  # bytes


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
        put(path, content[:length])
        try:
            recording = Recording(path)
        except RecordingError as error:
            what = "is empty" if not length else "not a recording" if length < 16 else "before the run began"
            assert what in str(error)  # noqa: PT017
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
from tests.observe.recordings.test_recordings import HEADER, RecordingWriter, encode
writer = RecordingWriter(Path({str(path)!r}), HEADER, 0, 0)
for number in range(100):
    writer.add(0, number, number, number, encode((None, None, number)))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ}, cwd=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL
    recording = Recording(path)
    assert [one.data for one in recording] == list(range(100))
    assert not recording.is_complete


def test_a_changed_bit_anywhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    write(path, ["text", [1, 2]])
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        put(path, changed)
        with pytest.raises(RecordingError, match=r"a.rec' (is damaged at byte|is not a|has version)"):
            list(Recording(path))


def length_of_the_third_message(content: bytes) -> int:
    """Return where the length of the third message of cam.out is."""
    return content.index(struct.pack("<cIQ", b"M", 0, 2)) - 8


@pytest.mark.parametrize("bit", range(64))
def test_one_wrong_bit_of_a_length_is_an_error_that_says_how_much_can_be_read(
    tmp_path: Path, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.rec"
    write(path, list(range(20)))
    content = bytearray(path.read_bytes())
    place = length_of_the_third_message(content)
    content[place + bit // 8] ^= 1 << bit % 8
    put(path, content)
    damage = (
        rf"a.rec' is damaged at byte {place - 8}: the checksum of a head is wrong; the 4 messages in its first "
        rf"{place - 8} of {len(content)} bytes"
    )
    with pytest.raises(RecordingError, match=rf"{damage} can be read \(strict=False"):
        Recording(path)
    with caplog.at_level(logging.WARNING, "headrace.observe"):
        recording = Recording(path, strict=False)
    assert [one.data for one in recording] == [0, 1, 2, 3]
    assert not recording.is_complete
    (text,) = caplog.messages
    assert text == recording.problem
    assert text.endswith("4 messages in its first " + f"{place - 8} of {len(content)} bytes are read")


def test_a_damaged_message_leaves_those_around_it_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    write(path, ["first", "text that is long enough", "last"])
    content = bytearray(path.read_bytes())
    content[content.index(b"long")] ^= 1
    put(path, content)
    for strict in (True, False):
        recording = Recording(path, strict=strict)
        assert [recording.load(number).data for number in (0, 2)] == ["first", "last"]
        with pytest.raises(
            RecordingError,
            match=r"a.rec' is damaged at byte \d+: the checksum of message 0 of 'sink.in:1' is",
        ):
            recording.load(1)


def test_a_missing_message_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    write(path, list(range(8)))
    content = path.read_bytes()
    start = length_of_the_third_message(content) - 8
    (length,) = struct.unpack_from("<Q", content, start + 8)
    put(path, content[:start] + content[start + HEAD + length :])
    with pytest.raises(RecordingError, match="message 2 of 'cam.out' should be here, and message 3 is"):
        Recording(path)


def test_a_file_that_was_cut_off_says_how_much_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.rec"
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


@pytest.mark.parametrize("content", [b"RIFF", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(1000)])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.rec"
    put(path, content)
    with pytest.raises(RecordingError, match="'.*a.rec' is not a recording of headrace"):
        Recording(path, strict=False)


def test_a_file_of_a_newer_version_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    put(path, MAGIC[:-1] + b"\x02" + GOOD)
    with pytest.raises(
        RecordingError,
        match="has version 2 of the format: a newer headrace wrote it, and this one reads version 1",
    ):
        Recording(path, strict=False)


@pytest.mark.parametrize("strict", [True, False])
def test_a_file_of_0_bytes_is_refused(tmp_path: Path, strict: bool) -> None:
    path = tmp_path / "a.rec"
    path.touch()
    with pytest.raises(RecordingError, match="a.rec' is empty: the file has 0 bytes"):
        Recording(path, strict=strict)


def test_a_header_that_no_reader_accepts_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    header = {**HEADER, "application": "a" * (LONGEST_HEADER - len(json.dumps(HEADER)) + len("app"))}
    write(path, [1], header)
    assert Recording(path).application == header["application"]
    header["application"] += "a"
    with pytest.raises(
        RecordingError, match=r"a.rec' cannot be written: the names of its 2 ports and 1 flows"
    ):
        write(path, [1], header)
    assert len(Recording(path)) == 1  # the file is left as it was


def test_a_message_of_more_pieces_than_the_system_takes_at_once(tmp_path: Path) -> None:
    values = list(range(1500))
    assert len(encode(prepare((None, None, values), False))) > 1024  # the limit of writev
    write(tmp_path / "a.rec", [values])
    (message,) = Recording(tmp_path / "a.rec")
    assert message.data == values


@pytest.mark.parametrize("has_writev", [True, False])
def test_a_system_that_takes_little_at_once_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_writev: bool
) -> None:
    write(tmp_path / "a.rec", ["first", b"second" * 5, [1, [2, None]]])
    system_write = os.write
    if has_writev:
        # Within a piece, at the end of one, and past several: 1, 2, 3, ... bytes at a time.
        sizes = iter(range(1, 10_000))
        monkeypatch.setattr(
            os, "writev", lambda file, parts: system_write(file, b"".join(parts)[: next(sizes)])
        )
    else:
        monkeypatch.delattr(os, "writev")
        monkeypatch.setattr(os, "write", lambda file, part: system_write(file, part[:7]))
    write(tmp_path / "b.rec", ["first", b"second" * 5, [1, [2, None]]])
    assert (tmp_path / "b.rec").read_bytes() == (tmp_path / "a.rec").read_bytes()


def test_the_end_counts_the_messages_and_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    writer = RecordingWriter(path, HEADER, started=5, epoch=7)
    writer.add(0, 0, 0, 0, encode((None, None, "x")))
    assert writer.messages == 1
    before = path.read_bytes()
    writer.close()
    writer.close()
    assert path.read_bytes() == before + record(b"E", b'{"messages": 1}')


HEADER_RECORD = record(b"H", json.dumps(HEADER).encode())
GOOD = HEADER_RECORD + record(b"T", bytes(16))


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
        (
            record(b"H", json.dumps({**HEADER, "flows": [["a", "b", "c", "d", 1e999]]}).encode()),
            "the header is not valid",
        ),
        (b"\0\0\0\0" + GOOD[4:], "the checksum of a head is wrong"),
        (HEADER_RECORD + record(b"M", b"N"), "there should be the times of the run"),
        (HEADER_RECORD + record(b"T", b""), "the times of the run should have 16 bytes, not 0"),
        (GOOD + record(b"M", b"N", port=2), "of port 2, and there are 2"),
        (GOOD + record(b"M", b"N", sequence=1), "message 0 of 'cam.out' should be here, and message 1 is"),
        (GOOD + record(b"T", bytes(16)), "should be a message, not a record of the kind b'T'"),
        (GOOD + record(b"Z", b""), "not a record of the kind b'Z'"),
        (GOOD + record(b"E", b"{}"), "its end is not valid"),
        (GOOD + record(b"E", b'{"messages": 3}'), "3 messages were recorded, and there are 0"),
        (GOOD + record(b"E", b'{"messages": 0}') + b"more", "4 bytes follow its end"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.rec"
    put(path, MAGIC + content)
    with pytest.raises(RecordingError, match=why):
        Recording(path)


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it: reading would wait
    for name, what in (("folder", "a folder"), ("pipe", "no ordinary file")):
        with pytest.raises(RecordingError, match=rf"{name}' is {what}, and a recording is one file"):
            Recording(tmp_path / name)


@pytest.mark.parametrize(
    "payload", [b"N", b"t\x00", b"t\x03ssN", b"t\x03s\x00NN", b"t\x03Ns\x00N", b"t\x03Nd\x01i\x01\x01NN"]
)
def test_a_payload_that_is_no_message_is_refused(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "a.rec"
    put(path, MAGIC + GOOD + record(b"M", payload))
    with pytest.raises(RecordingError, match="message 0 of 'cam.out': the payload is damaged"):
        list(Recording(path))


def test_a_length_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    put(path, MAGIC + GOOD + record(b"M", bytes(100), length=1 << 62))
    tracemalloc.start()
    try:
        assert list(Recording(path)) == []
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_end_longer_than_any_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    put(path, MAGIC + GOOD + record(b"E", b"", length=LONGEST_HEADER + 1))
    os.truncate(path, len(MAGIC + GOOD) + HEAD + LONGEST_HEADER + 1)
    with pytest.raises(RecordingError, match="its end is too long"):
        Recording(path)


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
