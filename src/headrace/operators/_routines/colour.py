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

__all__ = ["BT601_FULL", "BT601_LIMITED", "BT709_FULL", "BT709_LIMITED", "RGB_TO_YUV420", "TO_RGB", "Matrix"]

Array = np.ndarray[Any, Any]


class Matrix(NamedTuple):
    """A conversion to RGB: the value of black, and the factors in units of 1/65536."""

    black: np.int32
    luma: np.int32
    v_in_red: np.int32
    u_in_green: np.int32
    v_in_green: np.int32
    u_in_blue: np.int32


def _matrix(red: float, blue: float, limited: bool) -> Matrix:
    """Return the matrix for the weights of red and blue in the luma."""
    green = 1 - red - blue
    luma, chroma = (255 / 219, 255 / 224) if limited else (1.0, 1.0)
    factors = (
        luma,
        2 * (1 - red) * chroma,
        -2 * blue * (1 - blue) / green * chroma,
        -2 * red * (1 - red) / green * chroma,
        2 * (1 - blue) * chroma,
    )
    return Matrix(np.int32(16 if limited else 0), *(np.int32(round(65536 * factor)) for factor in factors))


BT601_FULL = _matrix(0.299, 0.114, limited=False)
BT601_LIMITED = _matrix(0.299, 0.114, limited=True)
BT709_FULL = _matrix(0.2126, 0.0722, limited=False)
BT709_LIMITED = _matrix(0.2126, 0.0722, limited=True)

_TO_RGB = r"""
__device__ unsigned char saturated(int value) {
    value = (value + 32768) >> 16;
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

extern "C" __global__ void yuv_to_rgb(
    unsigned char* out, const unsigned char* in, int rows, int columns, int channels, int order, int alpha,
    int black, int luma, int v_in_red, int u_in_green, int v_in_green, int u_in_blue
) {
    unsigned number = blockIdx.x * blockDim.x + threadIdx.x;  // dividing 64 bits would take most of the time
    if (number >= (unsigned)rows * columns) return;
    int row = number / columns, column = number % columns;
    long long pixel = number, luma_at, u_at, v_at;
    LAYOUT
    int light = in[luma_at] - black;
    int y = luma * (light < 0 ? 0 : light), u = in[u_at] - 128, v = in[v_at] - 128;
    unsigned char colours[4] = {
        saturated(y + v_in_red * v),
        saturated(y + u_in_green * u + v_in_green * v),
        saturated(y + u_in_blue * u),
        (unsigned char)alpha,
    };
    for (int channel = 0; channel < channels; channel++) {
        int taken = order >> 8 * channel & 255;
        out[pixel * channels + channel] = taken == 0 ? colours[0] : taken == 1 ? colours[1]
                                        : taken == 2 ? colours[2] : colours[3];
    }
}
"""

_BAND = 32  # rows converted at a time, so that they stay in the processor's cache


