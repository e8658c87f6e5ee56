"""Resampling of images: each output pixel is a weighted sum of input pixels, first over rows, then over columns.

A filter is a table of input positions and weights for each output row, and one for each output column. The
tables are computed once on the host, in double precision, so that a GPU and the host use the same numbers. The
sums are in single precision, in the same order on both. Positions beyond the border take the outermost pixel.

On the host OpenCV resizes where it is installed and knows the filter. Its weights have 11 binary digits, and ours
24: its pixels differ by at most 1.

The centres of pixels are at half-integers, as in OpenCV and Pillow: output position ``x`` looks at
``(x + 0.5) * scale - 0.5``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators._routines.conversion import COPY, TO_FLOAT, unpack_order
from headrace.operators.arrays import Routine

__all__ = ["FILTERS", "RESAMPLE", "Filter", "Taps", "make_taps"]

Array = np.ndarray[Any, Any]


class Filter(NamedTuple):
    """How to resample.

    Attributes
    ----------
    name
        Its name, for errors.
    support
        The distance in pixels beyond which the weight is 0.
    weight
        The weight at a distance.
    antialias
        Whether the filter is stretched when an image shrinks, so that every input pixel counts.
    """

    name: str
    support: float
    weight: Callable[[Array], Array]
    antialias: bool = False


class Taps(NamedTuple):
    """For each output position, the input positions and their weights."""

    positions: Array
    weights: Array


def make_taps(how: Filter, source: int, target: int) -> Taps:
    """Return the table of a filter for one axis."""
    scale = source / target
    if how.name == "nearest":
        nearest = (2 * np.arange(target) + 1) * source // (2 * target)  # exact, also between two pixels
        return Taps(nearest.astype(np.int32)[:, None], np.ones((target, 1), np.float32))
    if how.name == "super":
        return _area(source, target)
    stretch = max(scale, 1.0) if how.antialias else 1.0
    centres = (np.arange(target) + 0.5) * scale - 0.5
    first = np.floor(centres - how.support * stretch).astype(np.int64) + 1
    count = math.ceil(2 * how.support * stretch) + (1 if how.antialias else 0)
    positions = first[:, None] + np.arange(count)
    weights = how.weight(np.abs(positions - centres[:, None]) / stretch)
    if how.antialias:  # beyond the border there is nothing to weigh
        weights[(positions < 0) | (positions >= source)] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    return Taps(np.clip(positions, 0, source - 1).astype(np.int32), weights.astype(np.float32))


def _area(source: int, target: int) -> Taps:
    """Return the shares of the input pixels in each output pixel's area."""
    scale = source / target
    begin = np.arange(target) * scale
    end = begin + scale
    first = np.floor(begin + 1e-9).astype(np.int64)
    positions = first[:, None] + np.arange(math.ceil(scale) + 1)
    shares = np.minimum(positions + 1, end[:, None]) - np.maximum(positions, begin[:, None])
    shares = np.where(shares > 1e-9, shares, 0)
    shares[positions >= source] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    used = int(np.flatnonzero(shares.max(axis=0))[-1]) + 1
    positions, shares = positions[:, :used], shares[:, :used]
    return Taps(np.minimum(positions, source - 1).astype(np.int32), shares.astype(np.float32))


def _linear(x: Array) -> Array:
    weights: Array = np.maximum(1 - x, 0)
    return weights


