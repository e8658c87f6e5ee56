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

from headrace.video import VideoFileError, VideoReader, VideoWriter


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
