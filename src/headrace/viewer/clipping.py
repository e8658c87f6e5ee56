"""Clipping: the parts of shapes that are near the picture, and the pixels of those that lie along its axes.

Places are in pixels: the first pixel is from 0 to 1. What is far outside is cut off, so that what is left fits the
integers and the single precision of OpenCV.

It is ours, since OpenCV clips no triangles, and lines one at a time and only to integers, without their depth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MARGIN = 4096
"""The pixels around a picture that triangles are cut at."""

THICKEST = 32767
"""OpenCV's limit for the width of lines."""


class Box(NamedTuple):
    """The part of the picture that may be drawn to, in pixels; `right` and `bottom` are beyond it."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def size(self) -> tuple[int, int]:
        """The number of columns and rows."""
        return max(0, self.right - self.left), max(0, self.bottom - self.top)


def cut(corners: np.ndarray, number: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of points, lines or triangles on one side of a plane, and which they are of.

    Parameters
    ----------
    corners
        (N, 1, 2 or 3, D) floats.
    number
        The number of each shape.
    distance
        (N, 1, 2 or 3): how far each corner is from the plane, negative on the side that is cut off.
    """
    inside = distance >= 0
    count, size = inside.sum(axis=1), corners.shape[1]
    parts, numbers = [corners[count == size]], [number[count == size]]
    for kept in range(1, size):
        some = np.flatnonzero(count == kept)
        if not some.size:
            continue
        # Turned so that the corner that is alone on its side comes first.
        alone = (inside[some] == (kept == 1)).argmax(axis=1)
        order = some[:, None], (alone[:, None] + np.arange(size)) % size
        given, far = corners[order], distance[order]
        # From the corners that are kept: the others may be so far away that nothing of their places would be left.
        kept_side, other = (slice(1), slice(1, 3)) if kept == 1 else (slice(1, 3), slice(1))
        begin, end = given[:, kept_side], given[:, other]
        share = far[:, kept_side] / (far[:, kept_side] - far[:, other])
        on_plane = begin + (end - begin) * share[..., None]
        if kept == 1:
            parts.append(np.concatenate([given[:, :1], on_plane], axis=1))
        else:
            parts.append(np.concatenate([on_plane[:, :1], given[:, 1:]], axis=1))
            parts.append(np.stack([on_plane[:, 0], given[:, 2], on_plane[:, 1]], axis=1))
        numbers += [number[some]] * kept
    return np.concatenate(parts), np.concatenate(numbers)


def clip(
    corners: np.ndarray, number: np.ndarray, size: tuple[int, int], margin: float = MARGIN
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of lines or triangles near the picture, and which they are of.

    Triangles without an area are left out.
    """
    finite = np.isfinite(corners).all(axis=(1, 2))
    corners, number = corners[finite], number[finite]
    for axis in (0, 1):
        for sign, limit in ((1, margin), (-1, size[axis] + margin)):
            if len(corners) and (sign * corners[..., axis]).min() < -limit:
                corners, number = cut(corners, number, sign * corners[..., axis] + limit)
    if corners.shape[1] < 3:
        return corners, number
    first, second = corners[:, 1, :2] - corners[:, 0, :2], corners[:, 2, :2] - corners[:, 0, :2]
    has_area = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]) > 1e-12
    return corners[has_area], number[has_area]


def squares(xy: np.ndarray, size: float) -> np.ndarray:
    """Return the pixels of squares around points: left, top, and right and bottom, which are beyond them."""
    side = min(max(1, round(min(size, 1e9))), 10**9)
    begin = np.floor(np.clip(xy, -1e9, 1e9) - (side - 1) / 2)
    return np.concatenate([begin, begin + side], axis=1)


def quads(ends: np.ndarray, half: np.ndarray | float) -> np.ndarray:
    """Return the four corners of lines, (N, 2, D), of twice a width; they end by half of it beyond their ends."""
    along = ends[:, 1, :2] - ends[:, 0, :2]
    length = np.hypot(along[:, 0], along[:, 1])[:, None]
    step = np.where(length > 0, along / np.maximum(length, 1e-12), [1.0, 0.0]) * half
    side = step[:, ::-1] * [-1, 1]
    corners = ends[:, [0, 1, 1, 0]].copy()
    for place, (before, beside) in enumerate([(-1, 1), (1, 1), (1, -1), (-1, -1)]):
        corners[:, place, :2] += before * step + beside * side
    return corners


def straight(ends: np.ndarray, width: float, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, int]:
    """Return which lines are horizontal or vertical, and the pixels and the thickness of those.

    The pixels are left, top, and right and bottom, which are beyond them.
    """
    is_straight = (np.abs(ends[:, 1, :2] - ends[:, 0, :2]) < 1e-3).any(axis=1)
    thickness = min(max(1, round(min(width, 1e9))), 10**9)
    places = ends[is_straight, :, :2]
    # A line on the right or lower edge of the picture is drawn in its last column or row.
    on_edge = (places >= size) & (places <= np.add(size, 1e-3))
    places = np.where(on_edge, np.subtract(size, 1), places)
    before, middle = (thickness // 2, 0.5) if thickness % 2 == 0 else ((thickness - 1) // 2, 0.0)
    first = np.floor(places.min(axis=1) + middle) - before
    last = np.floor(places.max(axis=1) + middle) - before + thickness
    return is_straight, np.concatenate([first, last], axis=1), thickness


def clip_lines(
    ends: np.ndarray, number: np.ndarray, width: float, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of lines, (N, 2, D), of a width that are near the picture, and which they are of."""
    return clip(ends, number, size, min(width, THICKEST) + 2)
