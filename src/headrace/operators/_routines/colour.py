"""Conversion between RGB and the YUV layouts of cameras and codecs.

All arithmetic is in integers with 16 binary digits after the point, rounded to the nearest, so that a GPU and
NumPy agree exactly; OpenCV, where it is installed, differs from them by at most 1. All are within 1 of the exact
formula. A chroma sample serves all the pixels that share it, without interpolation, and in limited range luma below
16 counts as 16, both as in OpenCV. On the way to 4:2:0 the chroma of four pixels is averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators._routines.conversion import unpack_order
from headrace.operators.arrays import Routine
from headrace.video.yuv import LUMA_WEIGHTS, planes, rgb_factors

Array = np.ndarray[Any, Any]


class Matrix(NamedTuple):
    """A conversion to RGB: the value of black, and the factors in units of 1/65536."""

    black: np.int32
    luma: np.int32
    v_in_red: np.int32
    u_in_green: np.int32
    v_in_green: np.int32
    u_in_blue: np.int32


def _matrix(standard: str, is_full: bool) -> Matrix:
    luma, chroma = (1.0, 1.0) if is_full else (255 / 219, 255 / 224)
    factors = [luma, *(factor * chroma for factor in rgb_factors(standard))]
    return Matrix(np.int32(0 if is_full else 16), *(np.int32(round(65536 * factor)) for factor in factors))


MATRICES = {
    (standard, is_full): _matrix(standard, is_full) for standard in LUMA_WEIGHTS for is_full in (False, True)
}
"""The matrices of BT.601, BT.709 and BT.2020, in limited and in full range."""


def _planes_to_rgb(
    out: Array,
    pixels: Array,
    known: str,
    planes: tuple[Array, Array, Array],
    order: list[int],
    alpha: int,
    matrix: Matrix,
) -> bool:
    """Convert planes in NumPy; see `with_opencv.yuv_to_rgb`."""
    y, u, v = (plane.astype(np.int32) for plane in planes)
    u, v = u - 128, v - 128
    light = np.maximum(y - matrix.black, 0) * matrix.luma + np.int32(32768)
    shades: list[Array] = [
        matrix.v_in_red * v,
        matrix.u_in_green * u + matrix.v_in_green * v,
        matrix.u_in_blue * u,
    ]
    shared = len(y) // len(u)  # rows that share a row of chroma
    for channel, taken in enumerate(order):
        if taken == 3:
            out[..., channel] = alpha
            continue
        level = light + shades[taken].repeat(shared, axis=0).repeat(2, axis=1)
        out[..., channel] = np.clip(level >> 16, 0, 255)
    return True


def _to_rgb(layout: str) -> Routine:
    """Return the conversion of a layout."""

    def with_arguments(convert: Callable[..., bool]) -> Callable[..., bool]:
        def run(out: Array, pixels: Array, *numbers: Any) -> bool:
            rows, columns, channels, packed, alpha = map(int, numbers[:5])
            matrix = Matrix(*numbers[5:])
            known = layout if layout in ("yuyv", "uyvy") and matrix == MATRICES["601", False] else ""
            parts = planes(pixels, _LAYOUTS[layout], rows, columns)
            return convert(out, pixels, known, parts, unpack_order(packed, channels), alpha, matrix)

        return run

    functions = with_arguments(_planes_to_rgb), with_arguments(with_opencv.yuv_to_rgb)
    return Routine("yuv_to_rgb", *functions, {layout.upper(): ""})


_LAYOUTS = {"nv12": "2plane_420", "yuv420": "3plane_420", "yuyv": "yuyv", "uyvy": "uyvy"}
TO_RGB = {name: _to_rgb(name) for name in _LAYOUTS}
"""The conversions to RGB, by layout."""


def _rgb_to_yuv420(out: Array, pixels: Array, rows: int, columns: int) -> None:
    y, u, v = planes(out, "3plane_420", int(rows), int(columns))
    red, green, blue = np.moveaxis(pixels.reshape(rows, columns, 3).astype(np.int32), 2, 0)
    y[...] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    red, green, blue = (
        part[::2, ::2] + part[::2, 1::2] + part[1::2, ::2] + part[1::2, 1::2] for part in (red, green, blue)
    )
    middle = (128 << 18) + (1 << 17)
    u[...] = np.clip((-11058 * red - 21710 * green + 32768 * blue + middle) >> 18, 0, 255)
    v[...] = np.clip((32768 * red - 27439 * green - 5329 * blue + middle) >> 18, 0, 255)


def _rgb_to_yuv420_with_opencv(out: Array, pixels: Array, rows: int, columns: int) -> bool:
    parts = planes(out, "3plane_420", int(rows), int(columns))
    return with_opencv.rgb_to_yuv420(parts, pixels.reshape(rows, columns, 3))


RGB_TO_YUV420 = Routine("rgb_to_yuv420", _rgb_to_yuv420, _rgb_to_yuv420_with_opencv)
"""RGB to planar 4:2:0 by BT.601 in full range; a thread converts 2×2 pixels."""
