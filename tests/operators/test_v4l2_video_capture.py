"""Capturing from a camera: its frames reach the pipeline, no worker waits for it, and it is closed in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace.core import ParameterError
from headrace.operators import V4L2VideoCaptureOp
from headrace.resources import RealtimeClock
from headrace.testing import run_operator
from headrace.video import CameraError
from tests.harness import App, MakeScheduler, Step, greedy, multi_thread, wait_until
from tests.video.test_v4l2 import jpeg
from tests.video.v4l2_driver import FakeDriver, yuyv


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    # The thread of run_async ends right after its future.
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads")


class Opened(list[FakeDriver]):
    """The drivers that were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.has_started = threading.Event()

    def wait_for_start(self, future: Any) -> None:
        """Wait until the first camera captures, or the run has ended."""
        future.add_done_callback(lambda _: self.has_started.set())
        self.has_started.wait()


@pytest.fixture
def cameras(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Opened]:
    """Put a driver for tests behind every device file."""

    def put(**settings: Any) -> Opened:
        opened = Opened()
        settings = {"on_start": lambda self: opened.has_started.set(), **settings}
        kind = type("Driver", (FakeDriver,), settings)

        def open_device(path: str) -> FakeDriver:
            opened.append(kind(path))
            return opened[-1]

        monkeypatch.setattr(V4L2VideoCaptureOp, "open_device", staticmethod(open_device))
        return opened

    return put


def capture(
    opened: Opened,
    frames: list[Any],
    scheduler: MakeScheduler = greedy,
    before: bytes = b"",
    **parameters: Any,
) -> tuple[list[Any], Any]:
    """Send frames to a camera, each when the one before has arrived, and return what arrived and the operator.

    What is in `before` is sent first, and is not expected to arrive.
    """
    taken: list[Any] = []
    arrived = threading.Semaphore(0)

    def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        message = op_input.receive("in")
        taken.append((np.array(message[""]), dict(self.metadata), context.acq_timestamp, context.timestamp))
        arrived.release()
        if len(taken) == len(frames):
            self.fragment.stop_execution()

    def compose(app: Any) -> None:
        app.camera = V4L2VideoCaptureOp(app, **parameters)
        app.add_flow(app.camera, Step(app, inputs=["in"], body=take))

    class RealTime(App):
        def compose(self) -> None:
            self._settings = {"clock": RealtimeClock(self)}
            super().compose()

    app: Any = RealTime(compose, scheduler)
    future = app.run_async()
    opened.wait_for_start(future)
    future.add_done_callback(lambda _: arrived.release())
    if before:
        opened[0].send(before)
    for frame in frames:
        if future.done():
            break
        opened[0].send(frame)
        arrived.acquire()
    future.result()
    return taken, app.camera


@pytest.mark.parametrize("scheduler", [greedy, multi_thread])
def test_yuyv_arrives_as_rgba_with_its_facts(cameras: Any, scheduler: MakeScheduler) -> None:
    opened = cameras()
    taken, camera = capture(opened, [yuyv(16), yuyv(126), yuyv(235)], scheduler)
    assert [frame.shape for frame, *_ in taken] == [(48, 64, 4)] * 3
    assert [frame[0, 0].tolist() for frame, *_ in taken] == [
        [0, 0, 0, 255],
        [128, 128, 128, 255],
        [255, 255, 255, 255],
    ]
    assert taken[0][1] == {
        "V4L2_pixel_format": "YUYV",
        "V4L2_ycbcr_encoding": "V4L2_YCBCR_ENC_DEFAULT",
        "V4L2_quantization": "V4L2_QUANTIZATION_DEFAULT",
    }
    assert opened[0].is_closed
    assert camera.frames_dropped == 0