def _cubic(x: Array) -> Array:
    """Return Keys' cubic with a = -0.75, as OpenCV's."""
    a = -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _two_parameters(b: float, c: float) -> Callable[[Array], Array]:
    """Return the cubic of Mitchell and Netravali."""

    def weight(x: Array) -> Array:
        near = (12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + 6 - 2 * b
        far = (-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x + 8 * b + 24 * c
        return np.where(x < 1, near, np.where(x < 2, far, 0)) / 6

    return weight


def _lanczos(lobes: int) -> Callable[[Array], Array]:
    return lambda x: np.where(x < lobes, np.sinc(x) * np.sinc(x / lobes), 0)


FILTERS = {
    1: Filter("nearest", 0.5, _linear),
    2: Filter("linear", 1, _linear),
    4: Filter("cubic", 2, _cubic),
    5: Filter("cubic B-spline", 2, _two_parameters(1, 0)),
    6: Filter("Catmull-Rom", 2, _two_parameters(0, 0.5)),
    7: Filter("cubic B05C03", 2, _two_parameters(0.5, 0.3)),
    8: Filter("super", 0.5, _linear),
    16: Filter("Lanczos", 4, _lanczos(4)),
    17: Filter("Lanczos 3", 3, _lanczos(3), antialias=True),
}
"""The filters, by the number of `resize_mode`."""

_SOURCE = r"""
typedef OUTPUT output_element;

__device__ output_element convert_byte(unsigned value, float scale, float offset) { BODY }

// A byte as a float, by the bits of 2^23 + value: the instruction that converts has a quarter of the throughput.
__device__ float float_of(unsigned char value) {
    return __fsub_rn(__int_as_float(0x4b000000u | value), 8388608.0f);
}

__device__ unsigned byte_of(float sum) {
    return (unsigned)floorf(fminf(fmaxf(__fadd_rn(sum, 0.5f), 0.0f), 255.0f));
}

// Returns the channels of a pixel, a byte each. With few taps, known when this is compiled, all pixels are loaded
// at once; otherwise each load waits for the one that tells its position.
template <int CHANNELS, int TAPS>
__device__ unsigned weigh_few(
    const unsigned char* in, int in_columns, int row, int column,
    const int* row_positions, const float* row_weights, const int* column_positions, const float* column_weights
) {
    float shares[TAPS];
    const unsigned char* lines[TAPS];
    #pragma unroll
    for (int j = 0; j < TAPS; j++) {
        shares[j] = row_weights[row * TAPS + j];
        lines[j] = in + (long long)row_positions[row * TAPS + j] * in_columns * CHANNELS;
    }
    float sums[CHANNELS] = {};
    #pragma unroll
    for (int i = 0; i < TAPS; i++) {
        float weight = column_weights[column * TAPS + i];
        int left = column_positions[column * TAPS + i] * CHANNELS;
        #pragma unroll
        for (int channel = 0; channel < CHANNELS; channel++) {
            float part = 0;
            #pragma unroll
            for (int j = 0; j < TAPS; j++)
                part = __fadd_rn(part, __fmul_rn(float_of(lines[j][left + channel]), shares[j]));
            sums[channel] = __fadd_rn(sums[channel], __fmul_rn(part, weight));
        }
    }
    unsigned pixel = 0;
    #pragma unroll
    for (int channel = 0; channel < CHANNELS; channel++) pixel |= byte_of(sums[channel]) << 8 * channel;
    return pixel;
}

__device__ unsigned weigh_many(
    const unsigned char* in, int in_columns, int row, int column, int channels,
    const int* row_positions, const float* row_weights, int row_taps,
    const int* column_positions, const float* column_weights, int column_taps
) {
    float sums[4] = {0, 0, 0, 0};
    for (int i = 0; i < column_taps; i++) {
        float weight = column_weights[column * column_taps + i];
        if (weight == 0) continue;
        const unsigned char* top = in + (long long)column_positions[column * column_taps + i] * channels;
        float parts[4] = {0, 0, 0, 0};
        for (int j = 0; j < row_taps; j++) {
            float share = row_weights[row * row_taps + j];
            const unsigned char* from =
                top + (long long)row_positions[row * row_taps + j] * in_columns * channels;
            #pragma unroll
            for (int channel = 0; channel < 4; channel++)
                if (channel < channels)
                    parts[channel] = __fadd_rn(parts[channel], __fmul_rn(float_of(from[channel]), share));
        }
        #pragma unroll
        for (int channel = 0; channel < 4; channel++)
            sums[channel] = __fadd_rn(sums[channel], __fmul_rn(parts[channel], weight));
    }
    unsigned pixel = 0;
    #pragma unroll
    for (int channel = 0; channel < 4; channel++)
        if (channel < channels) pixel |= byte_of(sums[channel]) << 8 * channel;
    return pixel;
}

#define FEW(CHANNELS, TAPS) \
    if (channels == CHANNELS && row_taps == TAPS && column_taps == TAPS) \
        pixel = weigh_few<CHANNELS, TAPS>( \
            in, in_columns, row, column, row_positions, row_weights, column_positions, column_weights \
        ); \
    else

extern "C" __global__ void resample(
    output_element* __restrict__ out, const unsigned char* __restrict__ in,
    const int* __restrict__ row_positions, const float* __restrict__ row_weights,
    const int* __restrict__ column_positions, const float* __restrict__ column_weights,
    int row_taps, int column_taps, int in_columns, int rows, int columns,
    int channels, int out_channels, int order, float scale, float offset, int alpha
) {
    unsigned number = blockIdx.x * blockDim.x + threadIdx.x;  // dividing 64 bits would take most of the time
    if (number >= (unsigned)rows * columns) return;
    int row = number / columns, column = number % columns;
    unsigned pixel;
    FEW(3, 2) FEW(4, 2) FEW(1, 2) FEW(3, 4) FEW(4, 4) FEW(1, 4)
    pixel = weigh_many(
        in, in_columns, row, column, channels, row_positions, row_weights, row_taps, column_positions,
        column_weights, column_taps
    );
    output_element* to = out + (long long)number * out_channels;
    #pragma unroll
    for (int channel = 0; channel < 4; channel++) {
        if (channel >= out_channels) break;
        int taken = order >> 8 * channel & 255;
        to[channel] = taken < channels
            ? convert_byte(pixel >> 8 * taken & 255, scale, offset) : (output_element)alpha;
    }
}
"""

_BAND = 16  # output rows at a time, so that they stay in the processor's cache


def _resample(
    out: Array,
    image: Array,
    row_positions: Array,
    row_weights: Array,
    column_positions: Array,
    column_weights: Array,
    row_taps: int,
    column_taps: int,
    in_columns: int,
    rows: int,
    columns: int,
    channels: int,
) -> None:
    out = out.reshape(rows, columns, channels)
    image = image.reshape(-1, in_columns, channels)
    if row_taps == column_taps == 1:
        np.take(image[row_positions[:, 0]], column_positions[:, 0], axis=1, out=out)
        return
    lines = image.reshape(len(image), -1)
    weights = [np.repeat(column_weights[:, tap], channels) for tap in range(column_taps)]
    for top in range(0, int(rows), _BAND):
        band = slice(top, top + _BAND)
        parts = np.multiply(lines[row_positions[band, 0]], row_weights[band, 0, None], dtype=np.float32)
        for tap in range(1, row_taps):
            parts += np.multiply(
                lines[row_positions[band, tap]], row_weights[band, tap, None], dtype=np.float32
            )
        parts = parts.reshape(len(parts), in_columns, channels)
        sums: Any = 0
        for tap in range(column_taps):
            taken = parts.take(column_positions[:, tap], axis=1).reshape(len(parts), -1)
            taken *= weights[tap]
            sums = taken if tap == 0 else np.add(sums, taken, out=sums)
        sums += np.float32(0.5)
        np.clip(sums, 0, 255, out=sums)
        out[band] = sums.reshape(len(parts), columns, channels)  # truncated: floor of what is not negative


def _routine(name: str, target_type: str, body: str, convert: Routine) -> Routine:
    def resample(
        out: Array,
        image: Array,
        row_positions: Array,
        row_weights: Array,
        column_positions: Array,
        column_weights: Array,
        row_taps: int,
        column_taps: int,
        in_columns: int,
        rows: int,
        columns: int,
        channels: int,
        out_channels: int,
        order: int,
        *scaling: Any,
    ) -> None:
        is_copy = out.dtype == np.uint8 and unpack_order(order, out_channels) == list(range(channels))
        resized = out if is_copy else np.empty((rows, columns, channels), np.uint8)
        tables = (row_positions, row_weights, column_positions, column_weights, row_taps, column_taps)
        _resample(resized, image, *tables, in_columns, rows, columns, channels)
        if not is_copy:
            convert.numpy(out, resized, int(rows) * int(columns), channels, out_channels, order, *scaling)

    def resample_with_opencv(
        out: Array,
        image: Array,
        row_positions: Array,
        row_weights: Array,
        column_positions: Array,
        column_weights: Array,
        row_taps: int,
        column_taps: int,
        in_columns: int,
        rows: int,
        columns: int,
        channels: int,
        out_channels: int,
        order: int,
        *scaling: Any,
    ) -> bool:
        is_copy = out.dtype == np.uint8 and unpack_order(order, out_channels) == list(range(channels))
        resized = (
            out.reshape(rows, columns, channels) if is_copy else np.empty((rows, columns, channels), np.uint8)
        )
        positions = row_positions[:, 0], column_positions[:, 0]
        if not with_opencv.resize(resized, image.reshape(-1, in_columns, channels), name, positions):
            return False
        if not is_copy:
            convert.host(out, resized, int(rows) * int(columns), channels, out_channels, order, *scaling)
        return True

    source = _SOURCE.replace("OUTPUT", target_type).replace("BODY", body)
    return Routine("resample", source, resample, resample_with_opencv)


RESAMPLE = {
    (np.dtype(element), how.name): _routine(how.name, target, body, convert)
    for how in FILTERS.values()
    for element, target, body, convert in (
        (np.uint8, "unsigned char", "return value;", COPY[np.dtype(np.uint8)]),
        (np.float32, "float", "return __fadd_rn(__fmul_rn((float)value, scale), offset);", TO_FLOAT),
    )
}
"""Resample an image of bytes with up to 4 channels, and convert the result as `COPY` or `TO_FLOAT` would.

By the type of the result and the name of the filter, which only the host asks for. A thread computes a pixel.
"""
