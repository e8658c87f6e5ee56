"""Conversion of pixels one by one: another element type, other channels, another order of the channels.

The order of the channels is one number with a byte for each output channel, the lowest byte first: the input
channel that it takes, or the first number that is no input channel for a constant alpha.

In CUDA a thread converts a pixel, or four neighbouring elements where the channels stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators.arrays import Routine

__all__ = ["COPY", "FLOAT_TO_BYTE", "TO_FLOAT", "WIDE_TO_BYTE", "pack_order", "unpack_order"]

_SOURCE = r"""
typedef INPUT input_element;
typedef OUTPUT output_element;

__device__ output_element convert_element(input_element value, float scale, float offset) { BODY }

struct alignas(4 * sizeof(input_element)) input_four { input_element values[4]; };
struct alignas(4 * sizeof(output_element)) output_four { output_element values[4]; };

// Converts four neighbours at a time: one load and one store, where the memory is aligned for that.
__device__ void convert_four(
    output_element* out, const input_element* in, long long first, long long count, float scale, float offset
) {
    bool is_aligned = (unsigned long long)in % sizeof(input_four) == 0
        && (unsigned long long)out % sizeof(output_four) == 0;
    if (is_aligned && first + 4 <= count) {
        input_four given = *(const input_four*)(in + first);
        output_four converted;
        #pragma unroll
        for (int i = 0; i < 4; i++) converted.values[i] = convert_element(given.values[i], scale, offset);
        *(output_four*)(out + first) = converted;
        return;
    }
    for (int i = 0; i < 4 && first + i < count; i++)
        out[first + i] = convert_element(in[first + i], scale, offset);
}

