"""Conversion of pixels one by one: another element type, other channels, another order of the channels.

The order of the channels is one number with a byte for each output channel, the lowest byte first: the input
channel that it takes, or the first number that is no input channel for a constant alpha.

Images have the channels of a pixel together, or a plane for each channel (`PLANAR_INPUT`, `PLANAR_OUTPUT`).

In CUDA a thread converts a pixel, or four neighbouring elements where the channels stay as they are.

Conversion between RGB and the YUV layouts of cameras and codecs.

All arithmetic is in integers with 16 binary digits after the point, rounded to the nearest, so that a GPU and
NumPy agree exactly; OpenCV, where it is installed, differs from them by at most 1. All are within 1 of the exact
formula. A chroma sample serves all the pixels that share it, without interpolation, and in limited range luma below
16 counts as 16, both as in OpenCV. On the way to 4:2:0 the chroma of four pixels is averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators.arrays import Routine
from headrace.video.yuv import LUMA_WEIGHTS, rgb_factors, yuv_planes

Array = np.ndarray[Any, Any]
_Convert = Callable[[Array, Array, np.float32, np.float32], object]

# Elements converted at a time: as many as stay in the processor's cache between the steps.
_CHUNK = 1 << 15


def pack_order(order: Sequence[int]) -> np.int32:
    """Return the number that stands for an order of channels."""
    return np.int32(sum(channel << 8 * place for place, channel in enumerate(order)))


def unpack_order(order: int, count: int) -> list[int]:
    """Return the order of channels that a number stands for."""
    return [int(order) >> 8 * place & 255 for place in range(count)]


PLANAR_INPUT, PLANAR_OUTPUT = 1, 2
"""The bits of the last argument of a conversion: on that side, each channel is a plane."""


def _conversion(source_type: str, target_type: str, converted: str, convert_elements: _Convert) -> Routine:
    """Return a conversion: the types and the new element in CUDA C++, and what converts elements in NumPy."""

    def copy_into(out: Array, values: Array, scale: np.float32, offset: np.float32) -> None:
        for begin in range(0, len(out), _CHUNK):
            convert_elements(out[begin : begin + _CHUNK], values[begin : begin + _CHUNK], scale, offset)

    def convert(
        out: Array, pixels: Array, count: int, in_channels: int, out_channels: int, packed: int, *scaling: Any
    ) -> None:
        scale, offset, alpha, planes = scaling
        planar_input, planar_output = bool(planes & PLANAR_INPUT), bool(planes & PLANAR_OUTPUT)
        order = unpack_order(packed, out_channels)
        if planar_input == planar_output and order == list(range(in_channels)):
            copy_into(out.reshape(-1), pixels.reshape(-1), scale, offset)
            return
        source, target = pixels.reshape(count, in_channels), out.reshape(count, out_channels)
        if planar_input:
            source = pixels.reshape(in_channels, count).T
        if planar_output:
            target = out.reshape(out_channels, count).T
        for channel, taken in enumerate(order):
            if taken < in_channels:
                copy_into(target[:, channel], source[:, taken], scale, offset)
            else:
                target[:, channel] = alpha

    def convert_with_opencv(out: Array, pixels: Array, *numbers: Any) -> bool:
        count, in_channels, out_channels, packed, scale, offset, alpha, planes = numbers
        order = unpack_order(packed, out_channels)
        if planes or not with_opencv.knows_order(int(in_channels), order):
            return False
        # As rows and columns, for OpenCV's threads share the rows.
        rows = next(rows for rows in (64, 16, 4, 2, 1) if count % rows == 0)
        source, target = pixels.reshape(rows, -1, in_channels), out.reshape(rows, -1, out_channels)
        if source.dtype == target.dtype:
            with_opencv.reorder(target, source, order, alpha)
        elif source.itemsize < target.itemsize:  # the smaller of the two types is put in order
            ordered = np.empty(target.shape, source.dtype)
            with_opencv.reorder(ordered, source, order, alpha)
            copy_into(out.reshape(-1), ordered.reshape(-1), scale, offset)
        else:
            converted = np.empty(source.shape, target.dtype)
            copy_into(converted.reshape(-1), pixels.reshape(-1), scale, offset)
            with_opencv.reorder(target, converted, order, alpha)
        return True

    words = {"INPUT": source_type, "OUTPUT": target_type, "CONVERT(value)": converted}
    return Routine("convert", convert, convert_with_opencv, words)


def _to_float(out: Array, values: Array, scale: np.float32, offset: np.float32) -> None:
    np.multiply(values, scale, out=out, dtype=np.float32)
    if offset:
        out += offset


def _float_to_byte(out: Array, values: Array, scale: np.float32, offset: np.float32) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values - offset
        scaled *= scale
    np.fmax(scaled, np.float32(0), out=scaled)  # NaN becomes 0
    np.fmin(scaled, np.float32(255), out=scaled)
    np.rint(scaled, out=out, casting="unsafe")


def _wide_to_byte(out: Array, values: Array, scale: Any, offset: Any) -> None:
    wide = values.astype(np.uint32)
    wide += 128
    np.floor_divide(wide, 257, out=out, casting="unsafe")


def _copy(out: Array, values: Array, scale: Any, offset: Any) -> None:
    np.copyto(out, values)


SCALED = "__fadd_rn(__fmul_rn((float)(value), scale), offset)"
"""A byte as a float, in CUDA C++."""

COPY = {
    np.dtype(element): _conversion(name, name, "value", _copy)
    for element, name in ((np.uint8, "unsigned char"), (np.uint16, "unsigned short"), (np.float32, "float"))
}
"""Copy elements as they are, by their type."""

TO_FLOAT = _conversion("unsigned char", "float", SCALED, _to_float)
"""``value * scale + offset`` in single precision."""

FLOAT_TO_BYTE = _conversion(
    "float",
    "unsigned char",
    "rintf(fminf(fmaxf(__fmul_rn(__fsub_rn(value, offset), scale), 0.0f), 255.0f))",
    _float_to_byte,
)
"""``(value - offset) * scale``, rounded to the nearest (ties to even) and saturated; NaN becomes 0."""

WIDE_TO_BYTE = _conversion("unsigned short", "unsigned char", "(value + 128) / 257", _wide_to_byte)
"""16 bits to 8 by full range: 65535 becomes 255, and the rest is rounded to the nearest."""


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
            parts = yuv_planes(pixels, _LAYOUTS[layout], rows, columns)
            return convert(out, pixels, known, parts, unpack_order(packed, channels), alpha, matrix)

        return run

    functions = with_arguments(_planes_to_rgb), with_arguments(with_opencv.yuv_to_rgb)
    return Routine("yuv_to_rgb", *functions, {layout.upper(): ""})


_LAYOUTS = {"nv12": "2plane_420", "yuv420": "3plane_420", "yuyv": "yuyv", "uyvy": "uyvy"}
TO_RGB = {name: _to_rgb(name) for name in _LAYOUTS}
"""The conversions to RGB, by layout."""


def _rgb_to_yuv420(out: Array, pixels: Array, rows: int, columns: int) -> None:
    y, u, v = yuv_planes(out, "3plane_420", int(rows), int(columns))
    red, green, blue = np.moveaxis(pixels.reshape(rows, columns, 3).astype(np.int32), 2, 0)
    y[...] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    red, green, blue = (
        part[::2, ::2] + part[::2, 1::2] + part[1::2, ::2] + part[1::2, 1::2] for part in (red, green, blue)
    )
    middle = (128 << 18) + (1 << 17)
    u[...] = np.clip((-11058 * red - 21710 * green + 32768 * blue + middle) >> 18, 0, 255)
    v[...] = np.clip((32768 * red - 27439 * green - 5329 * blue + middle) >> 18, 0, 255)


def _rgb_to_yuv420_with_opencv(out: Array, pixels: Array, rows: int, columns: int) -> bool:
    parts = yuv_planes(out, "3plane_420", int(rows), int(columns))
    return with_opencv.rgb_to_yuv420(parts, pixels.reshape(rows, columns, 3))


RGB_TO_YUV420 = Routine("rgb_to_yuv420", _rgb_to_yuv420, _rgb_to_yuv420_with_opencv)
"""RGB to planar 4:2:0 by BT.601 in full range; a thread converts 2×2 pixels."""
