"""Points, lines and triangles, drawn by OpenCV to a picture or to a mask.

Lines that are not horizontal or vertical are smoothed at their edges. Horizontal and vertical ones, and points,
cover whole pixels: smoothed, a line of one pixel would become a grey one of two. A triangle covers its edges too,
so that neighbours leave no gap.

`target` is the part of a picture or of a mask that may be drawn to, and places are relative to it, in pixels: the
first pixel is from 0 to 1. Shapes that reach far beyond it are cut, so that they fit OpenCV's integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.viewer.opencv import opencv

_SHIFT = 8  # binary digits after the point of OpenCV's coordinates
# Pixels around a picture, beyond which shapes are cut: OpenCV draws the edges of long ones less exactly.
_MARGIN = 64
_THICKEST = 32767  # line of OpenCV
# OpenCV's smoothed lines are up to two pixels too wide. So all but the thinnest are drawn as polygons, whose
# smoothed edges add this to their width. OpenCV's thinnest line is as wide.
_SMOOTHED = 1.33
_THINNEST = 1.7


def draw_shapes(target: np.ndarray, color: Any, corners: np.ndarray, size: float) -> None:
    """Draw points, lines or triangles: (N, 1, 2 or 3, 2) corners; points and lines of a size in pixels."""
    cv2, extent = opencv(), (target.shape[1], target.shape[0])
    corners = corners[np.isfinite(corners).all(axis=(1, 2))]
    if corners.shape[1] == 1:
        _fill(target, color, _squares(corners[:, 0], size))
    elif corners.shape[1] == 3:
        for polygon in _near(corners, extent):
            cv2.fillConvexPoly(target, polygon, color, cv2.LINE_8, _SHIFT)
    else:
        is_straight = (np.abs(corners[:, 1] - corners[:, 0]) < 1e-3).any(axis=1)
        _fill(target, color, _straight(corners[is_straight], size, extent))
        slanted = corners[~is_straight]
        if size >= _THINNEST:
            for polygon in _near(_quads(slanted, (min(size, _THICKEST) - _SMOOTHED) / 2), extent):
                cv2.fillConvexPoly(target, polygon, color, cv2.LINE_AA, _SHIFT)
        elif len(slanted):
            cv2.polylines(target, _near(slanted, extent), False, color, 1, cv2.LINE_AA, _SHIFT)


def _near(polygons: np.ndarray, extent: tuple[int, int]) -> list[np.ndarray]:
    """Return the parts of polygons near the picture, as OpenCV's integers."""
    far = (np.abs(polygons - np.divide(extent, 2)) > np.divide(extent, 2) + _MARGIN).any(axis=(1, 2))
    cut = [part for polygon in polygons[far] if len(part := _cut(polygon, extent)) > 1]
    return [np.rint((each - 0.5) * (1 << _SHIFT)).astype(np.int32) for each in (*polygons[~far], *cut)]


def _cut(polygon: np.ndarray, extent: tuple[int, int]) -> np.ndarray:
    """Return the part of a convex polygon near the picture; OpenCV cuts in single precision."""
    for axis, sign, limit in ((0, 1, 0), (0, -1, extent[0]), (1, 1, 0), (1, -1, extent[1])):
        inside = sign * polygon[:, axis] + limit + _MARGIN
        kept: list[np.ndarray] = []
        for at in range(len(polygon)):
            if inside[at] >= 0:
                kept.append(polygon[at])
            following = (at + 1) % len(polygon)
            if (inside[at] >= 0) != (inside[following] >= 0):
                # From the corner that is kept: nothing would be left of its place beside one that is very far.
                near, other = (at, following) if inside[at] >= 0 else (following, at)
                share = inside[near] / (inside[near] - inside[other])
                kept.append(polygon[near] + (polygon[other] - polygon[near]) * share)
        polygon = np.reshape(kept, (-1, 2))
    return polygon


def _squares(places: np.ndarray, size: float) -> np.ndarray:
    """Return the pixels of squares around points: left, top, and right and bottom, which are beyond them."""
    side = min(max(1, round(min(size, 1e9))), 10**9)
    begin = np.floor(np.clip(places, -1e9, 1e9) - (side - 1) / 2)
    return np.concatenate([begin, begin + side], axis=1)


def _quads(ends: np.ndarray, half: float) -> np.ndarray:
    """Return the four corners of lines of twice a width, which end by half of it beyond their ends."""
    along = ends[:, 1] - ends[:, 0]
    step = along / np.hypot(*along.T)[:, None] * half
    side = step[:, ::-1] * [-1, 1]
    begin, end = ends[:, 0] - step, ends[:, 1] + step
    return np.stack([begin + side, end + side, end - side, begin - side], axis=1)


def _straight(ends: np.ndarray, width: float, extent: tuple[int, int]) -> np.ndarray:
    """Return the pixels of horizontal and vertical lines, as `_squares`."""
    thickness = min(max(1, round(min(width, 1e9))), 10**9)
    # A line on the right or lower edge of the picture is drawn in its last column or row.
    on_edge = (ends >= extent) & (ends <= np.add(extent, 1e-3))
    ends = np.where(on_edge, np.subtract(extent, 1), np.clip(ends, -1e9, 1e9))
    before, middle = (thickness // 2, 0.5) if thickness % 2 == 0 else ((thickness - 1) // 2, 0.0)
    first = np.floor(ends.min(axis=1) + middle) - before
    last = np.floor(ends.max(axis=1) + middle) - before + thickness
    return np.concatenate([first, last], axis=1)


def _fill(target: np.ndarray, color: Any, rectangles: np.ndarray) -> None:
    """Fill rectangles of whole pixels: left, top, right and bottom, the last two beyond them."""
    rows, columns = target.shape[:2]
    clipped = np.clip(rectangles, 0, [columns, rows, columns, rows]).astype(np.int64)
    clipped = clipped[(clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1])]
    for left, top, right, bottom in clipped.tolist():
        target[top:bottom, left:right] = color