def test_the_time_of_a_frame_is_that_of_the_driver_by_the_runs_clock(cameras: Any) -> None:
    """It is between the moments at which the driver and the operator behind it looked at the clock."""
    sent: list[int] = []
    opened = cameras(dqbuf=lambda self, it: (sent.append(time.monotonic_ns()), FakeDriver.dqbuf(self, it)))
    taken, camera = capture(opened, [yuyv(0)])
    ((_, _, acquired, now),) = taken
    clock = camera.fragment.scheduler().clock
    since = time.monotonic_ns() - sent[-1]  # longer ago by the run's clock than this is not possible
    assert clock.timestamp() - since - 1_000_000 <= acquired <= now


@pytest.mark.parametrize(("encoding", "red", "blue"), [(1, 0.299, 0.114), (2, 0.2126, 0.0722)])
@pytest.mark.parametrize("is_full", [False, True])
def test_yuyv_is_converted_by_the_standard_and_the_range_that_the_camera_names(
    cameras: Any, encoding: int, red: float, blue: float, is_full: bool
) -> None:
    picture = np.random.default_rng(5).integers(16, 256, (48, 64, 2), np.uint8)
    taken, _ = capture(cameras(encoding=encoding, quantization=1 if is_full else 2), [picture])
    y = picture[..., 0].astype(float)
    u, v = (np.repeat(picture[:, first::2, 1], 2, axis=1) - 128.0 for first in (0, 1))
    if not is_full:
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    r, b = y + 2 * (1 - red) * v, y + 2 * (1 - blue) * u
    g = (y - red * r - blue * b) / (1 - red - blue)
    expected = np.clip(np.round(np.stack([r, g, b], -1)), 0, 255)
    assert np.abs(taken[0][0][..., :3] - expected).max() <= 1
    assert (taken[0][0][..., 3] == 255).all()


def test_rows_with_padding_are_read_right(cameras: Any) -> None:
    padded = np.zeros((48, 64 * 2 + 8), np.uint8)
    padded[:, :128] = yuyv(235).reshape(48, 128)
    taken, _ = capture(cameras(line_padding=8), [padded])
    assert (taken[0][0] == 255).all()


def test_rgb_arrives_as_rgba(cameras: Any) -> None:
    rgb = np.random.default_rng(1).integers(0, 256, (48, 64, 3), np.uint8)
    taken, _ = capture(cameras(formats={"RGB3": ((64, 48),)}), [rgb])
    np.testing.assert_array_equal(taken[0][0][..., :3], rgb)


def test_mjpeg_arrives_as_rgba(cameras: Any) -> None:
    taken, _ = capture(cameras(), [jpeg((200, 40, 90))], pixel_format="MJPG")
    np.testing.assert_allclose(taken[0][0].mean((0, 1)), [200, 40, 90, 255], atol=4)


def test_another_format_arrives_as_it_is(cameras: Any) -> None:
    taken, _ = capture(cameras(formats={"GREY": ((64, 48),)}), [bytes(range(256)) * 12])
    frame, facts, *_ = taken[0]
    np.testing.assert_array_equal(frame, np.tile(np.arange(256), 12))
    assert facts["V4L2_pixel_format"] == "GREY"


def test_pass_through_emits_the_bytes_of_the_driver(cameras: Any) -> None:
    taken, _ = capture(cameras(), [yuyv(5), yuyv(6)], pass_through=True)
    np.testing.assert_array_equal([frame for frame, *_ in taken], [yuyv(5), yuyv(6)])


def test_a_damaged_picture_is_counted_and_left_out(cameras: Any) -> None:
    opened = cameras()
    taken, camera = capture(
        opened, [jpeg((1, 2, 3)), jpeg((4, 5, 6))], before=b"no picture", pixel_format="MJPG"
    )
    assert len(taken) == 2
    assert camera.frames_dropped == 1


def test_a_frame_that_is_too_short_is_counted_and_left_out(cameras: Any) -> None:
    taken, camera = capture(cameras(), [yuyv(16), yuyv(235)], before=b"short")
    assert [int(frame.max()) for frame, *_ in taken] == [255, 255]
    assert camera.frames_dropped == 1