extern "C" __global__ void convert(
    output_element* out, const input_element* in, long long pixels, int in_channels, int out_channels, int order,
    float scale, float offset, int alpha
) {
    long long pixel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    if (in_channels == out_channels && order == (0x03020100 & (int)(0xffffffffu >> 8 * (4 - in_channels)))) {
        convert_four(out, in, 4 * pixel, pixels * in_channels, scale, offset);
        return;
    }
    const input_element* from = in + pixel * in_channels;
    output_element* to = out + pixel * out_channels;
    for (int channel = 0; channel < out_channels; channel++) {
        int taken = order >> 8 * channel & 255;
        to[channel] = taken < in_channels ? convert_element(from[taken], scale, offset) : (output_element)alpha;
    }
}
"""

_CopyInto = Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any], np.float32, np.float32], object]


def pack_order(order: Sequence[int]) -> np.int32:
    """Return the number that stands for an order of channels."""
    return np.int32(sum(channel << 8 * place for place, channel in enumerate(order)))


def unpack_order(order: int, count: int) -> list[int]:
    """Return the order of channels that a number stands for."""
    return [int(order) >> 8 * place & 255 for place in range(count)]


def _conversion(source_type: str, target_type: str, body: str, copy_into: _CopyInto) -> Routine:
    def convert(
        out: np.ndarray[Any, Any],
        pixels: np.ndarray[Any, Any],
        count: int,
        in_channels: int,
        out_channels: int,
        packed: int,
        scale: np.float32,
        offset: np.float32,
        alpha: int,
    ) -> None:
        order = unpack_order(packed, out_channels)
        if order == list(range(in_channels)):
            copy_into(out.reshape(-1), pixels.reshape(-1), scale, offset)
            return
        source = pixels.reshape(count, in_channels)
        target = out.reshape(count, out_channels)
        for channel, taken in enumerate(order):
            if taken < in_channels:
                copy_into(target[:, channel], source[:, taken], scale, offset)
            else:
                target[:, channel] = alpha

    def convert_with_opencv(
        out: np.ndarray[Any, Any],
        pixels: np.ndarray[Any, Any],
        count: int,
        in_channels: int,
        out_channels: int,
        packed: int,
        scale: np.float32,
        offset: np.float32,
        alpha: int,
    ) -> bool:
        order = unpack_order(packed, out_channels)
        if order == list(range(in_channels)) or with_opencv.opencv() is None:
            return False
        # As rows and columns, for OpenCV's threads share the rows.
        rows = next(rows for rows in (64, 16, 4, 2, 1) if count % rows == 0)
        source, target = pixels.reshape(rows, -1, in_channels), out.reshape(rows, -1, out_channels)
        if source.dtype == target.dtype:
            return with_opencv.reorder(target, source, order, alpha)
        # The smaller of the two types is put in order: before the conversion, or after it.
        if source.itemsize < target.itemsize:
            ordered = np.empty(target.shape, source.dtype)
            with_opencv.reorder(ordered, source, order, alpha)
            copy_into(target.reshape(-1), ordered.reshape(-1), scale, offset)
            return True
        converted = np.empty(source.shape, target.dtype)
        copy_into(converted.reshape(-1), source.reshape(-1), scale, offset)
        return with_opencv.reorder(target, converted, order, alpha)

    text = _SOURCE.replace("INPUT", source_type).replace("OUTPUT", target_type).replace("BODY", body)
    return Routine("convert", text, convert, convert_with_opencv)


# Elements converted at a time: as many as stay in the processor's cache between the steps.
_CHUNK = 1 << 15


def _copy(out: np.ndarray[Any, Any], values: np.ndarray[Any, Any], scale: Any, offset: Any) -> None:
    np.copyto(out, values)


def _to_float(
    out: np.ndarray[Any, Any], values: np.ndarray[Any, Any], scale: np.float32, offset: np.float32
) -> None:
    for begin in range(0, len(out), _CHUNK):
        part = out[begin : begin + _CHUNK]
        np.multiply(values[begin : begin + _CHUNK], scale, out=part, dtype=np.float32)
        if offset:
            part += offset


def _float_to_byte(
    out: np.ndarray[Any, Any], values: np.ndarray[Any, Any], scale: np.float32, offset: np.float32
) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, len(out), _CHUNK):
            scaled = values[begin : begin + _CHUNK] - offset
            scaled *= scale
            np.fmax(scaled, np.float32(0), out=scaled)  # NaN becomes 0
            np.fmin(scaled, np.float32(255), out=scaled)
            np.rint(scaled, out=scaled)
            out[begin : begin + _CHUNK] = scaled


def _wide_to_byte(out: np.ndarray[Any, Any], values: np.ndarray[Any, Any], scale: Any, offset: Any) -> None:
    for begin in range(0, len(out), _CHUNK):
        wide = values[begin : begin + _CHUNK].astype(np.uint32)
        wide += 128
        wide //= 257
        out[begin : begin + _CHUNK] = wide


COPY = {
    np.dtype(np.uint8): _conversion("unsigned char", "unsigned char", "return value;", _copy),
    np.dtype(np.uint16): _conversion("unsigned short", "unsigned short", "return value;", _copy),
    np.dtype(np.float32): _conversion("float", "float", "return value;", _copy),
}
"""Copy elements as they are, by their type."""

TO_FLOAT = _conversion(
    "unsigned char", "float", "return __fadd_rn(__fmul_rn((float)value, scale), offset);", _to_float
)
"""``value * scale + offset`` in single precision."""

FLOAT_TO_BYTE = _conversion(
    "float",
    "unsigned char",
    "float scaled = __fmul_rn(__fsub_rn(value, offset), scale);"
    " return (unsigned char)rintf(fminf(fmaxf(scaled, 0.0f), 255.0f));",
    _float_to_byte,
)
"""``(value - offset) * scale``, rounded to the nearest (ties to even) and saturated; NaN becomes 0."""

WIDE_TO_BYTE = _conversion("unsigned short", "unsigned char", "return (value + 128) / 257;", _wide_to_byte)
"""16 bits to 8 by full range: 65535 becomes 255, and the rest is rounded to the nearest."""
