"""Video4Linux: the structures and requests of ``linux/videodev2.h`` that a capture needs, under their own names."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int32, c_int64, c_uint8, c_uint32, c_ulong

__all__ = [
    "REQUESTS",
    "v4l2_buffer",
    "v4l2_capability",
    "v4l2_control",
    "v4l2_fmtdesc",
    "v4l2_format",
    "v4l2_frmivalenum",
    "v4l2_frmsizeenum",
    "v4l2_queryctrl",
    "v4l2_requestbuffers",
    "v4l2_streamparm",
]

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
FRMSIZE_TYPE_DISCRETE = 1
CTRL_FLAG_DISABLED = 0x1

# Controls.
CID_AUTOGAIN = 0x00980912
CID_GAIN = 0x00980913
CID_EXPOSURE_AUTO = 0x009A0901
CID_EXPOSURE_ABSOLUTE = 0x009A0902
EXPOSURE_AUTO = 0
EXPOSURE_MANUAL = 1
EXPOSURE_APERTURE_PRIORITY = 3

# Colours.
COLORSPACE_REC709 = 3
YCBCR_ENCODINGS = {
    0: "V4L2_YCBCR_ENC_DEFAULT",
    1: "V4L2_YCBCR_ENC_601",
    2: "V4L2_YCBCR_ENC_709",
    3: "V4L2_YCBCR_ENC_XV601",
    4: "V4L2_YCBCR_ENC_XV709",
    6: "V4L2_YCBCR_ENC_BT2020",
    7: "V4L2_YCBCR_ENC_BT2020_CONST_LUM",
    8: "V4L2_YCBCR_ENC_SMPTE240M",
}
QUANTIZATIONS = {
    0: "V4L2_QUANTIZATION_DEFAULT",
    1: "V4L2_QUANTIZATION_FULL_RANGE",
    2: "V4L2_QUANTIZATION_LIM_RANGE",
}


class v4l2_capability(ctypes.Structure):
    """What a device is and can do."""

    _fields_ = (
        ("driver", c_char * 16),
        ("card", c_char * 32),
        ("bus_info", c_char * 32),
        ("version", c_uint32),
        ("capabilities", c_uint32),
        ("device_caps", c_uint32),
        ("reserved", c_uint32 * 3),
    )


class v4l2_fmtdesc(ctypes.Structure):
    """A pixel format that a device offers."""

    _fields_ = (
        ("index", c_uint32),
        ("type", c_uint32),
        ("flags", c_uint32),
        ("description", c_char * 32),
        ("pixelformat", c_uint32),
        ("mbus_code", c_uint32),
        ("reserved", c_uint32 * 3),
    )


class v4l2_pix_format(ctypes.Structure):
    """The layout of a picture."""

    _fields_ = tuple(
        (name, c_uint32)
        for name in (
            "width", "height", "pixelformat", "field", "bytesperline", "sizeimage", "colorspace", "priv", "flags",
            "ycbcr_enc", "quantization", "xfer_func",
        )
    )  # fmt: skip


class _format_union(ctypes.Union):
    # The alignment of 8 comes from members with pointers that a capture does not use.
    _fields_ = (("pix", v4l2_pix_format), ("raw_data", c_uint8 * 200), ("_alignment", c_int64))


class v4l2_format(ctypes.Structure):
    """The format of a device."""

    _fields_ = (("type", c_uint32), ("fmt", _format_union))


class v4l2_fract(ctypes.Structure):
    """A fraction."""

    _fields_ = (("numerator", c_uint32), ("denominator", c_uint32))


class _frmsize_discrete(ctypes.Structure):
    _fields_ = (("width", c_uint32), ("height", c_uint32))


class _frmsize_stepwise(ctypes.Structure):
    _fields_ = tuple(
        (name, c_uint32)
        for name in ("min_width", "max_width", "step_width", "min_height", "max_height", "step_height")
    )


class _frmsize_union(ctypes.Union):
    _fields_ = (("discrete", _frmsize_discrete), ("stepwise", _frmsize_stepwise))


class v4l2_frmsizeenum(ctypes.Structure):
    """A size that a device offers."""

    _fields_ = (
        ("index", c_uint32),
        ("pixel_format", c_uint32),
        ("type", c_uint32),
        ("size", _frmsize_union),
        ("reserved", c_uint32 * 2),
    )


class _frmival_stepwise(ctypes.Structure):
    _fields_ = (("min", v4l2_fract), ("max", v4l2_fract), ("step", v4l2_fract))


class _frmival_union(ctypes.Union):
    _fields_ = (("discrete", v4l2_fract), ("stepwise", _frmival_stepwise))


class v4l2_frmivalenum(ctypes.Structure):
    """A time between frames that a device offers."""

    _fields_ = (
        ("index", c_uint32),
        ("pixel_format", c_uint32),
        ("width", c_uint32),
        ("height", c_uint32),
        ("type", c_uint32),
        ("interval", _frmival_union),
        ("reserved", c_uint32 * 2),
    )


class v4l2_captureparm(ctypes.Structure):
    """The settings of a capture."""

    _fields_ = (
        ("capability", c_uint32),
        ("capturemode", c_uint32),
        ("timeperframe", v4l2_fract),
        ("extendedmode", c_uint32),
        ("readbuffers", c_uint32),
        ("reserved", c_uint32 * 4),
    )


class _parm_union(ctypes.Union):
    _fields_ = (("capture", v4l2_captureparm), ("raw_data", c_uint8 * 200))


class v4l2_streamparm(ctypes.Structure):
    """The settings of a stream."""

    _fields_ = (("type", c_uint32), ("parm", _parm_union))


class v4l2_requestbuffers(ctypes.Structure):
    """The number of buffers."""

    _fields_ = (
        ("count", c_uint32),
        ("type", c_uint32),
        ("memory", c_uint32),
        ("capabilities", c_uint32),
        ("flags", c_uint8),
        ("reserved", c_uint8 * 3),
    )


class _timeval(ctypes.Structure):
    _fields_ = (("tv_sec", c_int64), ("tv_usec", c_int64))


class _timecode(ctypes.Structure):
    _fields_ = (("type", c_uint32), ("flags", c_uint32), ("fields", c_uint8 * 8))


class _buffer_union(ctypes.Union):
    _fields_ = (("offset", c_uint32), ("userptr", c_ulong), ("fd", c_int32))


class v4l2_buffer(ctypes.Structure):
    """A buffer of a device."""

    _fields_ = (
        ("index", c_uint32),
        ("type", c_uint32),
        ("bytesused", c_uint32),
        ("flags", c_uint32),
        ("field", c_uint32),
        ("timestamp", _timeval),
        ("timecode", _timecode),
        ("sequence", c_uint32),
        ("memory", c_uint32),
        ("m", _buffer_union),
        ("length", c_uint32),
        ("reserved2", c_uint32),
        ("request_fd", c_int32),
    )


class v4l2_control(ctypes.Structure):
    """The value of a control."""

    _fields_ = (("id", c_uint32), ("value", c_int32))


class v4l2_queryctrl(ctypes.Structure):
    """The range of a control."""

    _fields_ = (
        ("id", c_uint32),
        ("type", c_uint32),
        ("name", c_char * 32),
        ("minimum", c_int32),
        ("maximum", c_int32),
        ("step", c_int32),
        ("default_value", c_int32),
        ("flags", c_uint32),
        ("reserved", c_uint32 * 2),
    )


def _request(direction: int, number: int, argument: type[ctypes.Structure] | type[c_int32]) -> int:
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
VIDIOC_ENUM_FRAMESIZES = _request(3, 74, v4l2_frmsizeenum)
VIDIOC_ENUM_FRAMEINTERVALS = _request(3, 75, v4l2_frmivalenum)

REQUESTS = {name: value for name, value in globals().items() if name.startswith("VIDIOC_")}
"""Every request by name."""
