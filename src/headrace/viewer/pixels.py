"""Pixels: images of every format as 8-bit RGB and alpha.

OpenCV knows few of these formats: YUV only by BT.601 in limited range and without a place of chroma, no signed and
no packed ones. So they are converted here, as the specification says.

NumPy does the work in calls on whole arrays, which let other threads run meanwhile; OpenCV enlarges the chroma.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from headrace.video.yuv import planes, rgb_factors
from headrace.viewer.input_spec import ChromaLocation, ImageFormat, InputSpec, YuvRange
from headrace.viewer.pictures import opencv


class PixelFormat(NamedTuple):
    """How an image is laid out.

    Attributes
    ----------
    dtype
        The dtype of its elements.
    channels
        The number of channels; 0 where `layout` says more.
    kind
        How numbers become fractions: ``"unorm"``, ``"snorm"``, ``"float"`` or ``"srgb"``.
    order
        The names of the channels.
    layout
        For packed and YUV images: ``"packed"``, ``"yuyv"``, ``"uyvy"``, ``"2plane_420"`` and so on.
    """

    dtype: np.dtype[Any]
    channels: int
    kind: str
    order: str = "rgba"
    layout: str = ""


# How the numbers of a format are stored and meant.
_NUMBERS = {
    "unorm": ("u", "unorm"),
    "uint": ("u", "unorm"),
    "srgb": ("u", "srgb"),
    "snorm": ("i", "snorm"),
    "sint": ("i", "snorm"),
    "sfloat": ("f", "float"),
}


def _plain() -> dict[ImageFormat, PixelFormat]:
    """Return the formats whose names say everything, such as ``r8g8b8a8_unorm``."""
    formats: dict[ImageFormat, PixelFormat] = {}
    for image_format in ImageFormat:
        found = re.fullmatch(r"((?:[rgba](\d+))+)_([a-z]+)", image_format.value)
        if found is not None:
            components, bits, number = found.groups()
            letters, (kind, meaning) = re.sub(r"\d", "", components), _NUMBERS[number]
            dtype = np.dtype(f"{kind}{int(bits) // 8}")
            formats[image_format] = PixelFormat(dtype, len(letters), meaning, letters)
    return formats


_U1, _U2, _U4 = np.dtype("u1"), np.dtype("u2"), np.dtype("u4")
PIXEL_FORMATS: dict[ImageFormat, PixelFormat] = {
    **_plain(),
    ImageFormat.A2B10G10R10_UNORM_PACK32: PixelFormat(_U4, 0, "unorm", "rgb", "packed"),
    ImageFormat.A2R10G10B10_UNORM_PACK32: PixelFormat(_U4, 0, "unorm", "bgr", "packed"),
    # The bits of a little-endian word are, byte by byte, those of r8g8b8a8.
    ImageFormat.A8B8G8R8_UNORM_PACK32: PixelFormat(_U1, 4, "unorm", "rgba"),
    ImageFormat.A8B8G8R8_SRGB_PACK32: PixelFormat(_U1, 4, "srgb", "rgba"),
    ImageFormat.Y8U8Y8V8_422_UNORM: PixelFormat(_U1, 0, "unorm", "yuv", "yuyv"),
    ImageFormat.U8Y8V8Y8_422_UNORM: PixelFormat(_U1, 0, "unorm", "yuv", "uyvy"),
    **{  # such as y16_u16v16_2plane_420_unorm
        one: PixelFormat(_U2 if one.value.startswith("y16") else _U1, 0, "unorm", "yuv", one.value[-16:-6])
        for one in ImageFormat
        if "plane_" in one.value
    },
}
_DETECTED = {
    (1, "u1"): ImageFormat.R8_UNORM,
    (1, "i1"): ImageFormat.R8_SNORM,
    (1, "u2"): ImageFormat.R16_UNORM,
    (1, "i2"): ImageFormat.R16_SNORM,
    (1, "u4"): ImageFormat.R32_UINT,
    (1, "i4"): ImageFormat.R32_SINT,
    (1, "f4"): ImageFormat.R32_SFLOAT,
    (3, "u1"): ImageFormat.R8G8B8_UNORM,
    (3, "i1"): ImageFormat.R8G8B8_SNORM,
    (4, "u1"): ImageFormat.R8G8B8A8_UNORM,
    (4, "i1"): ImageFormat.R8G8B8A8_SNORM,
    (4, "u2"): ImageFormat.R16G16B16A16_UNORM,
    (4, "i2"): ImageFormat.R16G16B16A16_SNORM,
    (4, "f4"): ImageFormat.R32G32B32A32_SFLOAT,
}


def detect_format(shape: tuple[int, ...], dtype: np.dtype[Any]) -> ImageFormat | None:
    """Return the format of an image with that shape and dtype, or None if there is none."""
    if len(shape) not in (2, 3) or not all(shape):
        return None
    channels = shape[2] if len(shape) == 3 else 1
    return _DETECTED.get((channels, dtype.str[1:]))


def image_size(
    shape: tuple[int, ...], dtype: np.dtype[Any], pixel_format: PixelFormat
) -> tuple[int, int] | str:
    """Return rows and columns of an image of that format, or what it would need to have."""
    rows, columns = shape[:2]
    channels = shape[2] if len(shape) == 3 else 1
    wanted_dtype, count, layout = pixel_format.dtype, pixel_format.channels, pixel_format.layout
    if layout in ("yuyv", "uyvy"):
        if channels == 1:
            columns, channels = columns // 2, 2 if columns % 4 == 0 else 0
        fits = channels == 2 and columns % 2 == 0
        wanted = "(rows, columns, 2) or (rows, 2 * columns) of uint8, and an even number of columns"
    elif layout.endswith("420"):
        fits = channels == 1 and rows % 3 == 0 and columns % 2 == 0
        rows, wanted = rows // 3 * 2, f"(rows * 3 / 2, columns) of {wanted_dtype}, with even rows and columns"
    elif layout.endswith("422"):
        fits = channels == 1 and rows % 2 == 0 and columns % 2 == 0
        rows, wanted = rows // 2, f"(rows * 2, columns) of {wanted_dtype}, with even columns"
    elif layout == "packed" or (count == 4 and wanted_dtype == _U1 and dtype == _U4):
        fits, wanted_dtype, wanted = channels == 1, _U4, "(rows, columns) of uint32"
    else:
        fits = channels == count
        wanted = f"{'(rows, columns)' if count == 1 else f'(rows, columns, {count})'} of {wanted_dtype}"
    return (rows, columns) if fits and dtype == wanted_dtype else wanted


def to_rgb(image: np.ndarray, spec: InputSpec, is_srgb: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
    """Return an image as (rows, columns, 3 or 4) of uint8, and its alpha where not all of it is opaque.

    Parameters
    ----------
    image
        The image, in the format of the specification.
    spec
        The specification, resolved.
    is_srgb
        Whether the picture is stored with the sRGB curve.
    """
    pixel_format = PIXEL_FORMATS[spec.image_format]
    layout = pixel_format.layout
    if layout == "packed":
        rgb, alpha = _unpack(image, pixel_format)
    elif layout:
        rgb, alpha = _from_yuv(image, spec, pixel_format), None
    else:
        rgb, alpha = _from_channels(image, pixel_format)
    if is_srgb != (pixel_format.kind == "srgb"):
        rgb = srgb_table(is_srgb)[rgb[..., :3]]
    if alpha is not None and int(alpha.min()) == 255:
        alpha = None
    return rgb, alpha


def index_image(image: np.ndarray, count: int) -> np.ndarray:
    """Return the row of a colour table that each element names; beyond its ends, the first or the last.

    Elements of uint8 are returned as they are: the table is long enough for them.
    """
    plane = image.reshape(image.shape[:2])
    if plane.dtype == np.uint8:
        return plane
    rows: np.ndarray = np.clip(plane, 0, count - 1).astype(np.intp)
    return rows


def _from_channels(image: np.ndarray, pixel_format: PixelFormat) -> tuple[np.ndarray, np.ndarray | None]:
    if image.dtype == _U4 and pixel_format.dtype == _U1:
        words = np.ascontiguousarray(image.reshape(image.shape[:2]), dtype="<u4")
        image = words.view(np.uint8).reshape(image.shape[0], image.shape[1], 4)
    rows, columns = image.shape[:2]
    channels = pixel_format.channels
    bytes_ = _to_bytes(image.reshape(rows, columns, channels), pixel_format.kind)
    if channels == 1:
        return np.broadcast_to(bytes_, (rows, columns, 3)), None
    alpha = bytes_[..., 3] if channels == 4 else None
    if pixel_format.order.startswith("b"):
        return np.ascontiguousarray(bytes_[..., 2::-1]), alpha
    return bytes_, alpha


def _to_bytes(image: np.ndarray, kind: str) -> np.ndarray:
    """Return the fractions that elements stand for, in 255ths; what lies outside of 0 to 1 is clipped."""
    dtype = image.dtype
    if kind == "float":
        with np.errstate(invalid="ignore"):
            scaled = np.nan_to_num(image.astype(np.float32), nan=0.0, posinf=1.0, neginf=0.0)
        rounded: np.ndarray = np.rint(np.clip(scaled, 0, 1) * 255).astype(np.uint8)
        return rounded
    if dtype == np.uint8:
        return image
    if dtype == np.uint16:
        # Rounded: the exact division by 257, in integers.
        return ((image.astype(np.uint32) * 255 + 32895) >> 16).astype(np.uint8)
    most = np.iinfo(dtype).max
    positive = np.maximum(image, 0).astype(np.float64)
    fraction: np.ndarray = np.rint(positive * (255 / most)).astype(np.uint8)
    return fraction


def _unpack(image: np.ndarray, pixel_format: PixelFormat) -> tuple[np.ndarray, np.ndarray]:
    words = image.reshape(image.shape[:2]).astype(np.uint32)
    channels = [((words >> shift) & 1023) for shift in (0, 10, 20)]
    if pixel_format.order == "bgr":
        channels.reverse()
    rgb = ((np.stack(channels, axis=-1) * 255 + 511) // 1023).astype(np.uint8)
    return rgb, ((words >> 30) * 85).astype(np.uint8)


def _from_yuv(image: np.ndarray, spec: InputSpec, pixel_format: PixelFormat) -> np.ndarray:
    size = image_size(image.shape, image.dtype, pixel_format)
    assert not isinstance(size, str)
    rows, columns = size
    luma, *chroma = planes(image, pixel_format.layout, rows, columns)
    most = np.iinfo(image.dtype).max
    unit = (most + 1) // 256
    low, luma_range, chroma_range = 0, most, most
    if spec.yuv_range is YuvRange.ITU_NARROW:
        low, luma_range, chroma_range = 16 * unit, 219 * unit, 224 * unit
    v_in_red, u_in_green, v_in_green, u_in_blue = rgb_factors(spec.yuv_model_conversion.removeprefix("yuv_"))
    factors = np.array([[1, 0, v_in_red], [1, u_in_green, v_in_green], [1, u_in_blue, 0]])
    factors /= [luma_range, chroma_range, chroma_range]
    offsets = -factors @ [[low], [128 * unit], [128 * unit]]
    cv2 = opencv()
    whole = cv2.merge([luma.astype(np.float32), *(_upsample(plane, rows, columns, spec) for plane in chroma)])
    return _to_bytes(cv2.transform(whole, np.hstack([factors, offsets])), "float")


def _upsample(plane: np.ndarray, rows: int, columns: int, spec: InputSpec) -> Any:
    """Return a chroma plane at full size, linearly between its samples."""
    cv2, shared = opencv(), rows // len(plane)
    x, y = (
        0.0 if place is ChromaLocation.COSITED_EVEN else -0.25
        for place in (spec.x_chroma_location, spec.y_chroma_location)
    )
    matrix = np.array([[0.5, 0, x], [0, 1 / shared, y if shared == 2 else 0]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size = (columns, rows)
    return cv2.warpAffine(plane.astype(np.float32), matrix, size, None, flags, cv2.BORDER_REPLICATE)


@cache
def srgb_table(encodes: bool) -> np.ndarray:
    """Return the table that puts the sRGB curve on 8-bit values, or takes it off."""
    value = np.arange(256) / 255
    if encodes:
        curved = np.where(value <= 0.0031308, value * 12.92, 1.055 * value ** (1 / 2.4) - 0.055)
    else:
        curved = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    table: np.ndarray = np.rint(curved * 255).astype(np.uint8)
    return table
