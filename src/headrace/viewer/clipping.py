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
    """Return the parts of triangles on one side of a plane, as triangles, and which they are of.

    Parameters
    ----------
    corners
        (N, 3, D) floats.
    number
        The number of each triangle.
    distance
        (N, 3): how far each corner is from the plane, negative on the side that is cut off.
    """
    inside = distance >= 0
    count = inside.sum(axis=1)
    parts, numbers = [corners[count == 3]], [number[count == 3]]
    for kept in (1, 2):
        some = np.flatnonzero(count == kept)
        if not some.size:
            continue
        # Turned so that the corner that is alone on its side comes first.
        alone = (inside[some] == (kept == 1)).argmax(axis=1)
        order = some[:, None], (alone[:, None] + np.arange(3)) % 3
        given, far = corners[order], distance[order]
        # From the corners that are kept: the others may be so far away that nothing of their places would be left.
        kept_side, other = (slice(1), slice(1, 3)) if kept == 1 else (slice(1, 3), slice(1))
        begin, end = given[:, kept_side], given[:, other]
        share = far[:, kept_side] / (far[:, kept_side] - far[:, other])
        on_plane = begin + (end - begin) * share[..., None]
        if kept == 1:
            parts.append(np.concatenate([given[:, :1], on_plane], axis=1))
            numbers.append(number[some])
        else:
            parts.append(np.concatenate([on_plane[:, :1], given[:, 1:]], axis=1))
            parts.append(np.stack([on_plane[:, 0], given[:, 2], on_plane[:, 1]], axis=1))
            numbers += [number[some], number[some]]
    return np.concatenate(parts), np.concatenate(numbers)


def clip_triangles(
    corners: np.ndarray, number: np.ndarray, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of triangles near the picture, and which they are of; those without an area are left out."""
    finite = np.isfinite(corners).all(axis=(1, 2))
    corners, number = corners[finite], number[finite]
    for axis in (0, 1):
        for sign, limit in ((1, MARGIN), (-1, size[axis] + MARGIN)):
            if len(corners) and (sign * corners[..., axis]).min() < -limit:
                corners, number = cut(corners, number, sign * corners[..., axis] + limit)
    first, second = corners[:, 1, :2] - corners[:, 0, :2], corners[:, 2, :2] - corners[:, 0, :2]
    has_area = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]) > 1e-12
    return corners[has_area], number[has_area]


def squares(xy: np.ndarray, size: float) -> np.ndarray:
    """Return the pixels of squares around points: left, top, and right and bottom, which are beyond them."""
    side = min(max(1, round(min(size, 1e9))), 10**9)
    begin = np.floor(np.clip(xy, -1e9, 1e9) - (side - 1) / 2)
    return np.concatenate([begin, begin + side], axis=1)


def quads(ends: np.ndarray, half: float) -> np.ndarray:
    """Return the four corners of lines, (N, 2, D), of twice a width; they end by half of it beyond their ends."""
    along = ends[:, 1, :2] - ends[:, 0, :2]
    length = np.hypot(along[:, 0], along[:, 1])[:, None]
    step = np.where(length > 0, along / np.maximum(length, 1e-12), [1.0, 0.0]) * half
    side = step[:, ::-1] * [-1, 1]
    corners = ends[:, [0, 1, 1, 0]].copy()
    for place, (before, beside) in enumerate([(-1, 1), (1, 1), (1, -1), (-1, -1)]):
        corners[:, place, :2] += before * step + beside * side
    return corners


def is_straight(ends: np.ndarray) -> np.ndarray:
    """Return which lines are horizontal or vertical."""
    straight: np.ndarray = (np.abs(ends[:, 1, :2] - ends[:, 0, :2]) < 1e-3).any(axis=1)
    return straight


def straight(ends: np.ndarray, width: float, size: tuple[int, int]) -> np.ndarray:
    """Return the pixels of horizontal and vertical lines: left, top, and right and bottom, which are beyond."""
    thickness = min(max(1, round(min(width, 1e9))), 10**9)
    # A line on the right or lower edge of the picture is drawn in its last column or row.
    low, high = ends.min(axis=1), ends.max(axis=1)
    low, high = (
        np.where((at >= size) & (at <= np.add(size, 1e-3)), np.subtract(size, 1), at) for at in (low, high)
    )
    before, middle = (thickness - 1) // 2, 0.0
    if thickness % 2 == 0:
        before, middle = thickness // 2, 0.5
    first, last = np.floor(low + middle) - before, np.floor(high + middle) - before + thickness
    return np.concatenate([first, last], axis=1)


def clip_lines(
    start: np.ndarray, end: np.ndarray, width: float, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of lines that are near the picture, (N, 2, D), and which they are of (Liang and Barsky)."""
    number = np.flatnonzero(np.isfinite(start).all(axis=1) & np.isfinite(end).all(axis=1))
    start, direction = start[number], end[number] - start[number]
    margin = min(width, THICKEST) + 2
    enter, leave = np.zeros(len(start)), np.ones(len(start))
    is_inside = np.ones(len(start), bool)
    for axis in (0, 1):
        low, high = -margin, size[axis] + margin
        d, s = direction[:, axis], start[:, axis]
        still = d == 0
        is_inside &= ~still | ((s >= low) & (s <= high))
        safe = np.where(still, 1, d)
        t0, t1 = (low - s) / safe, (high - s) / safe
        enter = np.where(still, enter, np.maximum(enter, np.minimum(t0, t1)))
        leave = np.where(still, leave, np.minimum(leave, np.maximum(t0, t1)))
    kept = np.flatnonzero(is_inside & (enter <= leave))
    start, direction = start[kept, None], direction[kept, None]
    return start + direction * np.stack([enter, leave], axis=1)[kept, :, None], number[kept]
