"""Recordings and video files that declare more than they hold: a clear error, and no memory for it."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.testing import run_operator
from headrace.video import VideoFileError, VideoReader, VideoWriter
from headrace_holoscan.ready import VideoStreamReplayerOp
from headrace_holoscan.recordings import EntityReader, EntityWriter
from tests.oracle.programs.operators import BY_HEADRACE, BY_HEADRACE_INDEX, RECORDED

LARGEST = 2**31 - 1
TENSOR = 40 + 32  # where the header of the first tensor begins, whose name is empty


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail if what is inside takes more than a few megabytes."""
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20_000_000


def put(folder: Path, index: bytes = BY_HEADRACE_INDEX, entities: bytes = BY_HEADRACE) -> None:
    (folder / "clip.gxf_index").write_bytes(index)
    (folder / "clip.gxf_entities").write_bytes(entities)


@pytest.mark.parametrize(
    ("offset", "form", "values"),
    [
        (24, "<Q", [1 << 60]),  # components
        (24, "<Q", [0]),
        (64, "<Q", [1 << 60]),  # bytes of the name
        (TENSOR + 4, "<i", [-1]),  # the element type
        (TENSOR + 8, "<Q", [1 << 40]),  # bytes per element
        (TENSOR + 16, "<I", [2**32 - 1]),  # the rank
        (TENSOR + 20, "<8i", [LARGEST] * 8),  # dimensions
        (TENSOR + 20, "<3i", [LARGEST, 1, 1]),
        (TENSOR + 20, "<3i", [0, LARGEST, LARGEST]),
        (TENSOR + 20, "<3i", [-2, -4, 3]),
        (TENSOR + 52, "<3Q", [2**63, 2**62, 1]),  # strides
    ],
)
def test_a_false_number_in_a_recording_is_an_error_and_costs_no_memory(
    offset: int, form: str, values: list[int], tmp_path: Path
) -> None:
    damaged = bytearray(BY_HEADRACE)
    struct.pack_into(form, damaged, offset, *values)
    put(tmp_path, entities=bytes(damaged))
    with little_memory(), EntityReader(tmp_path, "clip") as reader:
        with pytest.raises(VideoFileError, match=r"clip\.gxf_entities, entity 0, byte \d+: "):
            reader[0]
        # The entities behind it are found by the index.
        np.testing.assert_array_equal(reader[1].tensors["größe"], RECORDED[1]["größe"])


def test_a_stride_that_is_never_taken_may_be_anything(tmp_path: Path) -> None:
    with EntityWriter(tmp_path, "clip") as writer:
        writer.write({"": np.arange(6, dtype=np.uint8).reshape(1, 6)}, log_time=0)
    path = tmp_path / "clip.gxf_entities"
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, TENSOR + 52, 2**64 - 1)
    path.write_bytes(content)
    with EntityReader(tmp_path, "clip") as reader:
        np.testing.assert_array_equal(reader[0].tensors[""], [[0, 1, 2, 3, 4, 5]])


@pytest.mark.parametrize("line", [(0, 1 << 62, 0), (0, 212, 1 << 62), (2**64 - 1, 2**64 - 1, 2**64 - 1)])
def test_a_false_line_of_an_index_costs_no_memory_and_no_frame(line: tuple[int, ...], tmp_path: Path) -> None:
    put(tmp_path, index=struct.pack("<3Q", *line))
    with little_memory(), EntityReader(tmp_path, "clip") as reader:
        assert reader.problems
        assert len(list(reader)) == len(RECORDED)


def test_times_beyond_measure_are_played(tmp_path: Path) -> None:
    times = [2**64 - 1, 0, 2**63, 1, 2**63 - 1]
    lines = struct.iter_unpack("<3Q", BY_HEADRACE_INDEX)
    put(
        tmp_path,
        index=b"".join(struct.pack("<3Q", at, *line[1:]) for at, line in zip(times, lines, strict=True)),
    )
    played = run_operator(VideoStreamReplayerOp, directory=str(tmp_path), basename="clip", realtime=False)
    assert len(played["output"]) == len(RECORDED)


def y4m(columns: int, rows: int, data: bytes = b"") -> bytes:
    return f"YUV4MPEG2 W{columns} H{rows} F25:1 Ip A1:1 C420jpeg\nFRAME\n".encode() + data


def png(columns: int, rows: int, data: bytes = b"\0" * 1000) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, data)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b""))
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("clip.y4m", y4m(100_000, 100_000)),
        ("clip.y4m", y4m(30_000, 30_000, b"x" * 1000)),
        ("clip.y4m", y4m(0, 0)),
        ("clip.png", png(60_000, 60_000)),
        ("clip.png", png(0, 0)),
        ("clip.png", png(20_000, 20_000)),
    ],
)
def test_a_video_that_declares_more_than_it_holds_is_an_error(name: str, data: bytes, tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / name).write_bytes(data)
    with little_memory(), pytest.raises(VideoFileError, match=name):
        list(VideoReader(tmp_path / name))


def test_the_same_files_are_read_if_they_hold_what_they_declare(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "clip.y4m").write_bytes(y4m(16, 8, b"\x80" * 192))
    (tmp_path / "clip.png").write_bytes(png(16, 8, (b"\0" + b"\x80" * 48) * 8))
    for name in ("clip.y4m", "clip.png"):
        (frame,) = VideoReader(tmp_path / name)
        assert frame.pixels.shape == (8, 16, 3)
        assert np.abs(frame.pixels.astype(int) - 128).max() <= 2


@pytest.mark.parametrize("seed", range(6))
def test_bytes_that_are_flipped_in_a_video_do_no_harm(seed: int, tmp_path: Path) -> None:
    """Each of five damaged files gives frames of the size that it declares, or an error that names it."""
    pytest.importorskip("av")
    from headrace.video import write_video

    source = np.random.default_rng(seed)
    frames = source.integers(0, 256, (4, 16, 16, 3), np.uint8)
    write_video(tmp_path / "whole.mkv", list(frames), 25, codec="ffv1")
    whole = (tmp_path / "whole.mkv").read_bytes()
    outcomes: list[Any] = []
    for number in range(5):
        damaged = bytearray(whole)
        for place in source.integers(0, len(whole), 4):
            damaged[place] ^= 1 << int(source.integers(8))
        path = tmp_path / f"{number}.mkv"
        path.write_bytes(damaged)
        try:
            outcomes.append([frame.pixels.shape for frame in VideoReader(path)])
        except VideoFileError as error:
            outcomes.append(path.name in str(error))
    assert all(outcomes)


@pytest.mark.parametrize(
    ("kind", "codec", "tag", "name"),
    [("avi", "mpeg4", b"FMP4", r"'none \(Zq9x"), ("mkv", "ffv1", b"FFV1", "'none'")],
)
def test_a_video_of_an_unknown_codec_is_an_error_that_names_it(
    kind: str, codec: str, tag: bytes, name: str, tmp_path: Path
) -> None:
    pytest.importorskip("av")
    path = tmp_path / f"clip.{kind}"
    with VideoWriter(path, codec=codec) as writer:
        writer.write(np.zeros((32, 32, 3), np.uint8))
    path.write_bytes(path.read_bytes().replace(tag, b"Zq9x"))
    with pytest.raises(VideoFileError, match=rf"clip\.{kind}: this build .* has no decoder .* calls {name}"):
        VideoReader(path)
