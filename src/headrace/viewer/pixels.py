"""Pixels: images as 8-bit RGB and alpha, and the colours that numbers are looked up in.

NumPy does the work in calls on whole arrays, which let other threads run meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

_DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")


@dataclass(frozen=True)
class ImageFormat:
    """How an image becomes RGB: as its dtype and its channels say.

    Integers are fractions of the largest one, and floats are fractions already; what is below 0 is drawn as 0, and
    what is above 1 as 1. An image of one channel is grey, and one of four has alpha.

    A subclass is a format that an array does not tell, such as one of YUV.

    Parameters
    ----------
    is_srgb
        Whether the values have the sRGB curve; otherwise they are linear.
    """

    is_srgb: bool = False

    def problem(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
        """Return why an image of two or three dimensions is not of this format, or an empty text."""
        if dtype.name in _DTYPES and shape[2:] in ((), (1,), (3,), (4,)):
            return ""
        return (
            "no image format fits: an image has 1, 3 or 4 channels of (u)int8, (u)int16, (u)int32, float16 or "
            "float32. For another one set image_format"
        )

    def to_rgb(self, image: np.ndarray) -> np.ndarray:
        """Return an image as (rows, columns, 3 or 4) of uint8; called on a thread of the viewer's own."""
        rows, columns = image.shape[:2]
        bytes_ = _to_bytes(image.reshape(rows, columns, -1))
        return np.broadcast_to(bytes_, (rows, columns, 3)) if bytes_.shape[2] == 1 else bytes_


def index_image(image: np.ndarray, count: int) -> np.ndarray:
    """Return the row of a colour table that each element names; beyond its ends, the first or the last.

    Elements of uint8 are returned as they are: the table is long enough for them.
    """
    plane = image.reshape(image.shape[:2])
    if plane.dtype == np.uint8:
        return plane
    rows: np.ndarray = np.clip(plane, 0, count - 1).astype(np.intp)
    return rows


def _to_bytes(image: np.ndarray) -> np.ndarray:
    """Return the fractions that elements stand for, in 255ths; what lies outside of 0 to 1 is clipped."""
    dtype = image.dtype
    if dtype.kind == "f":
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
