"""YUV: the layouts of pictures with luma and chroma, and the standards that they are coded by."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

LUMA_WEIGHTS = {"601": (0.299, 0.114), "709": (0.2126, 0.0722), "2020": (0.2627, 0.0593)}
"""The shares of red and of blue in luma, by the number of the ITU's standard; green has the rest."""


def rgb_factors(standard: str) -> tuple[float, float, float, float]:
    """Return V's factor in red, U's and V's in green, and U's in blue; luma is 0 to 1, and chroma -0.5 to 0.5.

    Parameters
    ----------
    standard
        The number of the ITU's standard: ``"601"``, ``"709"`` or ``"2020"``.
    """
    red, blue = LUMA_WEIGHTS[standard]
    green = 1 - red - blue
    return 2 * (1 - red), -2 * blue * (1 - blue) / green, -2 * red * (1 - red) / green, 2 * (1 - blue)


def yuv_planes(picture: Array, layout: str, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Return the luma plane and the two chroma planes, these with fewer rows and columns; nothing is copied.

    Parameters
    ----------
    picture
        The elements of the picture.
    layout
        ``"yuyv"`` or ``"uyvy"``; or planes, ``"2plane_420"``, ``"3plane_422"`` and so on: the chroma is that of 2
        columns and 2 rows, or of 2 columns.
    rows, columns
        The size of the luma.
    """
    data = picture.reshape(-1)
    if layout in ("yuyv", "uyvy"):
        quads, first = data.reshape(rows, columns // 2, 4), int(layout == "uyvy")
        return data.reshape(rows, columns, 2)[..., first], quads[..., 1 - first], quads[..., 3 - first]
    luma, chroma = data[: rows * columns].reshape(rows, columns), data[rows * columns :]
    chroma_rows = rows // 2 if layout.endswith("420") else rows
    if layout.startswith("2plane"):
        pairs = chroma.reshape(chroma_rows, columns // 2, 2)
        return luma, pairs[..., 0], pairs[..., 1]
    u, v = chroma.reshape(2, chroma_rows, columns // 2)
    return luma, u, v
