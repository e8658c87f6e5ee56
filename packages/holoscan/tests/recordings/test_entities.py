"""Recordings as pairs of files: exact bytes, round trips, and files that are cut off or not recordings at all."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.video import VideoFileError
from headrace_holoscan.recordings import EntityReader, EntityWriter
from packages.holoscan.tests.recordings import recorded_by_sdk
from tests.oracle.programs.operators import BY_HEADRACE, BY_HEADRACE_INDEX, RECORDED

TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
# Written out by hand from the table of the format; nothing here is computed.
HAND_MADE = bytes.fromhex(
    # entity: serialized size, checksum, sequence number, flags, component count, reserved
    "0000000000000000 00000000 0000000000000000 00000000 0100000000000000 0000000000000000"
    # component: serialized size, type identifier 3996102265592038524 11968035723744066232, length of the name
    "0000000000000000 7c44bf9ad6017537 b83af3d4140117a6 0500000000000000"
    # name: frame
    "6672616d65"
    # tensor: system memory, uint16, 2 bytes per element, rank 2
    "02000000 04000000 0200000000000000 02000000"
    # dims: 2, 3, and six times 1
    "02000000 03000000 01000000 01000000 01000000 01000000 01000000 01000000"
    # strides: 6, 2, and six times 0
    "0600000000000000 0200000000000000" + "0000000000000000" * 6 +
    # data: 1, 2, 3, 256, 257, 65535
    "0100 0200 0300 0001 0101 ffff"
)  # fmt: skip
HAND_MADE_INDEX = bytes.fromhex("15cd5b0700000000cd000000000000000000000000000000")
FRAME = np.array([[1, 2, 3], [256, 257, 65535]], np.uint16)


def record(folder: Path, messages: list[dict[str, Any]], name: str = "clip") -> tuple[bytes, bytes]:
    """Record messages at 1000 ns, 1100 ns and so on, and return the index and the entities."""
    with EntityWriter(folder, name) as writer:
        for number, tensors in enumerate(messages):
            writer.write(tensors, 1000 + 100 * number)
    return files(folder, name)


def files(folder: Path, name: str = "clip") -> tuple[bytes, bytes]:
    return (folder / f"{name}.gxf_index").read_bytes(), (folder / f"{name}.gxf_entities").read_bytes()


def put(folder: Path, index: bytes, entities: bytes, name: str = "clip") -> None:
    for extension, content in (("index", index), ("entities", entities)):
        path = folder / f"{name}.gxf_{extension}"
        path.unlink(missing_ok=True)  # some file systems bring a file that is overwritten to the disk: 5 ms
        path.write_bytes(content)


def only_tensor(folder: Path) -> np.ndarray:
    with EntityReader(folder, "clip") as reader:
        (entity,) = reader
    ((_, tensor),) = entity.tensors.items()
    return tensor


def test_the_writer_writes_the_bytes_of_the_table(tmp_path: Path) -> None:
    assert len(HAND_MADE) == 40 + 32 + 5 + 116 + 12
    with EntityWriter(tmp_path, "clip") as writer:
        writer.write({"frame": FRAME}, 123456789)
    assert files(tmp_path) == (HAND_MADE_INDEX, HAND_MADE)


def test_the_reader_reads_the_bytes_of_the_table(tmp_path: Path) -> None:
    put(tmp_path, HAND_MADE_INDEX, HAND_MADE)
    with EntityReader(tmp_path, "clip") as reader:
        (entity,) = reader
        assert reader.problems == []
    assert entity.log_time == 123456789
    assert entity.storage_types == {"frame": 2}
    assert list(entity.tensors) == ["frame"]
    np.testing.assert_array_equal(entity.tensors["frame"], FRAME)
    assert entity.tensors["frame"].flags.writeable


def test_the_second_entity_has_the_next_number_and_the_offset_behind_the_first(tmp_path: Path) -> None:
    index, entities = record(tmp_path, [{"": FRAME}, {"": FRAME}])
    size = len(HAND_MADE) - 5
    assert struct.unpack("<6Q", index) == (1000, size, 0, 1100, size, size)
    assert struct.unpack_from("<Q", entities, size + 12) == (1,)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("rank", range(9))
def test_every_element_type_and_rank_comes_back(tmp_path: Path, name: str, rank: int) -> None:
    shape = (2, 3, 1, 2, 1, 2, 1, 2)[:rank]
    array = np.random.default_rng(rank).integers(0, 100, shape).astype(name)
    record(tmp_path, [{"": array}])
    read = only_tensor(tmp_path)
    assert (read.shape, read.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(read, array)


def test_several_tensors_come_back_by_name(tmp_path: Path) -> None:
    tensors = {"": np.arange(3.0), "größe": np.int64(7), "mask": np.zeros((2, 0, 4), np.uint8)}
    record(tmp_path, [tensors, {}])
    with EntityReader(tmp_path, "clip") as reader:
        first, second = reader
    assert list(first.tensors) == ["", "größe", "mask"]
    assert first.tensors["größe"] == 7
    assert first.tensors["mask"].shape == (2, 0, 4)
    assert second.tensors == {}


def test_an_array_that_is_not_contiguous_is_written_in_order(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(4, 6)
    record(tmp_path, [{"": array.T[::2]}])
    np.testing.assert_array_equal(only_tensor(tmp_path), array.T[::2])


def test_the_storage_type_is_kept(tmp_path: Path) -> None:
    with EntityWriter(tmp_path, "clip") as writer:
        writer.write({"a": FRAME, "b": FRAME}, 0, {"a": 1})
    with EntityReader(tmp_path, "clip") as reader:
        assert reader[0].storage_types == {"a": 1, "b": 2}


def test_strides_of_another_writer_are_followed(tmp_path: Path) -> None:
    # The same six numbers, stored by columns.
    strides = struct.pack("<2Q", 2, 4)
    by_columns = HAND_MADE[:129] + strides + HAND_MADE[145:-12] + FRAME.T.tobytes()
    put(tmp_path, HAND_MADE_INDEX, by_columns)
    np.testing.assert_array_equal(only_tensor(tmp_path), FRAME)


def test_a_recording_of_the_sdk_is_read(tmp_path: Path) -> None:
    put(tmp_path, recorded_by_sdk.INDEX, recorded_by_sdk.ENTITIES)
    with EntityReader(tmp_path, "clip") as reader:
        assert reader.problems == []
        entities = list(reader)
    assert [entity.acq_timestamp for entity in entities] == [4711, 4712, 4713, 4714]
    assert [entity.sequence_number for entity in entities] == [0, 1, 2, 3]
    for entity, tensors in zip(entities, recorded_by_sdk.MESSAGES, strict=True):
        assert list(entity.tensors) == list(tensors)
        for name, expected in tensors.items():
            assert entity.tensors[name].dtype == expected.dtype
            np.testing.assert_array_equal(entity.tensors[name], expected)


def test_the_writer_writes_the_bytes_of_the_sdk(tmp_path: Path) -> None:
    """The same bytes, but for two messages: one with a scalar, and one whose array is not contiguous."""
    lines = list(struct.iter_unpack("<3Q", recorded_by_sdk.INDEX))
    with EntityWriter(tmp_path, "clip") as writer:
        for number, tensors in enumerate(recorded_by_sdk.MESSAGES):
            writer.write(tensors, lines[number][0], acq_timestamp=4711 + number)
    index, entities = files(tmp_path)
    assert index == recorded_by_sdk.INDEX
    for number in (0, 3):
        _, size, offset = lines[number]
        assert entities[offset : offset + size] == recorded_by_sdk.ENTITIES[offset : offset + size]


def test_the_writer_still_writes_the_recording_that_the_sdk_has_read(tmp_path: Path) -> None:
    assert record(tmp_path, RECORDED) == (BY_HEADRACE_INDEX, BY_HEADRACE)


def test_a_scalar_is_written_as_one_element_that_the_sdk_can_read(tmp_path: Path) -> None:
    _, entities = record(tmp_path, [{"": np.float32(3.5)}])
    assert struct.unpack_from("<iiQI8i8Q", entities, 72) == (2, 9, 4, 1, *[1] * 8, *[0] * 8)
    assert only_tensor(tmp_path).shape == ()


def test_a_timestamp_beside_the_tensors_is_the_time_of_acquisition(tmp_path: Path) -> None:
    timestamp = struct.pack("<4Q", 0, 0xD1095B105C904BBC, 0xBC89601134CB4E03, 9) + b"timestamp"
    timestamp += struct.pack("<qq", 5, 4711)
    entity = HAND_MADE[:24] + struct.pack("<Q", 2) + HAND_MADE[32:] + timestamp
    put(tmp_path, struct.pack("<3Q", 0, len(entity), 0), entity)
    with EntityReader(tmp_path, "clip") as reader:
        assert reader[0].acq_timestamp == 4711


@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        (np.zeros(2, bool), TypeError, "tensor 'x' has elements of type bool.*it holds int8.*astype"),
        (np.zeros(2, np.complex64), TypeError, "complex64"),
        (np.array(["a"]), TypeError, "<U1"),
        (np.zeros((1,) * 9), ValueError, "9 dimensions.*up to 8"),
        (np.empty((0, 1 << 31)), ValueError, r"shape \(0, 2147483648\).*extents up to 2147483647"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_and_nothing_is_written(
    tmp_path: Path, array: np.ndarray, error: type[Exception], text: str
) -> None:
    with EntityWriter(tmp_path, "clip") as writer, pytest.raises(error, match=text):
        writer.write({"ok": FRAME, "x": array}, 0)
    assert files(tmp_path) == (b"", b"")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (({"x" * 4097: FRAME}, 0), "the name of a tensor has 4097 bytes.*names of up to 4096"),
        (({"é" * 2049: FRAME}, 0), "has 4098 bytes"),
        (({"\ud800": FRAME}, 0), "cannot be written in UTF-8"),
        (({str(n): FRAME for n in range(1025)}, 0), "has 1025 tensors; one entity holds up to 1024"),
        (({str(n): FRAME for n in range(1024)}, 0, None, 5), "has 1024 tensors; one entity holds up to 1023"),
        (({"x": FRAME}, 0, {"x": 4}), "tensor 'x' has the storage type 4; it must be 0, 1, 2 or 3"),
        (({"x": FRAME}, -1), "the time of an entity must be 0 or more"),
        (({"x": FRAME}, 0, None, 1 << 63), "timestamp 9223372036854775808 does not fit into 64 bits"),
    ],
)
def test_what_a_reader_refuses_is_not_written(tmp_path: Path, arguments: tuple[Any, ...], text: str) -> None:
    with EntityWriter(tmp_path, "clip") as writer:
        writer.write({"ok": FRAME}, 0)
        with pytest.raises(ValueError, match=text):
            writer.write(*arguments)
        writer.write({"ok": FRAME}, 1)
    with EntityReader(tmp_path, "clip") as reader:
        assert reader.problems == []
        assert [(list(entity.tensors), entity.sequence_number) for entity in reader] == [
            (["ok"], 0),
            (["ok"], 1),
        ]


@pytest.mark.parametrize(
    "arguments",
    [
        ({"x" * 4096: FRAME}, 0),
        ({str(n): FRAME for n in range(1024)}, 0),
        ({str(n): FRAME for n in range(1023)}, 0, {"7": 3}, (1 << 63) - 1),
        ({"x": FRAME}, (1 << 64) - 1),
    ],
)
def test_what_is_just_within_the_limits_comes_back(tmp_path: Path, arguments: tuple[Any, ...]) -> None:
    with EntityWriter(tmp_path, "clip") as writer:
        writer.write(*arguments)
    with EntityReader(tmp_path, "clip") as reader:
        (entity,) = reader
    assert (list(entity.tensors), entity.log_time) == (list(arguments[0]), arguments[1])


# Files that are cut off.


def small_messages() -> list[dict[str, Any]]:
    return [{"": np.array([n, n + 1], np.uint8), "m": np.float32(n)} for n in range(3)]


def test_a_recording_cut_at_any_byte_gives_all_complete_frames(tmp_path: Path) -> None:
    messages = [{"": np.array([n, n + 1], np.uint8)} for n in range(2)]
    index, entities = record(tmp_path, messages)
    ends = [0] + [struct.unpack_from("<3Q", index, n * 24)[1] * (n + 1) for n in range(2)]
    assert ends[-1] == len(entities)
    cuts = {*range(0, len(entities), 3), *(end + near for end in ends for near in (-1, 0, 1))}
    for cut in sorted(cuts & {*range(len(entities) + 1)}, reverse=True):
        os.truncate(tmp_path / "clip.gxf_entities", cut)
        complete = max(n for n, end in enumerate(ends) if end <= cut)
        # The index of what was complete, a shorter one (cut while it was written), and a longer one.
        for lines in {10, complete * 24, len(index)}:
            (tmp_path / "clip.gxf_index").write_bytes(index[:lines])
            with EntityReader(tmp_path, "clip") as reader:
                assert len(reader) == complete, (cut, lines)
                for number, entity in enumerate(reader):
                    assert entity.tensors[""].tolist() == [number, number + 1]
                    if number * 24 + 24 <= lines:
                        assert entity.log_time == 1000 + 100 * number


def test_an_index_out_of_order_gives_each_frame_once_in_its_order(tmp_path: Path) -> None:
    index, entities = record(tmp_path, small_messages())
    lines = [index[place : place + 24] for place in (24, 48, 0)]
    put(tmp_path, b"".join(lines), entities)
    with EntityReader(tmp_path, "clip") as reader:
        assert [int(entity.tensors["m"]) for entity in reader] == [1, 2, 0]
        assert reader.times == [1100, 1200, 1000]
        assert (reader.recovered, reader.problems) == (0, [])


def test_an_index_cut_at_any_byte_gives_all_frames(tmp_path: Path) -> None:
    index, entities = record(tmp_path, small_messages())
    for cut in range(len(index) + 1):
        put(tmp_path, index[:cut], entities)
        with EntityReader(tmp_path, "clip") as reader:
            assert [int(entity.tensors["m"]) for entity in reader] == [0, 1, 2]
            assert reader.recovered == 3 - cut // 24
            assert bool(reader.problems) == (cut < len(index))


def test_entities_without_a_line_go_on_at_the_pace_of_those_before(tmp_path: Path) -> None:
    index, entities = record(tmp_path, small_messages())
    put(tmp_path, index[:48], entities)
    with EntityReader(tmp_path, "clip") as reader:
        assert reader.times == [1000, 1100, 1200]


KILLED = """
import os, sys
import numpy as np
from headrace_holoscan.recordings import EntityWriter
writer = EntityWriter(sys.argv[1], "clip")
for n in range(3):
    writer.write({"": np.full((64, 64), n, np.uint8)}, n)
