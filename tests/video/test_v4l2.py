"""Cameras of Linux: the structures of the kernel, and what a camera offers, refuses and sends."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.video import CameraError, V4L2Camera, VideoDevice
from headrace.video import v4l2_ioctl as v4l2
from headrace.video.v4l2_camera import JpegDecoder
from tests.video.v4l2_driver import FakeDriver, yuyv

SIZES = {
    "v4l2_capability": 104,
    "v4l2_fmtdesc": 64,
    "v4l2_format": 208,
    "v4l2_requestbuffers": 20,
    "v4l2_buffer": 88,
    "v4l2_streamparm": 204,
    "v4l2_control": 8,
    "v4l2_queryctrl": 68,
}
REQUESTS = {
    "VIDIOC_QUERYCAP": 0x80685600,
    "VIDIOC_ENUM_FMT": 0xC0405602,
    "VIDIOC_G_FMT": 0xC0D05604,
    "VIDIOC_S_FMT": 0xC0D05605,
    "VIDIOC_REQBUFS": 0xC0145608,
    "VIDIOC_QUERYBUF": 0xC0585609,
    "VIDIOC_QBUF": 0xC058560F,
    "VIDIOC_DQBUF": 0xC0585611,
    "VIDIOC_STREAMON": 0x40045612,
    "VIDIOC_STREAMOFF": 0x40045613,
    "VIDIOC_G_PARM": 0xC0CC5615,
    "VIDIOC_S_PARM": 0xC0CC5616,
    "VIDIOC_S_CTRL": 0xC008561C,
    "VIDIOC_QUERYCTRL": 0xC0445624,
}


@pytest.mark.parametrize("name", SIZES)
def test_a_structure_has_the_size_of_the_kernels(name: str) -> None:
    assert ctypes.sizeof(getattr(v4l2, name)) == SIZES[name]


def test_the_requests_have_the_numbers_of_the_kernel() -> None:
    assert v4l2.REQUESTS == REQUESTS


def test_the_offsets_are_those_of_the_compiler(tmp_path: Path) -> None:
    """Every field of every structure, as the C compiler lays out the header of this machine."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not Path("/usr/include/linux/videodev2.h").exists():
        pytest.skip("needs a C compiler and linux/videodev2.h")
    fields = [(name, field) for name in SIZES for field, _ in getattr(v4l2, name)._fields_]
    lines = "\n".join(f'printf("%zu\\n", offsetof(struct {name}, {field}));' for name, field in fields)
    source = tmp_path / "offsets.c"
    source.write_text(
        f"#include <linux/videodev2.h>\n#include <stddef.h>\n#include <stdio.h>\nint main() {{ {lines} }}\n"
    )
    built = subprocess.run([compiler, source, "-o", tmp_path / "offsets"], capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"the header of this machine is another: {built.stderr.splitlines()[0]}")
    printed = subprocess.run(
        [tmp_path / "offsets"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [int(one) for one in printed] == [
        getattr(getattr(v4l2, name), field).offset for name, field in fields
    ]


# Motion JPEG.


def jpeg(colour: tuple[int, int, int], width: int = 64, height: int = 48) -> bytes:
    import io

    pytest.importorskip("av")  # decodes it
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.new("RGB", (width, height), colour).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def test_jpeg_is_decoded() -> None:
    data = jpeg((200, 40, 90))
    decode = JpegDecoder()
    picture = decode(data)
    assert picture is not None
    assert picture.shape == (48, 64, 4)
    np.testing.assert_allclose(picture.mean((0, 1)), [200, 40, 90, 255], atol=4)
    assert decode(b"no picture") is None
    assert decode(data) is not None  # and goes on


# What a camera offers.


class Camera:
    """A camera on a driver for tests."""

    def __init__(self, **settings: Any) -> None:
        self.driver = type("Driver", (FakeDriver,), settings)()
        self.camera = V4L2Camera("/dev/video9", lambda path: self.driver)


def test_a_camera_lists_what_it_offers() -> None:
    camera = Camera().camera
    assert camera.card == "Test camera"
    assert camera.formats() == {"YUYV": "Format YUYV", "MJPG": "Format MJPG"}


def test_without_wishes_the_devices_own_size_is_taken() -> None:
    chosen = Camera().camera.configure()
    assert (chosen.pixel_format, chosen.width, chosen.height, chosen.bytes_per_line) == ("YUYV", 64, 48, 128)


@pytest.mark.parametrize(
    ("wish", "format_"),
    [
        ({"width": 32, "height": 16}, "YUYV"),
        ({"pixel_format": "MJPG"}, "MJPG"),
        ({"pixel_format": "MJPEG"}, "MJPG"),
        ({"frame_rate": 15.0}, "YUYV"),
    ],
)
def test_a_wish_is_fulfilled(wish: dict[str, Any], format_: str) -> None:
    made = Camera()
    assert made.camera.configure(**wish).pixel_format == format_
    if "frame_rate" in wish:
        assert made.driver.interval == (1, 15)


def test_auto_takes_the_format_that_has_the_size() -> None:
    formats = {"YUYV": ((32, 16),), "MJPG": ((32, 16), (64, 48))}
    assert Camera(formats=formats).camera.configure(64, 48).pixel_format == "MJPG"
    assert Camera(formats=formats).camera.configure(32, 16).pixel_format == "YUYV"


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        (
            {"pixel_format": "NV12"},
            r"not offer the pixel format 'NV12'; it offers YUYV \(Format YUYV\), MJPG",
        ),
        (
            {"width": 640, "height": 480},
            "not offer 640x480; asked for it, it chose 64x48 in YUYV, 64x48 in MJPG",
        ),
        ({"width": 64}, "give both width and height, or 0 for both, not 64 by 0"),
        (
            {"frame_rate": 60.0},
            "not offer 64x48 at 60 frames per second; asked for it, it chose 30 frames per second in YUYV, 30",
        ),
    ],
)
def test_what_is_not_offered_is_refused_with_what_the_camera_chose(wish: dict[str, Any], text: str) -> None:
    with pytest.raises(CameraError, match=f"/dev/video9.*{text}"):
        Camera().camera.configure(**wish)