def test_frames_that_a_slow_pipeline_misses_are_counted(cameras: Any) -> None:
    opened = cameras()
    taken: list[int] = []
    sent: list[bool] = []
    arrived = threading.Semaphore(0)

    def slow(self: Any, op_input: Any, op_output: Any) -> None:
        taken.append(int(np.asarray(op_input.receive("in")[""])[0, 0, 0]))
        if len(taken) == 1:  # many more than there are buffers
            sent.extend(opened[0].send(yuyv(17 + number)) for number in range(20))
        if taken[-1] > 80:
            self.fragment.stop_execution()
        arrived.release()

    def compose(app: Any) -> None:
        app.camera = V4L2VideoCaptureOp(app, num_buffers=3)
        app.add_flow(app.camera, Step(app, inputs=["in"], body=slow))

    class RealTime(App):
        def compose(self) -> None:
            self._settings = {"clock": RealtimeClock(self)}
            super().compose()

    app: Any = RealTime(compose, multi_thread)
    future = app.run_async()
    opened.wait_for_start(future)
    opened[0].send(yuyv(16))
    arrived.acquire()
    for _ in range(sum(sent)):
        arrived.acquire()
    opened[0].send(yuyv(100), waits=True)
    future.result()
    assert len(taken) == 2 + sum(sent)
    assert taken == sorted(taken)
    assert app.camera.frames_dropped == 20 - sum(sent) > 10


def test_an_unplugged_camera_ends_the_run_with_an_error(cameras: Any) -> None:
    opened = cameras(wait=lambda self: (self.unplug(), FakeDriver.wait(self)))
    with pytest.raises(CameraError, match=r"/dev/video0 \(Test camera\) was removed while capturing"):
        run_operator(V4L2VideoCaptureOp)
    assert opened[0].is_closed


def test_stopping_the_run_stops_a_camera_that_sends_nothing(cameras: Any) -> None:
    opened = cameras()

    def compose(app: App) -> None:
        app.add_flow(V4L2VideoCaptureOp(app), Step(app, inputs=["in"]))

    app = App(compose, multi_thread)
    future = app.run_async()
    opened.wait_for_start(future)
    app.stop_execution()
    future.result()
    assert opened[0].is_closed
    assert not opened[0].is_on


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        (
            {"width": 640, "height": 480},
            CameraError,
            "does not offer 640x480; asked for it, it chose 64x48 in YUYV",
        ),
        ({"pixel_format": "NV12"}, CameraError, "it offers YUYV"),
        ({"frame_rate": 99.0}, CameraError, "it chose 30 frames per second in YUYV"),
        ({"exposure_time": 10_000}, CameraError, "exposure_time must be 1 to 500"),
        ({"gain": 1000}, CameraError, "gain must be 0 to 100"),
        ({"num_buffers": 1}, ParameterError, "'num_buffers' of .* must be at least 2"),
        ({"frame_rate": -1.0}, ParameterError, "'frame_rate' of .* must be at least 0"),
        ({"gain": "high"}, ParameterError, "'gain' of .* must be an int, not a str"),
        ({"storage_type": "disk"}, ValueError, "storage_type must be one of"),
    ],
)
def test_what_the_camera_does_not_offer_is_an_error_and_it_is_closed(
    cameras: Any, parameters: dict[str, Any], error: type[Exception], text: str
) -> None:
    opened = cameras()
    with pytest.raises(error, match=text):
        run_operator(V4L2VideoCaptureOp, **parameters)
    assert all(driver.is_closed for driver in opened)


def test_without_a_camera_the_error_says_what_there_is() -> None:
    with pytest.raises(CameraError, match="there is no camera /dev/video4711; this machine has"):
        run_operator(V4L2VideoCaptureOp, device="/dev/video4711")