os.kill(os.getpid(), 9)
"""


def test_the_entity_is_written_before_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every write of the system, what is there can be read."""
    system_write = os.write
    complete = []

    def watched(file: int, part: Any) -> int:
        done = system_write(file, bytes(part[:7]))  # the system takes little at once
        with EntityReader(tmp_path, "clip") as reader:
            complete.append(len(list(reader)))
            assert not [text for text in reader.problems if "not all, within" in text]
        return done

    monkeypatch.setattr(os, "write", watched)
    record(tmp_path, small_messages())
    assert complete == sorted(complete)
    assert complete[-1] == 3


def test_a_full_disk_leaves_the_frames_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system_write = os.write
    with EntityWriter(tmp_path, "clip") as writer:
        writer.write({"": FRAME}, 0)

        def full(file: int, parts: list[Any]) -> int:
            monkeypatch.setattr(os, "write", nothing_left)
            return system_write(file, parts[:2])

        def nothing_left(file: int, parts: list[Any]) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(VideoFileError, match=r"entity 1 \(200 bytes\).*clip.gxf_entities.*No space left"):
            writer.write({"": FRAME}, 1)
        monkeypatch.undo()
        writer.write({"": FRAME + 1}, 2)
    with EntityReader(tmp_path, "clip") as reader:
        assert reader.problems == []
        np.testing.assert_array_equal(reader[1].tensors[""], FRAME + 1)


