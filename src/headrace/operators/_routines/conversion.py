"""Conversion of pixels one by one: another element type, other channels, another order of the channels.

The order of the channels is one number with a byte for each output channel, the lowest byte first: the input
channel that it takes, or the first number that is no input channel for a constant alpha.

A conversion has four forms, for images that have the channels of a pixel together and for those that have a plane
for each channel, on either side (`with_planes`).

In CUDA a thread converts a pixel, or four neighbouring elements where the channels stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators.arrays import Routine

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


_WITH_PLANES: dict[Routine, dict[tuple[bool, bool], Routine]] = {}


def is_conversion(routine: Routine) -> bool:
    """Return whether a routine converts pixels one by one."""
    return routine in _WITH_PLANES


def with_planes(routine: Routine, planar_input: bool, planar_output: bool) -> Routine:
    """Return the form of a conversion for images with a plane for each channel."""
    return _WITH_PLANES[routine][planar_input, planar_output]


def _conversion(source_type: str, target_type: str, converted: str, convert_elements: _Convert) -> Routine:
    """Return a conversion: the types and the new element in CUDA C++, and what converts elements in NumPy."""
    forms = {
        (planar_input, planar_output): _form(
            source_type, target_type, converted, convert_elements, planar_input, planar_output
        )
        for planar_input in (False, True)
        for planar_output in (False, True)
    }
    packed = forms[False, False]
    _WITH_PLANES[packed] = forms
    return packed


def _form(
    source_type: str,
    target_type: str,
    converted: str,
    convert_elements: _Convert,
    planar_input: bool,
    planar_output: bool,
) -> Routine:

    def copy_into(out: Array, values: Array, scale: np.float32, offset: np.float32) -> None:
        for begin in range(0, len(out), _CHUNK):
            convert_elements(out[begin : begin + _CHUNK], values[begin : begin + _CHUNK], scale, offset)

    def convert(
        out: Array, pixels: Array, count: int, in_channels: int, out_channels: int, packed: int, *scaling: Any
    ) -> None:
        scale, offset, alpha = scaling
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
        count, in_channels, out_channels, packed, scale, offset, alpha = numbers
        order = unpack_order(packed, out_channels)
        if not with_opencv.knows_order(int(in_channels), order):
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
    words |= {"PLANAR_INPUT": str(int(planar_input)), "PLANAR_OUTPUT": str(int(planar_output))}
    return Routine("convert", convert, None if planar_input or planar_output else convert_with_opencv, words)


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
