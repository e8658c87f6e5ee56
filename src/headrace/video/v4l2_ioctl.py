"""Video4Linux: the structures and requests of ``linux/videodev2.h`` that a capture needs, under their own names.

These are ours, since no library fits. linuxpy (0.25) has formats, controls and buffers. But its licence is the
GPL 3, whose terms would reach every program with a camera. It also takes 0.3 s to import, copies each frame,
and leaves out pixel formats that it does not know. PyAV's input of V4L2 and OpenCV's `VideoCapture` copy each
frame, too. They list neither formats nor the ranges of controls, and do not number the frames, so that dropped
ones cannot be counted.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int32, c_int64, c_uint8, c_uint32, c_ulong
from typing import Any

# Capabilities, buffers, flags.
CAP_VIDEO_CAPTURE = 0x00000001
CAP_VIDEO_CAPTURE_MPLANE = 0x00001000
CAP_STREAMING = 0x04000000
CAP_DEVICE_CAPS = 0x80000000
CAP_TIMEPERFRAME = 0x1000
BUF_TYPE_VIDEO_CAPTURE = 1
MEMORY_MMAP = 1
FIELD_NONE = 1
BUF_FLAG_ERROR = 0x40
BUF_FLAG_TIMESTAMP_MASK = 0xE000
BUF_FLAG_TIMESTAMP_MONOTONIC = 0x2000
CTRL_FLAG_DISABLED = 0x1

# Controls.
CID_AUTOGAIN = 0x00980912
CID_GAIN = 0x00980913
CID_EXPOSURE_AUTO = 0x009A0901
CID_EXPOSURE_ABSOLUTE = 0x009A0902
EXPOSURE_AUTO, EXPOSURE_MANUAL, _, EXPOSURE_APERTURE_PRIORITY = range(4)

# Colours.
COLORSPACE_REC709 = 3
_ENCODINGS = ("DEFAULT", "601", "709", "XV601", "XV709", "SYCC", "BT2020", "BT2020_CONST_LUM", "SMPTE240M")
YCBCR_ENCODINGS = {number: f"V4L2_YCBCR_ENC_{name}" for number, name in enumerate(_ENCODINGS)}
_RANGES = ("DEFAULT", "FULL_RANGE", "LIM_RANGE")
QUANTIZATIONS = {number: f"V4L2_QUANTIZATION_{name}" for number, name in enumerate(_RANGES)}


def _structure(name: str, *fields: Any, kind: Any = ctypes.Structure) -> Any:
    """Return a structure; a text in place of a field names fields of 32 bits."""
    listed: list[Any] = []
    for field in fields:
        listed += [(word, c_uint32) for word in field.split()] if isinstance(field, str) else [field]
    return type(name, (kind,), {"_fields_": listed})


def _union(**members: Any) -> Any:
    """Return a union."""
    return _structure("union", *members.items(), kind=ctypes.Union)


_fract = _structure("v4l2_fract", "numerator denominator")
_pix_format = _structure(
    "v4l2_pix_format",
    "width height pixelformat field bytesperline sizeimage colorspace priv flags ycbcr_enc quantization xfer_func",
)
_captureparm = _structure(
    "v4l2_captureparm",
    "capability capturemode",
    ("timeperframe", _fract),
    "extendedmode readbuffers",
    ("reserved", c_uint32 * 4),
)
_timeval = _structure("timeval", ("tv_sec", c_int64), ("tv_usec", c_int64))
_timecode = _structure("v4l2_timecode", "type flags", ("fields", c_uint8 * 8))

v4l2_capability = _structure(
    "v4l2_capability",
    ("driver", c_char * 16),
    ("card", c_char * 32),
    ("bus_info", c_char * 32),
    "version capabilities device_caps",
    ("reserved", c_uint32 * 3),
)
v4l2_fmtdesc = _structure(
    "v4l2_fmtdesc",
    "index type flags",
    ("description", c_char * 32),
    "pixelformat mbus_code",
    ("reserved", c_uint32 * 3),
)
# The alignment of 8 comes from members with pointers that a capture does not use.
v4l2_format = _structure(
    "v4l2_format", "type", ("fmt", _union(pix=_pix_format, raw_data=c_uint8 * 200, alignment=c_int64))
)
v4l2_streamparm = _structure(
    "v4l2_streamparm", "type", ("parm", _union(capture=_captureparm, raw_data=c_uint8 * 200))
)
v4l2_requestbuffers = _structure(
    "v4l2_requestbuffers", "count type memory capabilities", ("flags", c_uint8), ("reserved", c_uint8 * 3)
)
v4l2_buffer = _structure(
    "v4l2_buffer",
    "index type bytesused flags field",
    ("timestamp", _timeval),
    ("timecode", _timecode),
    "sequence memory",
    ("m", _union(offset=c_uint32, userptr=c_ulong, fd=c_int32)),
    "length reserved2",
    ("request_fd", c_int32),
)
v4l2_control = _structure("v4l2_control", "id", ("value", c_int32))
v4l2_queryctrl = _structure(
    "v4l2_queryctrl",
    "id type",
    ("name", c_char * 32),
    *((name, c_int32) for name in ("minimum", "maximum", "step", "default_value")),
    "flags",
    ("reserved", c_uint32 * 2),
)


def _request(direction: int, number: int, argument: Any) -> int:
    """Return the number of a request, as the macros _IOR (2), _IOW (1) and _IOWR (3) of the kernel make it."""
    return direction << 30 | ctypes.sizeof(argument) << 16 | ord("V") << 8 | number


VIDIOC_QUERYCAP = _request(2, 0, v4l2_capability)
VIDIOC_ENUM_FMT = _request(3, 2, v4l2_fmtdesc)
VIDIOC_G_FMT = _request(3, 4, v4l2_format)
VIDIOC_S_FMT = _request(3, 5, v4l2_format)
VIDIOC_REQBUFS = _request(3, 8, v4l2_requestbuffers)
VIDIOC_QUERYBUF = _request(3, 9, v4l2_buffer)
VIDIOC_QBUF = _request(3, 15, v4l2_buffer)
VIDIOC_DQBUF = _request(3, 17, v4l2_buffer)
VIDIOC_STREAMON = _request(1, 18, c_int32)
VIDIOC_STREAMOFF = _request(1, 19, c_int32)
VIDIOC_G_PARM = _request(3, 21, v4l2_streamparm)
VIDIOC_S_PARM = _request(3, 22, v4l2_streamparm)
VIDIOC_S_CTRL = _request(3, 28, v4l2_control)
VIDIOC_QUERYCTRL = _request(3, 36, v4l2_queryctrl)

REQUESTS = {name: value for name, value in globals().items() if name.startswith("VIDIOC_")}
"""Every request by name."""
