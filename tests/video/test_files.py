"""Video files through PyAV: round trips, damage, and mistakes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.video import VideoFileError, VideoReader, VideoWriter, write_video
from headrace_holoscan.recordings import open_clip

av = pytest.importorskip("av")

MS = 1_000_000


def pictures(count: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    rows, columns = np.indices((height, width))
    return [
        np.stack([rows * 4 % 256, columns * 3 % 256, np.full_like(rows, number * 20)], -1).astype(np.uint8)
        for number in range(count)
    ]


def test_a_lossless_file_gives_back_every_pixel_and_time(tmp_path: Path) -> None:
    frames = pictures(6)
    assert write_video(tmp_path / "a.mkv", frames, 20, codec="ffv1") == 6
    reader = VideoReader(tmp_path / "a.mkv")
    assert (reader.width, reader.height, reader.rate, reader.codec) == (64, 48, 20, "ffv1")
    for _ in range(2):  # from the beginning each time
        read = list(reader)
        assert [frame.time for frame in read] == [50 * MS * number for number in range(6)]
        for frame, expected in zip(read, frames, strict=True):
            np.testing.assert_array_equal(frame.pixels, expected)


@pytest.mark.parametrize("size", [(48, 64), (47, 63), (1, 1), (2, 500)])
def test_an_mp4_has_the_size_and_about_the_colours_of_what_was_written(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    frames = [np.full((*size, 3), [200, 30 * number, 60], np.uint8) for number in range(3)]
    write_video(tmp_path / "new" / "a.mp4", frames, 29.97)
    read = list(VideoReader(tmp_path / "new" / "a.mp4"))
    assert [round(frame.time / MS) for frame in read] == [0, 33, 67]
    for frame, expected in zip(read, frames, strict=True):
        assert frame.pixels.shape == expected.shape
        np.testing.assert_allclose(frame.pixels.mean((0, 1)), expected.mean((0, 1)), atol=5)


@pytest.mark.parametrize("shape", [(32, 32), (32, 32, 1), (32, 32, 4)])
def test_grey_and_rgba_are_written(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_video(tmp_path / "a.mkv", [np.full(shape, 77, np.uint8)], codec="ffv1")
    (frame,) = VideoReader(tmp_path / "a.mkv")
    np.testing.assert_array_equal(frame.pixels, np.full((32, 32, 3), 77))


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([np.zeros((4, 4, 3), np.float32)], "frame 0 of .*a.mp4 is float32 of shape .*expected uint8"),
        ([np.zeros((4, 4, 2), np.uint8)], r"shape \(4, 4, 2\); expected"),
        ([np.zeros(4, np.uint8)], r"shape \(4,\); expected"),
        ([np.zeros((0, 4, 3), np.uint8)], "is empty"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 6, 3), np.uint8)], r"frame 1 .*\(4, 6, 3\).*one size"),
    ],
)
def test_a_wrong_frame_is_refused(tmp_path: Path, frames: list[Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        write_video(tmp_path / "a.mp4", frames)


def test_a_wrong_codec_container_or_rate_is_refused(tmp_path: Path) -> None:
    frame = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(VideoFileError, match=r"a\.mp4 cannot be encoded with 'nonsense'"):
        write_video(tmp_path / "a.mp4", [frame], codec="nonsense")
    with pytest.raises(VideoFileError, match=r"a video cannot be written to .*a\.nonsense"):
        write_video(tmp_path / "a.nonsense", [frame])
    for rate in (0, -1, float("nan"), float("inf"), 1e-9, 1e12):
        with pytest.raises(ValueError, match=rf"a\.mp4 must be more than 0, from .*, not {rate!r}"):
            VideoWriter(tmp_path / "a.mp4", rate)
    VideoWriter(tmp_path / "a.mp4", np.float32(30))  # type: ignore[arg-type]


def test_what_the_encoder_refuses_names_the_file_and_the_frame(tmp_path: Path) -> None:
    """H.264 knows no picture of so many columns; a file is opened when its first frames leave the encoder."""
    with pytest.raises(VideoFileError, match=r"a\.mp4: .*, of 70000×2 pixels, cannot be encoded with"):
        write_video(tmp_path / "a.mp4", [np.zeros((2, 70_000, 3), np.uint8)])
    with pytest.raises(
        VideoFileError, match=r"\.mp4: the last frames, of 4×4 pixels, .* or written: .*too long"
    ):
        write_video(tmp_path / ("a" * 300 + ".mp4"), [np.zeros((4, 4, 3), np.uint8)])


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_frame_at_a_time_that_is_none_is_refused(tmp_path: Path, time: float) -> None:
    frame = np.zeros((4, 4, 3), np.uint8)
    with VideoWriter(tmp_path / "a.mp4") as writer:
        writer.write(frame, 0.0)
        with pytest.raises(ValueError, match=r"frame 1 of .*a\.mp4 is shown at .* s, which is no time"):
            writer.write(frame, time)
        writer.write(frame, 0.5)
    assert [frame.time for frame in VideoReader(tmp_path / "a.mp4")] == [0, 500_000_000]


def test_a_writer_that_is_closed_writes_nothing_more(tmp_path: Path) -> None:
    writer = VideoWriter(tmp_path / "a.mp4")
    writer.close()
    writer.close()
    assert not (tmp_path / "a.mp4").exists()
    with pytest.raises(ValueError, match="has been closed"):
        writer.write(np.zeros((4, 4, 3), np.uint8))


def test_a_file_cut_off_gives_the_frames_before(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    write_video(path, pictures(20), codec="ffv1")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    assert 5 < len(list(VideoReader(path))) < 20


def test_packets_that_cannot_be_decoded_are_skipped_or_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.avi"
    write_video(path, pictures(20), 20, codec="ffv1")
    with av.open(str(path)) as container:
        place = [(packet.pos, packet.size) for packet in container.demux(video=0)][7]
    whole = bytearray(path.read_bytes())
    whole[place[0] + 8 : place[0] + 8 + place[1]] = b"\xff" * place[1]  # behind the header of the chunk
    path.write_bytes(whole)
    with pytest.raises(VideoFileError, match=r"a\.avi: what follows the frame at 0\.300 s cannot be decoded"):
        list(VideoReader(path, ignore_corrupted=False))
    assert 17 <= len(list(VideoReader(path))) < 20  # a decoder with threads may lose a neighbour
    assert "skipped 1 packets that could not be decoded" in caplog.text


@pytest.mark.parametrize("content", [b"", b"only text\n" * 100, bytes(range(256)) * 40])
def test_a_file_of_something_else_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(VideoFileError, match=r"a\.mp4 is not a video that can be read"):
        VideoReader(tmp_path / "a.mp4")


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    with pytest.raises(VideoFileError, match="has no video stream; its streams are of kind: audio"):
        VideoReader(tmp_path / "a.wav")


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(VideoFileError, match="there is no file"):
        VideoReader(tmp_path / "a.mp4")


def test_without_pyav_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(
        ImportError,
        match=r"av is needed to read and write video files: pip install '(?:\.|headrace)\[video\]'",
    ):
        VideoReader(tmp_path / "a.mp4")
    with pytest.raises(ImportError, match=r"'(?:\.|headrace)\[video\]"):
        VideoWriter(tmp_path / "a.mp4")


def test_several_videos_of_one_name_must_be_told_apart(tmp_path: Path) -> None:
    for extension in ("mp4", "mkv"):
        write_video(tmp_path / f"a.{extension}", pictures(1))
    with pytest.raises(VideoFileError, match=r"several videos named 'a': a\.mkv, a\.mp4. Name one"):
        open_clip(tmp_path, "a")
    assert open_clip(tmp_path, "a.mkv").path == tmp_path / "a.mkv"


def test_a_picture_is_a_clip_of_one_frame(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    Image.fromarray(pictures(1)[0]).save(tmp_path / "a.png")
    (frame,) = open_clip(tmp_path, "a.png").frames()
    np.testing.assert_array_equal(frame.tensors[""], pictures(1)[0])


def test_frames_are_shown_at_their_times(tmp_path: Path) -> None:
    times = [3.0, 3.1, 3.15, 3.5, 3.5, 3.4, 4.0]  # the fifth and sixth are no later than the one before
    with VideoWriter(tmp_path / "a.mp4", 50) as writer:
        for number, time in enumerate(times):
            writer.write(np.full((32, 48, 3), 30 * number, np.uint8), time)
    shown = [frame.time / 1e9 for frame in VideoReader(tmp_path / "a.mp4")]
    assert shown == pytest.approx([0, 0.1, 0.15, 0.5, 0.501, 0.521, 1.0], abs=1e-3)
    with pytest.importorskip("av").open(str(tmp_path / "a.mp4")) as container:
        assert container.duration / 1e6 == pytest.approx(1.02, abs=0.01)  # the last one is shown, too


def test_times_are_given_for_all_frames_or_for_none(tmp_path: Path) -> None:
    frame = np.zeros((32, 48, 3), np.uint8)
    with VideoWriter(tmp_path / "a.mp4") as writer:
        writer.write(frame)
        with pytest.raises(
            ValueError, match=r"frame 1 of .*a.mp4 has a time, .* give all of them times, or none"
        ):
            writer.write(frame, 1.0)