def test_flush_brings_each_entity_to_the_disk_before_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    monkeypatch.setattr(os, "fdatasync", lambda file: sizes.append(tuple(map(len, files(tmp_path)))))
    with EntityWriter(tmp_path, "clip", flush=True) as writer:
        writer.write({"": FRAME}, 0)
    assert sizes == [(0, 200), (24, 200)]


# Files that are something else.


def change(offset: int, layout: str, value: int) -> bytes:
    entity = bytearray(HAND_MADE)
    struct.pack_into(layout, entity, offset, value)
    return bytes(entity)


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (
            change(24, "<Q", 1 << 40),
            "byte 40: found an entity of 1099511627776 components; expected at most 1024",
        ),
        (
            change(24, "<Q", 2),
            r"byte 205: expected the header of component 2 of 2 \(32 bytes\), found the end",
        ),
        (change(48, "<Q", 1), "byte 77: found a component of type 0x0000000000000001.*expected a tensor"),
        (change(64, "<Q", 1 << 60), "byte 72: found a name of .* bytes.*expected at most 4096"),
        (change(72, "<B", 255), "byte 77: expected the name of component 1 of 1 in UTF-8"),
        (change(77, "<i", 9), "byte 193: found the storage type 9 for tensor 'frame'; expected 0 to 3"),
        (change(81, "<i", 42), "found the element type 42 for tensor 'frame'; expected one of 1 int8"),
        (change(85, "<Q", 4), "found 4 bytes per element for tensor 'frame' of uint16; expected 2"),
        (change(93, "<I", 9), "found the rank 9 for tensor 'frame'; expected 0 to 8"),
        (change(97, "<i", -2), r"found the dimensions \(-2, 3\).*expected none below 0"),
        (
            change(97, "<i", 3),
            r"byte 193: expected the data of tensor 'frame' \(18 bytes\), found the end after 12",
        ),
        (change(97, "<i", 1), "byte 199: expected the end of the entity at byte 205"),
        (change(129, "<Q", 100), r"found the strides \(100, 2\).*span 106 bytes"),
    ],
)
def test_a_damaged_entity_is_a_clear_error(tmp_path: Path, entity: bytes, text: str) -> None:
    put(tmp_path, HAND_MADE_INDEX, entity)
    with (
        EntityReader(tmp_path, "clip") as reader,
        pytest.raises(VideoFileError, match=f"clip.gxf_entities, entity 0, .*{text}"),
    ):
        reader[0]


