"""Points, lines and triangles without depth, drawn by OpenCV to a picture or to a mask.

Lines that are not horizontal or vertical are smoothed at their edges. Horizontal and vertical ones, and points,
cover whole pixels: smoothed, a line of one pixel would become a grey one of two. A triangle covers its edges too,
so that neighbours leave no gap.

`target` is the part of a picture or of a mask that may be drawn to, and places are relative to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.viewer.clipping import THICKEST, clip, clip_lines, quads, squares, straight
from headrace.viewer.opencv import opencv

_SHIFT = 8  # binary digits after the point of OpenCV's coordinates
# OpenCV's smoothed lines are up to two pixels too wide. So all but the thinnest are drawn as polygons, whose
# smoothed edges add this to their width (measured). OpenCV's thinnest line is as wide.
_SMOOTHED = 1.33
_THINNEST = 1.7


def draw_shapes(target: np.ndarray, color: Any, corners: np.ndarray, size: float) -> None:
    """Draw points, lines or triangles: (N, 1, 2 or 3, 2) corners; points and lines of a size in pixels."""
    cv2, number, extent = opencv(), np.arange(len(corners)), (target.shape[1], target.shape[0])
    if corners.shape[1] == 1:
        _fill(target, color, squares(corners[np.isfinite(corners).all(axis=(1, 2)), 0], size))
    elif corners.shape[1] == 3:
        for corner in _fixed(clip(corners, number, extent)[0]):
            cv2.fillConvexPoly(target, corner, color, cv2.LINE_8, _SHIFT)
    else:
        ends = clip_lines(corners, number, size, extent)[0]
        is_straight, rectangles, _ = straight(ends, size, extent)
        _fill(target, color, rectangles)
        slanted = ends[~is_straight]
        if size >= _THINNEST:
            for around in _fixed(quads(slanted, (min(size, THICKEST) - _SMOOTHED) / 2)):
                cv2.fillConvexPoly(target, around, color, cv2.LINE_AA, _SHIFT)
        elif len(slanted):
            cv2.polylines(target, list(_fixed(slanted)), False, color, 1, cv2.LINE_AA, _SHIFT)


def _fixed(places: np.ndarray) -> np.ndarray:
    """Return places as OpenCV's integers, which have some binary digits after the point."""
    fixed: np.ndarray = np.rint((places - 0.5) * (1 << _SHIFT)).astype(np.int32)
    return fixed


def _fill(target: np.ndarray, color: Any, rectangles: np.ndarray) -> None:
    """Fill rectangles of whole pixels: left, top, right and bottom, the last two beyond them."""
    rows, columns = target.shape[:2]
    clipped = np.clip(rectangles, 0, [columns, rows, columns, rows]).astype(np.int64)
    clipped = clipped[(clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1])]
    is_one = (clipped[:, 2] - clipped[:, 0] == 1) & (clipped[:, 3] - clipped[:, 1] == 1)
    target[clipped[is_one, 1], clipped[is_one, 0]] = color
    cv2 = opencv()
    for left, top, right, bottom in clipped[~is_one].tolist():
        cv2.rectangle(target, (left, top), (right - 1, bottom - 1), color, cv2.FILLED)