def _to_rgb(
    name: str, layout: str, planes: Callable[[Array, int, int], tuple[Array, Array, Array]]
) -> Routine:
    """Return the conversion of a layout: its name, where its samples are, in CUDA, and what returns its planes."""

    def convert(
        out: Array,
        pixels: Array,
        rows: int,
        columns: int,
        channels: int,
        packed: int,
        alpha: int,
        *matrix: np.int32,
    ) -> None:
        y, u, v = planes(pixels.reshape(-1), int(rows), int(columns))
        order = unpack_order(packed, channels)
        shared = len(y) // len(u)  # rows that share a row of chroma
        for top in range(0, len(y), _BAND):
            chroma = slice(top // shared, (top + _BAND) // shared)
            band = slice(top, top + _BAND)
            _band_to_rgb(out[band], y[band], u[chroma], v[chroma], shared, order, alpha, Matrix(*matrix))

    def convert_with_opencv(
        out: Array,
        pixels: Array,
        rows: int,
        columns: int,
        channels: int,
        packed: int,
        alpha: int,
        *matrix: np.int32,
    ) -> bool:
        parts = planes(pixels.reshape(-1), int(rows), int(columns))
        return with_opencv.yuv_to_rgb(out, pixels, name, parts, unpack_order(packed, channels), alpha, matrix)

    return Routine("yuv_to_rgb", _TO_RGB.replace("LAYOUT", layout), convert, convert_with_opencv)


def _band_to_rgb(
    out: Array, y: Array, u: Array, v: Array, shared: int, order: list[int], alpha: int, matrix: Matrix
) -> None:
    """Convert some rows; `shared` rows share a row of chroma."""
    u, v = u.astype(np.int32), v.astype(np.int32)
    u -= 128
    v -= 128
    half = np.int32(32768)
    shades = [
        matrix.v_in_red * v + half,
        matrix.u_in_green * u + matrix.v_in_green * v + half,
        matrix.u_in_blue * u + half,
    ]
    light = y.astype(np.int32)
    light -= matrix.black
    np.maximum(light, 0, out=light)
    light *= matrix.luma
    level = np.empty(light.shape, np.int32)
    for channel, taken in enumerate(order):
        if taken == 3:
            out[..., channel] = alpha
            continue
        for row in range(shared):
            for column in range(2):
                place = (slice(row, None, shared), slice(column, None, 2))
                np.add(light[place], shades[taken], out=level[place])
        np.right_shift(level, 16, out=level)
        np.clip(level, 0, 255, out=level)
        out[..., channel] = level


def _nv12(data: Array, rows: int, columns: int) -> tuple[Array, Array, Array]:
    chroma = data[rows * columns :].reshape(rows // 2, columns // 2, 2)
    return data[: rows * columns].reshape(rows, columns), chroma[..., 0], chroma[..., 1]


def _yuv420(data: Array, rows: int, columns: int) -> tuple[Array, Array, Array]:
    u, v = data[rows * columns :].reshape(2, rows // 2, columns // 2)
    return data[: rows * columns].reshape(rows, columns), u, v


def _yuyv(data: Array, rows: int, columns: int) -> tuple[Array, Array, Array]:
    pairs = data.reshape(rows, columns // 2, 4)
    return data.reshape(rows, columns, 2)[..., 0], pairs[..., 1], pairs[..., 3]


def _uyvy(data: Array, rows: int, columns: int) -> tuple[Array, Array, Array]:
    pairs = data.reshape(rows, columns // 2, 4)
    return data.reshape(rows, columns, 2)[..., 1], pairs[..., 0], pairs[..., 2]


TO_RGB = {
    "nv12": _to_rgb(
        "nv12",
        """
        luma_at = pixel;
        u_at = (long long)(rows + row / 2) * columns + column / 2 * 2;
        v_at = u_at + 1;
        """,
        _nv12,
    ),
    "yuv420": _to_rgb(
        "yuv420",
        """
        luma_at = pixel;
        u_at = (long long)rows * columns + (long long)(row / 2) * (columns / 2) + column / 2;
        v_at = u_at + (long long)(rows / 2) * (columns / 2);
        """,
        _yuv420,
    ),
    "yuyv": _to_rgb(
        "yuyv",
        """
        luma_at = 2 * pixel;
        u_at = 2 * (pixel - column % 2) + 1;
        v_at = u_at + 2;
        """,
        _yuyv,
    ),
    "uyvy": _to_rgb(
        "uyvy",
        """
        luma_at = 2 * pixel + 1;
        u_at = 2 * (pixel - column % 2);
        v_at = u_at + 2;
        """,
        _uyvy,
    ),
}
"""The conversions to RGB, by layout."""

_RGB_TO_YUV420 = r"""
__device__ unsigned char saturated(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

extern "C" __global__ void rgb_to_yuv420(unsigned char* out, const unsigned char* in, int rows, int columns) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    int cells_in_row = columns / 2;
    if (cell >= rows / 2 * cells_in_row) return;
    int top = cell / cells_in_row * 2, left = cell % cells_in_row * 2;
    int reds = 0, greens = 0, blues = 0;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            long long pixel = (long long)(top + i) * columns + left + j;
            int red = in[3 * pixel], green = in[3 * pixel + 1], blue = in[3 * pixel + 2];
            out[pixel] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16;
            reds += red;
            greens += green;
            blues += blue;
        }
    }
    long long u_at = (long long)rows * columns + cell, v_at = u_at + (long long)(rows / 2) * cells_in_row;
    int middle = (128 << 18) + (1 << 17);
    out[u_at] = saturated((-11058 * reds - 21710 * greens + 32768 * blues + middle) >> 18);
    out[v_at] = saturated((32768 * reds - 27439 * greens - 5329 * blues + middle) >> 18);
}
"""


def _rgb_to_yuv420(out: Array, pixels: Array, rows: int, columns: int) -> None:
    y, u, v = _yuv420(out.reshape(-1), int(rows), int(columns))
    pixels = pixels.reshape(rows, columns, 3)
    for top in range(0, int(rows), _BAND):
        band = slice(top, top + _BAND)
        half = slice(top // 2, (top + _BAND) // 2)
        red, green, blue = (np.ascontiguousarray(pixels[band, :, place], np.int32) for place in range(3))
        y[band] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
        red, green, blue = (
            part[::2, ::2] + part[::2, 1::2] + part[1::2, ::2] + part[1::2, 1::2]
            for part in (red, green, blue)
        )
        middle = (128 << 18) + (1 << 17)
        u[half] = np.clip((-11058 * red - 21710 * green + 32768 * blue + middle) >> 18, 0, 255)
        v[half] = np.clip((32768 * red - 27439 * green - 5329 * blue + middle) >> 18, 0, 255)


def _rgb_to_yuv420_with_opencv(out: Array, pixels: Array, rows: int, columns: int) -> bool:
    planes = _yuv420(out.reshape(-1), int(rows), int(columns))
    return with_opencv.rgb_to_yuv420(planes, pixels.reshape(rows, columns, 3))


RGB_TO_YUV420 = Routine("rgb_to_yuv420", _RGB_TO_YUV420, _rgb_to_yuv420, _rgb_to_yuv420_with_opencv)
"""RGB to planar 4:2:0 by BT.601 in full range; a thread converts 2×2 pixels."""