def test_a_damaged_entity_leaves_its_neighbours_readable(tmp_path: Path) -> None:
    index, entities = record(tmp_path, small_messages())
    size = len(entities) // 3
    put(tmp_path, index, entities[:size] + b"\xff" * size + entities[2 * size :])
    with EntityReader(tmp_path, "clip") as reader:
        assert int(reader[2].tensors["m"]) == 2
        with pytest.raises(VideoFileError, match=f"entity 1, byte {size + 40}"):
            reader[1]


def test_a_file_of_something_else_is_a_clear_error(tmp_path: Path) -> None:
    put(tmp_path, b"not an index at all, but text" * 3, b"and this is text, too" * 20)
    with EntityReader(tmp_path, "clip") as reader:
        assert len(reader) == 0
        assert "clip.gxf_entities, entity 0, byte" in reader.problems[1]


@pytest.mark.parametrize("missing", ["gxf_index", "gxf_entities"])
def test_half_a_recording_is_refused(tmp_path: Path, missing: str) -> None:
    record(tmp_path, [])
    (tmp_path / f"clip.{missing}").unlink()
    with pytest.raises(VideoFileError, match=f"no file .*clip.{missing}, only .*: a recording is both files"):
        EntityReader(tmp_path, "clip")


def test_random_bytes_never_do_anything_but_raise(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    for _ in range(100):
        entity = bytearray(HAND_MADE)
        for place in random.integers(0, len(entity), 4):
            entity[place] = random.integers(256)
        put(tmp_path, HAND_MADE_INDEX, bytes(entity))
        with EntityReader(tmp_path, "clip") as reader, suppress(VideoFileError):
            assert set(reader[0].storage_types) == set(reader[0].tensors)
