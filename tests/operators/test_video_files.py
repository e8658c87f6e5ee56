"""Writing and reading videos: times of frames survive, files are whole however a run ends, streams come back."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import PeriodicCondition
from headrace.operators import VideoReaderOp, VideoWriterOp
from headrace.testing import Message, run_operator
from headrace.video import VideoFileError, VideoReader, VideoWriter, files
from tests.harness import App, MakeScheduler, Step, run, source
from tests.harness.processes import run_forked

av = pytest.importorskip("av")
from tests.video.rtsp_server import RtspServer, encode  # noqa: E402

MS, SECOND = 1_000_000, 1_000_000_000
EPOCH = 1_790_000_000_123_456_789
TIMES = [EPOCH + ns for ns in (0, 33_333_333, 66_666_667, 70_000_001, 5 * SECOND + 7, 2000 * SECOND)]
OPTIONS = {
    "probesize": "32",
    "analyzeduration": "0",
}  # so that a client asks for no more frames than there are


def picture(level: int) -> np.ndarray:
    return np.full((48, 64, 3), level, np.uint8)


def write(path: Path | str, times: list[int | None], **parameters: Any) -> Any:
    messages = [Message(picture(20 * number), acq_timestamp=at) for number, at in enumerate(times)]
    return run_operator(VideoWriterOp, inputs=messages, path=path, **parameters)


def read(path: Path | str, **parameters: Any) -> list[Message]:
    return run_operator(VideoReaderOp, path=path, **parameters).messages["output"]


def levels(messages: list[Message]) -> list[int]:
    return [round(float(np.asarray(message.data[""]).mean()) / 20) for message in messages]


@pytest.mark.parametrize(
    ("name", "codec", "precision"),
    [("a.mp4", "h264", 500), ("a.mkv", "ffv1", MS // 2), ("a.mp4", "mpeg4", SECOND // 120_000)],
)
def test_frames_keep_their_times(tmp_path: Path, name: str, codec: str, precision: int) -> None:
    outcome = write(tmp_path / name, list(TIMES), codec=codec)
    assert (outcome.operator.frames_written, outcome.operator.frames_retimed) == (6, 0)
    messages = read(tmp_path / name)
    assert levels(messages) == [0, 1, 2, 3, 4, 5]
    for message, time in zip(messages, TIMES, strict=True):
        assert message.acq_timestamp is not None
        assert abs(message.acq_timestamp - time) <= precision
        assert abs(message.at - (time - EPOCH)) <= precision  # also the pace
    fast = read(tmp_path / name, realtime=False, count=8, repeat=True)
    assert [message.at for message in fast] == [0] * 8
    assert levels(fast) == [0, 1, 2, 3, 4, 5, 0, 1]


def test_frames_without_a_time_follow_at_the_frame_rate(tmp_path: Path) -> None:
    write(tmp_path / "a.mp4", [None] * 4, frame_rate=20)
    assert [message.acq_timestamp for message in read(tmp_path / "a.mp4")] == [0, 50 * MS, 100 * MS, 150 * MS]


def test_a_frame_that_is_no_later_than_the_one_before_is_moved_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = write(tmp_path / "a.mp4", [0, 100 * MS, 100 * MS, 90 * MS, SECOND], frame_rate=100)
    assert outcome.operator.frames_retimed == 2
    assert "2 of 5 frames were no later than the one before" in caplog.text
    moved = [message.acq_timestamp for message in read(tmp_path / "a.mp4")]
    assert moved == [
        0,
        100 * MS,
        101 * MS,
        111 * MS,
        SECOND,
    ]  # the fourth: as after a clock that was set back


def test_frames_after_a_clock_that_was_set_back_follow_at_the_frame_rate(tmp_path: Path) -> None:
    given = [SECOND, 2 * SECOND, 0, 40 * MS, 80 * MS, 3 * SECOND]
    assert write(tmp_path / "a.mp4", given, frame_rate=25).operator.frames_retimed == 3
    times = [message.acq_timestamp for message in read(tmp_path / "a.mp4")]
    assert times == [SECOND, 2 * SECOND, 2040 * MS, 2080 * MS, 2120 * MS, 3 * SECOND]


def test_a_time_that_a_file_cannot_hold_is_an_error_and_the_file_is_whole(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'video_writer', input 'input': frame 2 of .* shown 3600 s after"):
        write(tmp_path / "a.mp4", [0, SECOND, 3601 * SECOND])
    assert levels(read(tmp_path / "a.mp4")) == [0, 1]


@pytest.mark.parametrize("format_", ["rgb24", "bgr24", "rgba", "bgra", "gray", "nv12", "yuv420p"])
def test_pixels_of_every_format_are_written_and_read(tmp_path: Path, format_: str) -> None:
    colour = np.zeros((48, 64, 3), np.uint8) + np.uint8([200, 100, 50])
    given = av.VideoFrame.from_ndarray(colour, format="rgb24").to_ndarray(format=format_)
    path = tmp_path / "a.mp4"
    run_operator(VideoWriterOp, inputs=[given], path=path, in_pixel_format=format_, quality=5)
    (message,) = read(path, pixel_format=format_)
    frame = np.asarray(message.data[""])
    assert frame.shape == given.shape
    np.testing.assert_allclose(frame.astype(int), given, atol=8)


@pytest.mark.parametrize("planes", ["yuv420p", "yuv420p10le"])
def test_pixels_do_not_depend_on_what_decoded_them(planes: str) -> None:
    """NVDEC has other formats than software for the same values."""
    blocks = np.random.default_rng(1).integers(0, 256, (6, 10, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    software = av.VideoFrame.from_ndarray(blocks, format="rgb24").reformat(format=planes)
    of_nvdec = software.reformat(format={"yuv420p": "nv12", "yuv420p10le": "p010le"}[planes])
    for pixel_format in 4 * ("rgb24", "bgra", "gray", "yuv420p"):
        np.testing.assert_array_equal(
            files._pixels(of_nvdec, pixel_format), files._pixels(software, pixel_format), pixel_format
        )


def test_frames_on_a_device_are_read_and_written(tmp_path: Path, scheduler: MakeScheduler) -> None:
    write(tmp_path / "a.mp4", list(TIMES))

    def compose(app: App) -> None:
        reader = VideoReaderOp(app, path=tmp_path / "a.mp4", storage_type="device")
        app.add_flow(reader, VideoWriterOp(app, path=tmp_path / "b.mp4"))

    run(compose, scheduler)
    messages = read(tmp_path / "b.mp4")
    assert levels(messages) == [0, 1, 2, 3, 4, 5]
    assert [message.acq_timestamp for message in messages] == [
        message.acq_timestamp for message in read(tmp_path / "a.mp4")
    ]


def test_a_file_is_whole_when_the_run_fails(tmp_path: Path, scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        frames: list[Any] = [picture(20 * number) for number in range(4)]
        app.add_flow(
            source(app, [*frames, "no frame"], PeriodicCondition(app, "20ms")),
            VideoWriterOp(app, path=tmp_path / "a.mp4"),
        )

    with pytest.raises(TypeError, match="input 'input': expected an array"):
        run(compose, scheduler)
    assert levels(read(tmp_path / "a.mp4")) == [0, 1, 2, 3]


def test_mistakes_name_the_operator_and_what_is_right(tmp_path: Path) -> None:
    with pytest.raises(VideoFileError, match=r"there is no file .*nothing\.mp4") as raised:
        read(tmp_path / "nothing.mp4")
    assert "raised for operator 'video_reader'" in str(raised.value.__notes__)
    write(tmp_path / "a.mp4", [None] * 3)
    whole = (tmp_path / "a.mp4").read_bytes()
    (tmp_path / "b.mp4").write_bytes(whole[:200] + bytes(len(whole) - 200))
    with pytest.raises(VideoFileError, match=r"b\.mp4"):
        read(tmp_path / "b.mp4")
    with pytest.raises(ValueError, match=r"float64 of shape \(2, 2\); expected uint8"):
        run_operator(VideoWriterOp, inputs=[np.zeros((2, 2))], path=tmp_path / "c.mp4")
    with pytest.raises(ValueError, match=r"expected uint8 of shape \(3/2 height, width\), both even"):
        run_operator(VideoWriterOp, inputs=[picture(0)], path=tmp_path / "c.mp4", in_pixel_format="nv12")
    with pytest.raises(ValueError, match="array_format must be one of rgb24, .*, not 'rgb'"):
        VideoWriter(tmp_path / "c.mp4", array_format="rgb")


def test_an_encoder_that_does_not_work_here_is_replaced_by_software(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.video")
    broken = "h264_v4l2m2m"  # in FFmpeg, but there is no such device
    if broken not in av.codecs_available:
        pytest.skip("this build of FFmpeg has no encoder without a device")
    monkeypatch.setitem(files.ENCODERS, "h264", (broken, "libx264"))
    write(tmp_path / "a.mp4", [None] * 2)
    assert f"{broken} does not work here" in caplog.text
    assert VideoReader(tmp_path / "a.mp4").codec == "h264"
    monkeypatch.setitem(files.ENCODERS, "h264", ("h264_of_nobody", "libx264"))
    write(tmp_path / "a.mp4", [None] * 2)
    assert "has no h264_of_nobody; h264 is encoded in software" in caplog.text


@pytest.mark.parametrize(
    ("accelerates", "told"),
    [
        (True, "a.mp4 is decoded by NVDEC"),
        (False, "decoded in software: NVDEC has no such codec"),
        (None, "NVDEC does not work here (no device); a.mp4 is decoded in software"),
    ],
)
def test_the_log_says_what_decodes(
    accelerates: bool | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.video")

    openings = []

    class Accelerator:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def create(self, codec: Any) -> None:
            if accelerates is None:
                raise RuntimeError("no device")

    def opened(source: str, hwaccel: Any = None) -> Any:
        openings.append(source)
        stream = SimpleNamespace(
            codec_context=SimpleNamespace(is_hwaccel=hwaccel is not None and accelerates)
        )
        return SimpleNamespace(streams=SimpleNamespace(video=[stream]))

    names = SimpleNamespace(hwdevices_available=lambda: ["cuda"], HWAccel=Accelerator)
    library = SimpleNamespace(codec=SimpleNamespace(hwaccel=names), open=opened, Codec=lambda *_: "h264")
    assert files.open_input(library, "a.mp4", hardware=True).streams.video
    assert told in caplog.text
    assert openings == ["a.mp4"]  # a server lets a client in once


# Streams.


def batch(first: int, count: int) -> list[tuple[int, list[bytes]]]:
    return encode((40 * number, picture(20 * (first + number))) for number in range(count))


def test_a_stream_arrives_with_the_distances_of_its_frames_and_its_end_is_the_end() -> None:
    with RtspServer(batch(1, 4)) as server:
        messages = read(server.url, options=OPTIONS)
    assert levels(messages) == [1, 2, 3, 4]
    times = [message.acq_timestamp or 0 for message in messages]
    assert times == sorted(times)
    assert all(time <= message.at for time, message in zip(times, messages, strict=True))


def test_a_stream_that_goes_away_is_opened_again_by_the_clock_of_the_run(
    scheduler: MakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """The second client is turned away, and attempts are counted anew once frames have come."""
    seen: list[Any] = []

    def compose(app: App) -> None:
        settings = {"options": OPTIONS, "reconnect": 2, "reconnect_delay": "1h"}
        reader = _noting(seen)(app, name="video_reader", path=server.url, **settings)
        app.add_flow(reader, Step(app, inputs=["in"], body=lambda self, op_input, _: op_input.receive("in")))

    with RtspServer(batch(1, 3), [], batch(4, 3), []) as server:
        with pytest.raises(VideoFileError, match=r"operator 'video_reader': rtsp://.*after 2 attempts"):
            run(compose, scheduler)
        assert server.clients == 4
    assert [level for _, level in seen] == [1, 2, 3, 4, 5, 6]
    assert [at // (3600 * SECOND) for at, _ in seen] == [0, 0, 0, 2, 2, 2]
    assert "attempt 2 of 2 to open it again follows in 3600 s" in caplog.text


def _noting(seen: list[Any]) -> type[VideoReaderOp]:
    class Noting(VideoReaderOp):
        def emit_frame(self, frame: Any, op_output: Any, context: Any) -> None:
            seen.append((context.timestamp, *levels([Message(frame.tensors)])))
            super().emit_frame(frame, op_output, context)

    return Noting


def test_a_stream_that_nobody_sends_is_an_error_that_names_it() -> None:
    with RtspServer([]) as server, pytest.raises(VideoFileError, match="'video_reader': rtsp://127.0.0.1"):
        read(server.url, options=OPTIONS)


def test_frames_are_sent_to_a_server_with_their_times() -> None:
    """From another process: PyAV holds the interpreter's lock while it connects."""
    with RtspServer(batch(1, 1)) as server:
        program = f"""
import numpy as np
from headrace.operators import VideoWriterOp
from headrace.testing import Message, run_operator
frames = [Message(np.zeros((48, 64, 3), np.uint8), acq_timestamp={EPOCH} + {MS} * at) for at in (0, 40, 90, 200)]
run_operator(VideoWriterOp, inputs=frames, path={server.url!r})
"""
        done = run_forked("-c", program)
        assert done.returncode == 0, done.stderr
    times = sorted({time - server.received[0][0] for time, _ in server.received})
    assert times == [90 * at for at in (0, 40, 90, 200)]  # RTP counts 90 in a millisecond


def test_a_writer_that_is_started_again_goes_on_in_another_file(tmp_path: Path) -> None:
    messages = [picture(0), picture(20), np.zeros((2, 2, 7), np.uint8), picture(60), picture(80)]
    run_operator(VideoWriterOp, inputs=messages, path=tmp_path / "a.mp4", on_error={"restart": 5})
    assert levels(read(tmp_path / "a.mp4")) == [0, 1]
    assert levels(read(tmp_path / "a-2.mp4")) == [3, 4]
