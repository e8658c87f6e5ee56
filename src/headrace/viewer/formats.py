"""The words of an input specification: kinds of layers, image formats and how colours are encoded.

Each is an enumeration whose values are the names that a configuration file uses, and whose members are spelled as
programs for the Holoscan SDK spell them. A value is the name of its member in small letters, so the long ones are
made of the names alone.
"""

from __future__ import annotations

import enum
from typing import Any, TypeVar

from headrace.brief import brief

InputType = enum.StrEnum(
    "InputType",
    "UNKNOWN COLOR COLOR_LUT POINTS LINES LINE_STRIP TRIANGLES CROSSES RECTANGLES OVALS TEXT "
    "DEPTH_MAP DEPTH_MAP_COLOR POINTS_3D LINES_3D LINE_STRIP_3D TRIANGLES_3D",
)
InputType.__doc__ = "The kinds of layers that a tensor is drawn as."


ImageFormat = enum.StrEnum(
    "ImageFormat",
    "AUTO_DETECT R8_UINT R8_SINT R8_UNORM R8_SNORM R8_SRGB R16_UINT R16_SINT R16_UNORM R16_SNORM "
    "R16_SFLOAT R32_UINT R32_SINT R32_SFLOAT R8G8B8_UNORM R8G8B8_SNORM R8G8B8_SRGB R8G8B8A8_UNORM "
    "R8G8B8A8_SNORM R8G8B8A8_SRGB R16G16B16_UNORM R16G16B16_SNORM R16G16B16_SFLOAT R32G32B32_SFLOAT "
    "R16G16B16A16_UNORM R16G16B16A16_SNORM R16G16B16A16_SFLOAT R32G32B32A32_SFLOAT "
    "D16_UNORM X8_D24_UNORM D32_SFLOAT A2B10G10R10_UNORM_PACK32 A2R10G10B10_UNORM_PACK32 "
    "B8G8R8A8_UNORM B8G8R8A8_SRGB A8B8G8R8_UNORM_PACK32 A8B8G8R8_SRGB_PACK32 "
    "Y8U8Y8V8_422_UNORM U8Y8V8Y8_422_UNORM Y8_U8V8_2PLANE_420_UNORM Y8_U8V8_2PLANE_422_UNORM "
    "Y8_U8_V8_3PLANE_420_UNORM Y8_U8_V8_3PLANE_422_UNORM Y16_U16V16_2PLANE_420_UNORM "
    "Y16_U16V16_2PLANE_422_UNORM Y16_U16_V16_3PLANE_420_UNORM Y16_U16_V16_3PLANE_422_UNORM",
)
ImageFormat.__doc__ = """How the elements of an image are laid out: components, bits and number format.

``unorm`` is an unsigned fraction, ``snorm`` a signed one, ``uint`` and ``sint`` are integers that are drawn
like fractions, ``sfloat`` is a float, and ``srgb`` an unsigned fraction with the sRGB curve.
"""


class YuvModelConversion(enum.StrEnum):
    """The matrix that turns YUV into RGB."""

    YUV_601 = "yuv_601"
    YUV_709 = "yuv_709"
    YUV_2020 = "yuv_2020"


class YuvRange(enum.StrEnum):
    """Whether YUV uses all values, or those of television (16 to 235, and 16 to 240 for chroma)."""

    ITU_FULL = "itu_full"
    ITU_NARROW = "itu_narrow"


class ChromaLocation(enum.StrEnum):
    """Where a chroma sample lies: at the even luma sample, or in the middle between two."""

    COSITED_EVEN = "cosited_even"
    MIDPOINT = "midpoint"


class DepthMapRenderMode(enum.StrEnum):
    """The shapes that a depth map is drawn with."""

    POINTS = "points"
    LINES = "lines"
    TRIANGLES = "triangles"


class ColorSpace(enum.StrEnum):
    """How the picture is to be shown. A page shows sRGB; the spaces of HDR displays are refused."""

    SRGB_NONLINEAR = "srgb_nonlinear"
    EXTENDED_SRGB_LINEAR = "extended_srgb_linear"
    BT2020_LINEAR = "bt2020_linear"
    HDR10_ST2084 = "hdr10_st2084"
    PASS_THROUGH = "pass_through"
    BT709_LINEAR = "bt709_linear"
    AUTO = "auto"


_Member = TypeVar("_Member", bound=enum.Enum)


def member(kind: type[_Member], value: Any, what: str) -> _Member:
    """Return the member of an enumeration that a name or a member stands for, or raise ValueError."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        try:
            return kind(value.lower())
        except ValueError:
            pass
    raise ValueError(
        f"{what} must be one of {', '.join(str(one.value) for one in kind)}, or a {kind.__name__}; "
        f"not {brief(value)}"
    )
