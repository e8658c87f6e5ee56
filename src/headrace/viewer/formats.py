"""The words of an input specification: kinds of layers, image formats and how colours are encoded.

Each is an enumeration whose values are the names that a configuration file uses, and whose members are spelled as
programs for the Holoscan SDK spell them.
"""

from __future__ import annotations

import enum
from typing import Any, TypeVar


class InputType(enum.StrEnum):
    """The kinds of layers that a tensor is drawn as."""

    UNKNOWN = "unknown"
    COLOR = "color"
    COLOR_LUT = "color_lut"
    POINTS = "points"
    LINES = "lines"
    LINE_STRIP = "line_strip"
    TRIANGLES = "triangles"
    CROSSES = "crosses"
    RECTANGLES = "rectangles"
    OVALS = "ovals"
    TEXT = "text"
    DEPTH_MAP = "depth_map"
    DEPTH_MAP_COLOR = "depth_map_color"
    POINTS_3D = "points_3d"
    LINES_3D = "lines_3d"
    LINE_STRIP_3D = "line_strip_3d"
    TRIANGLES_3D = "triangles_3d"


class ImageFormat(enum.StrEnum):
    """How the elements of an image are laid out: components, bits and number format.

    ``unorm`` is an unsigned fraction, ``snorm`` a signed one, ``uint`` and ``sint`` are integers that are drawn
    like fractions, ``sfloat`` is a float, and ``srgb`` an unsigned fraction with the sRGB curve.
    """

    AUTO_DETECT = "auto_detect"
    R8_UINT = "r8_uint"
    R8_SINT = "r8_sint"
    R8_UNORM = "r8_unorm"
    R8_SNORM = "r8_snorm"
    R8_SRGB = "r8_srgb"
    R16_UINT = "r16_uint"
    R16_SINT = "r16_sint"
    R16_UNORM = "r16_unorm"
    R16_SNORM = "r16_snorm"
    R16_SFLOAT = "r16_sfloat"
    R32_UINT = "r32_uint"
    R32_SINT = "r32_sint"
    R32_SFLOAT = "r32_sfloat"
    R8G8B8_UNORM = "r8g8b8_unorm"
    R8G8B8_SNORM = "r8g8b8_snorm"
    R8G8B8_SRGB = "r8g8b8_srgb"
    R8G8B8A8_UNORM = "r8g8b8a8_unorm"
    R8G8B8A8_SNORM = "r8g8b8a8_snorm"
    R8G8B8A8_SRGB = "r8g8b8a8_srgb"
    R16G16B16_UNORM = "r16g16b16_unorm"
    R16G16B16_SNORM = "r16g16b16_snorm"
    R16G16B16_SFLOAT = "r16g16b16_sfloat"
    R32G32B32_SFLOAT = "r32g32b32_sfloat"
    R16G16B16A16_UNORM = "r16g16b16a16_unorm"
    R16G16B16A16_SNORM = "r16g16b16a16_snorm"
    R16G16B16A16_SFLOAT = "r16g16b16a16_sfloat"
    R32G32B32A32_SFLOAT = "r32g32b32a32_sfloat"
    D16_UNORM = "d16_unorm"
    X8_D24_UNORM = "x8_d24_unorm"
    D32_SFLOAT = "d32_sfloat"
    A2B10G10R10_UNORM_PACK32 = "a2b10g10r10_unorm_pack32"
    A2R10G10B10_UNORM_PACK32 = "a2r10g10b10_unorm_pack32"
    B8G8R8A8_UNORM = "b8g8r8a8_unorm"
    B8G8R8A8_SRGB = "b8g8r8a8_srgb"
    A8B8G8R8_UNORM_PACK32 = "a8b8g8r8_unorm_pack32"
    A8B8G8R8_SRGB_PACK32 = "a8b8g8r8_srgb_pack32"
    Y8U8Y8V8_422_UNORM = "y8u8y8v8_422_unorm"
    U8Y8V8Y8_422_UNORM = "u8y8v8y8_422_unorm"
    Y8_U8V8_2PLANE_420_UNORM = "y8_u8v8_2plane_420_unorm"
    Y8_U8V8_2PLANE_422_UNORM = "y8_u8v8_2plane_422_unorm"
    Y8_U8_V8_3PLANE_420_UNORM = "y8_u8_v8_3plane_420_unorm"
    Y8_U8_V8_3PLANE_422_UNORM = "y8_u8_v8_3plane_422_unorm"
    Y16_U16V16_2PLANE_420_UNORM = "y16_u16v16_2plane_420_unorm"
    Y16_U16V16_2PLANE_422_UNORM = "y16_u16v16_2plane_422_unorm"
    Y16_U16_V16_3PLANE_420_UNORM = "y16_u16_v16_3plane_420_unorm"
    Y16_U16_V16_3PLANE_422_UNORM = "y16_u16_v16_3plane_422_unorm"


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
        f"{what} must be one of {', '.join(str(one.value) for one in kind)}, or a {kind.__name__}; not {value!r}"
    )
