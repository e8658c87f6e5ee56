"""Bilinear demosaicking of a Bayer mosaic.

A missing colour is the rounded mean of the two or four nearest samples of that colour. The mosaic is continued
beyond its border by mirroring it about the outermost row or column (row -1 is row 1), which keeps its pattern:
every mean is one of samples of the right colour.

In CUDA, a thread computes a cell of 2×2 pixels from the 4×4 samples around it.

On the host, OpenCV computes the frame where it is installed: the same means, 5 to 10 times as fast as NumPy.

NumPy is the reference, which the simulated device runs, and the host where there is no OpenCV. It computes each
mean for all pixels: computing it only where it is needed, on the four half-size planes of the mosaic, is no
faster, since most of the time goes into storing the interleaved channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators.arrays import Routine
from headrace.video.scene import BAYER_PATTERNS

RED_AT = {number: divmod(name.index("R"), 2) for number, name in BAYER_PATTERNS.items()}
"""The row and the column of red in a cell, by `bayer_grid_pos`."""

_PATTERNS = {RED_AT[number]: name for number, name in BAYER_PATTERNS.items()}

Array = np.ndarray[Any, Any]


def _demosaic(out: Array, mosaic: Array, *numbers: int) -> None:
    rows, columns, channels, red_row, red_column, alpha = map(int, numbers)
    wide = np.uint16 if mosaic.dtype == np.uint8 else np.uint32  # for the sum of four
    near = np.pad(mosaic.reshape(rows, columns).astype(wide), 1, "reflect")
    own = near[1:-1, 1:-1]
    beside = near[1:-1, :-2] + near[1:-1, 2:]
    pairs = near[:-2] + near[2:]
    above = pairs[:, 1:-1]
    cross = beside + above
    corners = pairs[:, :-2] + pairs[:, 2:]
    for mean, half, shift in ((cross, 2, 2), (corners, 2, 2), (beside, 1, 1), (pairs, 1, 1)):
        mean += half
        mean >>= shift
    # The three colours where a row and a column have red or not.
    colours = {
        (True, True): (own, cross, corners),
        (False, False): (corners, cross, own),
        (True, False): (beside, own, above),
        (False, True): (above, own, beside),
    }
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        place = (slice(row, None, 2), slice(column, None, 2))
        for channel, colour in enumerate(colours[row == red_row, column == red_column]):
            out[place][..., channel] = colour[place]
    if channels == 4:
        out[..., 3] = alpha


def _demosaic_with_opencv(out: Array, mosaic: Array, *numbers: int) -> bool:
    rows, columns, _, red_row, red_column, alpha = map(int, numbers)
    pattern = _PATTERNS[red_row, red_column]
    return with_opencv.demosaic(out, mosaic.reshape(rows, columns), pattern, alpha)


DEMOSAIC = {
    np.dtype(element): Routine("demosaic", _demosaic, _demosaic_with_opencv, {"SAMPLE": name})
    for element, name in ((np.uint8, "unsigned char"), (np.uint16, "unsigned short"))
}
