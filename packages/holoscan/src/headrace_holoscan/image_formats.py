"""The SDK's formats of images: what their names say of an array, and how those that headrace lacks become RGB.

headrace draws an image as its dtype and channels say. A format of the SDK is checked against both; packed words,
other orders of the channels and YUV are unpacked here, and the numbers are headrace's again. OpenCV knows YUV only
by BT.601 in limited range and without a place of chroma, so it only enlarges the chroma.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headrace.video import rgb_factors, yuv_planes
from headrace.viewer import ImageFormat as _ImageFormat

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


WORDS: dict[str, Any] = {
    "image_format": ImageFormat.AUTO_DETECT,
    "yuv_model_conversion": YuvModelConversion.YUV_601,
    "yuv_range": YuvRange.ITU_FULL,
    "x_chroma_location": ChromaLocation.COSITED_EVEN,
    "y_chroma_location": ChromaLocation.COSITED_EVEN,
}
"""What a specification says of the format of an image, and the defaults."""


class _Layout(NamedTuple):
    """How an image is laid out.

    Attributes
    ----------
    dtype
        The dtype of its elements.
    channels
        The number of channels; 0 where `kind` says more.
    is_srgb
        Whether the values have the sRGB curve.
    kind
        For packed and YUV images: ``"rgb"`` or ``"bgr"``, from the lowest bits on, or as `yuv_planes` names it.
    blue_first
        Whether blue is the first channel.
    """

    dtype: np.dtype[Any]
    channels: int
    is_srgb: bool = False
    kind: str = ""
    blue_first: bool = False


_KINDS = {"unorm": "u", "uint": "u", "srgb": "u", "snorm": "i", "sint": "i", "sfloat": "f"}
_U1, _U2, _U4 = np.dtype("u1"), np.dtype("u2"), np.dtype("u4")


def _plain() -> dict[ImageFormat, _Layout]:
    """Return the formats whose names say everything, such as ``r8g8b8a8_unorm``."""
    layouts: dict[ImageFormat, _Layout] = {}
    for image_format in ImageFormat:
        found = re.fullmatch(r"((?:[rgba](\d+))+)_([a-z]+)", image_format.value)
        if found is not None:
            components, bits, number = found.groups()
            letters, dtype = re.sub(r"\d", "", components), np.dtype(f"{_KINDS[number]}{int(bits) // 8}")
            layouts[image_format] = _Layout(
                dtype, len(letters), number == "srgb", blue_first=letters.startswith("b")
            )
    return layouts


_LAYOUTS: dict[ImageFormat, _Layout] = {
    **_plain(),
    ImageFormat.A2B10G10R10_UNORM_PACK32: _Layout(_U4, 0, kind="rgb"),
    ImageFormat.A2R10G10B10_UNORM_PACK32: _Layout(_U4, 0, kind="bgr"),
    # The bits of a little-endian word are, byte by byte, those of r8g8b8a8.
    ImageFormat.A8B8G8R8_UNORM_PACK32: _Layout(_U1, 4),
    ImageFormat.A8B8G8R8_SRGB_PACK32: _Layout(_U1, 4, True),
    ImageFormat.Y8U8Y8V8_422_UNORM: _Layout(_U1, 0, kind="yuyv"),
    ImageFormat.U8Y8V8Y8_422_UNORM: _Layout(_U1, 0, kind="uyvy"),
    **{  # such as y16_u16v16_2plane_420_unorm
        one: _Layout(_U2 if one.value.startswith("y16") else _U1, 0, kind=one.value[-16:-6])
        for one in ImageFormat
        if "plane_" in one.value
    },
}


def format_of(words: Mapping[str, Any], where: str) -> _ImageFormat:
    """Return the format that members of the enumerations, or their names, stand for, or raise ValueError.

    Parameters
    ----------
    words
        Some of `WORDS`.
    where
        The tensor, for errors.
    """
    members = {
        name: _member(words.get(name, usual), type(usual), name, where) for name, usual in WORDS.items()
    }
    image_format = members.pop("image_format")
    if image_format is ImageFormat.AUTO_DETECT:
        return _ImageFormat()
    layout = _LAYOUTS.get(image_format)
    return _Format(layout is not None and layout.is_srgb, str(image_format), layout, **members)


def _member(given: Any, kind: Any, name: str, where: str) -> Any:
    if isinstance(given, str):
        try:
            return kind(given.lower())
        except ValueError:
            pass
    raise ValueError(
        f"{name} of {where} must be one of {', '.join(kind)}, or a {kind.__name__}; not {given!r:.80}"
    )


@dataclass(frozen=True)
class _Format(_ImageFormat):
    """One of the SDK's formats, with what a specification says of its YUV; without a layout one of depth maps."""

    name: str = ""
    layout: _Layout | None = None
    yuv_model_conversion: YuvModelConversion = YuvModelConversion.YUV_601
    yuv_range: YuvRange = YuvRange.ITU_FULL
    x_chroma_location: ChromaLocation = ChromaLocation.COSITED_EVEN
    y_chroma_location: ChromaLocation = ChromaLocation.COSITED_EVEN

    def problem(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
        """Return why an image is not of this format, or an empty text."""
        if self.layout is None:
            return f"image_format {self.name} is one of depth maps, not of images"
        size = _size(shape, dtype, self.layout)
        return f"image_format {self.name} needs {size}" if isinstance(size, str) else ""

    def to_rgb(self, image: np.ndarray) -> np.ndarray:
        """Return an image as (rows, columns, 3 or 4) of uint8."""
        assert self.layout is not None
        kind = self.layout.kind
        if kind in ("rgb", "bgr"):
            return _unpacked(image, kind)
        if kind:
            return super().to_rgb(self._from_yuv(image, self.layout))
        if image.dtype == _U4 and self.layout.dtype == _U1:
            words = np.ascontiguousarray(image.reshape(image.shape[:2]), dtype="<u4")
            image = words.view(np.uint8).reshape(*words.shape, 4)
        if self.layout.blue_first:
            image = image[..., [2, 1, 0, 3]]
        return super().to_rgb(image)

    def _from_yuv(self, image: np.ndarray, layout: _Layout) -> np.ndarray:
        """Return red, green and blue as fractions."""
        import cv2

        size = _size(image.shape, image.dtype, layout)
        assert not isinstance(size, str)
        rows, columns = size
        luma, *chroma = yuv_planes(image, layout.kind, rows, columns)
        most = np.iinfo(image.dtype).max
        unit = (most + 1) // 256
        low, luma_range, chroma_range = 0, most, most
        if self.yuv_range is YuvRange.ITU_NARROW:
            low, luma_range, chroma_range = 16 * unit, 219 * unit, 224 * unit
        standard = self.yuv_model_conversion.removeprefix("yuv_")
        v_in_red, u_in_green, v_in_green, u_in_blue = rgb_factors(standard)
        factors = np.array([[1, 0, v_in_red], [1, u_in_green, v_in_green], [1, u_in_blue, 0]])
        factors /= [luma_range, chroma_range, chroma_range]
        offsets = -factors @ [[low], [128 * unit], [128 * unit]]
        planes = [luma.astype(np.float32), *(self._upsample(plane, rows, columns) for plane in chroma)]
        whole: np.ndarray = cv2.transform(cv2.merge(planes), np.hstack([factors, offsets]))
        return whole

    def _upsample(self, plane: np.ndarray, rows: int, columns: int) -> Any:
        """Return a chroma plane at full size, linearly between its samples."""
        import cv2

        shared = rows // len(plane)
        x, y = (
            0.0 if place is ChromaLocation.COSITED_EVEN else -0.25
            for place in (self.x_chroma_location, self.y_chroma_location)
        )
        matrix = np.array([[0.5, 0, x], [0, 1 / shared, y if shared == 2 else 0]])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        size = (columns, rows)
        return cv2.warpAffine(plane.astype(np.float32), matrix, size, None, flags, cv2.BORDER_REPLICATE)


def _size(shape: tuple[int, ...], dtype: np.dtype[Any], layout: _Layout) -> tuple[int, int] | str:
    """Return rows and columns of an image of that layout, or what it would need to have."""
    rows, columns = shape[:2]
    channels = shape[2] if len(shape) == 3 else 1
    wanted_dtype, count, kind = layout.dtype, layout.channels, layout.kind
    if kind in ("yuyv", "uyvy"):
        if channels == 1:
            columns, channels = columns // 2, 2 if columns % 4 == 0 else 0
        fits = channels == 2 and columns % 2 == 0
        wanted = "(rows, columns, 2) or (rows, 2 * columns) of uint8, and an even number of columns"
    elif kind.endswith("420"):
        fits = channels == 1 and rows % 3 == 0 and columns % 2 == 0
        rows, wanted = rows // 3 * 2, f"(rows * 3 / 2, columns) of {wanted_dtype}, with even rows and columns"
    elif kind.endswith("422"):
        fits = channels == 1 and rows % 2 == 0 and columns % 2 == 0
        rows, wanted = rows // 2, f"(rows * 2, columns) of {wanted_dtype}, with even columns"
    elif kind or (count == 4 and wanted_dtype == _U1 and dtype == _U4):
        fits, wanted_dtype, wanted = channels == 1, _U4, "(rows, columns) of uint32"
    else:
        fits = channels == count
        wanted = f"{'(rows, columns)' if count == 1 else f'(rows, columns, {count})'} of {wanted_dtype}"
    return (rows, columns) if fits and dtype == wanted_dtype else wanted


def _unpacked(image: np.ndarray, kind: str) -> np.ndarray:
    """Return the colours of words with ten bits for each, and two for alpha."""
    words = image.reshape(image.shape[:2]).astype(np.uint32)
    channels = [(((words >> shift) & 1023) * 255 + 511) // 1023 for shift in (0, 10, 20)]
    if kind == "bgr":
        channels.reverse()
    return np.stack([*channels, (words >> 30) * 85], axis=-1).astype(np.uint8)