@pytest.mark.parametrize(
    ("capabilities", "text"),
    [
        (v4l2.CAP_STREAMING, "no capture node"),
        (v4l2.CAP_VIDEO_CAPTURE_MPLANE, "several planes"),
        (v4l2.CAP_VIDEO_CAPTURE, "no streaming i/o"),
    ],
)
def test_a_node_that_cannot_capture_is_refused_and_closed(capabilities: int, text: str) -> None:
    driver = type("Driver", (FakeDriver,), {"capabilities": capabilities})()
    with pytest.raises(CameraError, match=text):
        V4L2Camera("/dev/video9", lambda path: driver)
    assert driver.is_closed


def test_exposure_and_gain_are_set_or_left_to_the_camera() -> None:
    made = Camera()
    made.camera.set_exposure(100)
    made.camera.set_gain(7)
    made.camera.set_exposure(None)
    made.camera.set_gain(None)
    assert made.driver.set_controls == [
        (v4l2.CID_EXPOSURE_AUTO, v4l2.EXPOSURE_MANUAL),
        (v4l2.CID_EXPOSURE_ABSOLUTE, 100),
        (v4l2.CID_AUTOGAIN, 0),
        (v4l2.CID_GAIN, 7),
        (v4l2.CID_EXPOSURE_AUTO, v4l2.EXPOSURE_APERTURE_PRIORITY),
        (v4l2.CID_AUTOGAIN, 1),
    ]
    with pytest.raises(CameraError, match="exposure_time must be 1 to 500, not 0"):
        made.camera.set_exposure(0)


def test_a_camera_without_controls_says_so_if_one_is_needed() -> None:
    camera = Camera(controls={}).camera
    camera.set_exposure(None)
    camera.set_gain(None)
    with pytest.raises(CameraError, match="no control for gain"):
        camera.set_gain(3)


# Frames.


def test_a_buffer_goes_back_when_the_last_array_over_it_is_gone() -> None:
    made = Camera()
    made.camera.start(3)
    assert made.driver.send(yuyv(5))
    frame = made.camera.wait()
    assert frame is not None
    part = frame.data().reshape(48, 64, 2)[:4]
    del frame
    assert len(made.driver.queued) == 2
    assert (part[..., 0] == 5).all()
    del part
    assert len(made.driver.queued) == 3
    made.camera.close()


def test_a_frame_stays_readable_after_the_camera_is_closed() -> None:
    made = Camera()
    made.camera.start(2)
    made.driver.send(yuyv(9))
    frame = made.camera.wait()
    assert frame is not None
    made.camera.close()
    made.camera.close()
    assert frame.data()[0] == 9
    del frame  # gives nothing back to a driver that is closed
    assert made.driver.is_closed


def test_a_damaged_frame_is_left_out_and_its_number_is_missing() -> None:
    made = Camera()
    made.camera.start(3)
    made.driver.send(yuyv(1), flags=v4l2.BUF_FLAG_ERROR)
    made.driver.send(yuyv(2))
    frame = made.camera.wait()
    assert frame is not None
    assert (frame.sequence, frame.data()[0]) == (1, 2)
    assert len(made.driver.queued) == 2
    made.camera.close()


def test_too_few_buffers_are_an_error() -> None:
    with pytest.raises(CameraError, match="gives 1 buffers of 4 asked for; 2 are needed"):
        Camera(max_buffers=1).camera.start(4)


# The device file.


def test_a_missing_camera_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(CameraError, match=r"there is no camera /dev/video4711; this machine has "):
        VideoDevice("/dev/video4711")


def test_a_file_that_is_no_device_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "video0").write_text("")
    with pytest.raises(CameraError, match="is not a device file"):
        VideoDevice(str(tmp_path / "video0"))


def test_a_device_that_is_no_camera_is_an_error() -> None:
    with pytest.raises(CameraError, match="/dev/null is not a video device"):
        V4L2Camera("/dev/null")
