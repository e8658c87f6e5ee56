"""Bilinear demosaicking of a Bayer mosaic.

A missing colour is the rounded mean of the two or four nearest samples of that colour. The mosaic is continued
beyond its border by mirroring it about the outermost row or column (row -1 is row 1), which keeps its pattern:
every mean is one of samples of the right colour.

In CUDA, a thread computes a cell of 2×2 pixels from the 4×4 samples around it.

On the host, OpenCV computes the frame where it is installed: the same means, 5 to 10 times as fast as NumPy. A
probe makes sure that an installed OpenCV gives the same bits, since vendors replace parts of it.

Without OpenCV, NumPy computes bands of rows one by one, so that what a band needs stays in the processor's cache:
that is twice as fast as whole frames. Computing each mean only where it is needed, on the four half-size planes of
the mosaic, is no faster: most of the time goes into storing the interleaved channels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators.arrays import Routine

__all__ = ["DEMOSAIC", "RED_AT"]

RED_AT = {0: (1, 1), 1: (0, 0), 2: (1, 0), 3: (0, 1)}
"""The row and the column of red in a cell, by `bayer_grid_pos`: BGGR, RGGB, GBRG, GRBG."""

_PATTERNS = {(1, 1): "BGGR", (0, 0): "RGGB", (1, 0): "GBRG", (0, 1): "GRBG"}

_SOURCE = r"""
typedef unsigned ELEMENT sample;

extern "C" __global__ void demosaic(
    sample* out, const sample* mosaic, int rows, int columns, int channels, int red_row, int red_column, int alpha
) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    int cells_in_row = columns / 2;
    if (cell >= rows / 2 * cells_in_row) return;
    int top = cell / cells_in_row * 2, left = cell % cells_in_row * 2;

    unsigned near[4][4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = top + i - 1;
        row = row < 0 ? 1 : row >= rows ? rows - 2 : row;
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            int column = left + j - 1;
            column = column < 0 ? 1 : column >= columns ? columns - 2 : column;
            near[i][j] = mosaic[(long long)row * columns + column];
        }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            unsigned own = near[i + 1][j + 1];
            unsigned beside = near[i + 1][j] + near[i + 1][j + 2];
            unsigned above = near[i][j + 1] + near[i + 2][j + 1];
            unsigned cross = (beside + above + 2) / 4;
            unsigned corners = (near[i][j] + near[i][j + 2] + near[i + 2][j] + near[i + 2][j + 2] + 2) / 4;
            beside = (beside + 1) / 2;
            above = (above + 1) / 2;
            bool in_red_row = i == red_row, in_red_column = j == red_column;
            bool is_green = in_red_row != in_red_column;
            unsigned red = is_green ? (in_red_row ? beside : above) : in_red_row ? own : corners;
            unsigned green = is_green ? own : cross;
            unsigned blue = is_green ? (in_red_row ? above : beside) : in_red_row ? corners : own;
            sample* pixel = out + ((long long)(top + i) * columns + left + j) * channels;
            pixel[0] = red;
            pixel[1] = green;
            pixel[2] = blue;
            if (channels == 4) pixel[3] = alpha;
        }
    }
}
"""

_BAND = 32  # rows

Array = np.ndarray[Any, Any]


def _demosaic(
    out: Array,
    mosaic: Array,
    rows: int,
    columns: int,
    channels: int,
    red_row: int,
    red_column: int,
    alpha: int,
) -> None:
    _with_numpy(out, mosaic.reshape(rows, columns), red_row, red_column, alpha)


def _demosaic_with_opencv(
    out: Array,
    mosaic: Array,
    rows: int,
    columns: int,
    channels: int,
    red_row: int,
    red_column: int,
    alpha: int,
) -> bool:
    pattern = _PATTERNS[int(red_row), int(red_column)]
    return _agrees() and with_opencv.demosaic(out, mosaic.reshape(rows, columns), pattern, alpha)


@lru_cache(maxsize=1)
def _agrees() -> bool:
    """Return whether OpenCV, if it is installed, computes the same means."""
    cv2 = with_opencv.opencv()
    if cv2 is None:
        return True
    source = np.random.default_rng(0)
    for dtype in (np.uint8, np.uint16):
        mosaic = source.integers(0, np.iinfo(dtype).max, (10, 150), dtype, endpoint=True)
        for channels in (3, 4):
            ours, theirs = (np.zeros((10, 150, channels), dtype) for _ in range(2))
            for red, pattern in _PATTERNS.items():
                _with_numpy(ours, mosaic, *red, 9)
                try:
                    with_opencv.demosaic(theirs, mosaic, pattern, 9)
                except cv2.error:
                    return False
                if not np.array_equal(ours, theirs):
                    return False
    return True


def _with_numpy(out: Array, mosaic: Array, red_row: int, red_column: int, alpha: int) -> None:
    """Demosaic a frame, band by band."""
    rows, columns = mosaic.shape
    wide = np.uint16 if mosaic.dtype == np.uint8 else np.uint32  # for the sum of four
    band = np.empty((min(_BAND, rows) + 2, columns + 2), wide)
    if out.shape[2] == 4:
        out[..., 3] = alpha
    for top in range(0, rows, _BAND):
        count = min(_BAND, rows - top)
        near = band[: count + 2]
        first, last = max(top - 1, 0), min(top + count + 1, rows)
        near[first - top + 1 : last - top + 1, 1:-1] = mosaic[first:last]
        if top == 0:
            near[0, 1:-1] = mosaic[1]
        if last == top + count:
            near[-1, 1:-1] = mosaic[-2]
        near[:, 0], near[:, -1] = near[:, 2], near[:, -3]
        _demosaic_band(out[top : top + count], near, red_row, red_column)


def _demosaic_band(out: Array, near: Array, red_row: int, red_column: int) -> None:
    """Demosaic some rows, from these rows with their neighbours in a wider type."""
    own = near[1:-1, 1:-1]
    beside = near[1:-1, :-2] + near[1:-1, 2:]
    pairs = near[:-2] + near[2:]
    above = pairs[:, 1:-1]
    cross = beside + above
    corners = pairs[:, :-2] + pairs[:, 2:]
    for mean, half, shift in ((cross, 2, 2), (corners, 2, 2), (beside, 1, 1), (pairs, 1, 1)):
        mean += half
        mean >>= shift
    at_red = (slice(red_row, None, 2), slice(red_column, None, 2))
    at_blue = (slice(1 - red_row, None, 2), slice(1 - red_column, None, 2))
    beside_red = (slice(red_row, None, 2), slice(1 - red_column, None, 2))
    beside_blue = (slice(1 - red_row, None, 2), slice(red_column, None, 2))
    for place, red, green, blue in (
        (at_red, own, cross, corners),
        (at_blue, corners, cross, own),
        (beside_red, beside, own, above),
        (beside_blue, above, own, beside),
    ):
        pixels = out[place]
        pixels[..., 0] = red[place]
        pixels[..., 1] = green[place]
        pixels[..., 2] = blue[place]


DEMOSAIC = {
    np.dtype(np.uint8): Routine(
        "demosaic", _SOURCE.replace("ELEMENT", "char"), _demosaic, _demosaic_with_opencv
    ),
    np.dtype(np.uint16): Routine(
        "demosaic", _SOURCE.replace("ELEMENT", "short"), _demosaic, _demosaic_with_opencv
    ),
}
