"""Rasterisation: which pixels a shape covers, how much of each, and how deep it lies there.

Each function takes many shapes at once and returns :class:`Pixels`, so that the cost is that of the pixels touched
and not of the whole picture, and is spent in NumPy and not in Python.

Lines that are not horizontal or vertical are smoothed at their edges. Horizontal and vertical ones, and points,
cover whole pixels: smoothed, a line of one pixel would become a grey one of two. Triangles cover the pixels whose
centre they contain, so that neighbours neither overlap nor leave gaps. Pillow's drawing functions were decided
against: they do not smooth, know no depth, and hold the GIL.

Shapes that cover more than `_MOST` pixels together, such as thousands of large points, are rasterised part by part.
After each part, only the pixels that can be seen are kept, so that memory is bounded by the picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Box", "Pixels", "join", "lines", "points", "triangles"]


_MOST = 4_000_000  # pixels at a time


class Box(NamedTuple):
    """The part of the picture that may be drawn to, in pixels; `right` and `bottom` are beyond it."""

    left: int
    top: int
    right: int
    bottom: int
    stride: int
    """The width of the whole picture."""


class Pixels(NamedTuple):
    """Pixels that shapes cover.

    Attributes
    ----------
    at
        Each pixel's place in the picture, row by row. A pixel may occur several times.
    cover
        How much of it is covered, from 0 to 1.
    depth
        How deep the shape lies there.
    shape
        Which of the shapes it is.
    """

    at: np.ndarray
    cover: np.ndarray
    depth: np.ndarray
    shape: np.ndarray


def join(parts: list[Pixels]) -> Pixels:
    """Return the pixels of several parts as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Pixels(
            np.empty(0, np.intp), np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, np.intp)
        )
    return Pixels(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def points(xy: np.ndarray, depth: np.ndarray, size: float, box: Box) -> Pixels:
    """Return the pixels of squares around points."""
    side = max(1, round(size))
    is_finite = np.isfinite(xy).all(axis=1)
    shape = np.flatnonzero(is_finite)
    start = np.floor(_in_reach(xy[shape]) - (min(side, 1e9) - 1) / 2).astype(np.int64)
    return _rectangles(start, start + min(side, 10**9), depth[shape], shape, box)


def lines(
    start: np.ndarray, end: np.ndarray, depth0: np.ndarray, depth1: np.ndarray, width: float, box: Box
) -> Pixels:
    """Return the pixels of line segments."""
    finite = np.isfinite(start).all(axis=1) & np.isfinite(end).all(axis=1)
    shape = np.flatnonzero(finite)
    start, end, depth0, depth1 = start[shape], end[shape], depth0[shape], depth1[shape]
    start, end, depth0, depth1, kept = _clip(start, end, depth0, depth1, width, box)
    shape = shape[kept]
    # The differences of the pixels that both ends lie in: what is straight in pixels is drawn straight.
    flat = (np.abs(end - start) < 1e-3).any(axis=1)
    parts = []
    if flat.any():
        parts.append(_straight(start[flat], end[flat], depth0[flat], depth1[flat], width, shape[flat], box))
    if not flat.all():
        some = ~flat
        parts.append(_slanted(start[some], end[some], depth0[some], depth1[some], width, shape[some], box))
    return join(parts)


def triangles(corners: np.ndarray, depth: np.ndarray, box: Box) -> Pixels:
    """Return the pixels of triangles: (N, 3, 2) corners with (N, 3) depths."""
    shape = np.flatnonzero(np.isfinite(corners).all(axis=(1, 2)))
    corners, depth = corners[shape], depth[shape]
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    low = np.maximum(np.floor(corners.min(axis=1)), [box.left, box.top])
    high = np.minimum(np.ceil(corners.max(axis=1)), [box.right, box.bottom])
    kept = (np.abs(area) > 1e-12) & (high > low).all(axis=1)
    corners, depth, area, shape = corners[kept], depth[kept], area[kept], shape[kept]
    low, extent = low[kept].astype(np.int64), (high[kept] - low[kept]).astype(np.int64)
    if not shape.size:
        return join([])
    parts = []
    # Triangles of about the same size are tested together, on grids that fit the largest of them.
    size_class = np.ceil(np.log2(np.maximum(extent.max(axis=1), 1))).astype(np.int64)
    for level in np.unique(size_class):
        members = np.flatnonzero(size_class == level)
        width, height = extent[members].max(axis=0)
        chunk = max(1, 2_000_000 // int(width * height))
        for first in range(0, members.size, chunk):
            some = members[first : first + chunk]
            parts.append(
                _triangle_grid(
                    corners[some],
                    depth[some],
                    area[some],
                    low[some],
                    extent[some],
                    (int(width), int(height)),
                    shape[some],
                    box,
                )
            )
    return join(parts)


def _triangle_grid(
    corners: np.ndarray,
    depth: np.ndarray,
    area: np.ndarray,
    low: np.ndarray,
    extent: np.ndarray,
    size: tuple[int, int],
    shape: np.ndarray,
    box: Box,
) -> Pixels:
    width, height = size
    x = low[:, 0, None, None] + np.arange(width)[None, None, :]
    y = low[:, 1, None, None] + np.arange(height)[None, :, None]
    inside = (np.arange(width)[None, None, :] < extent[:, 0, None, None]) & (
        np.arange(height)[None, :, None] < extent[:, 1, None, None]
    )
    weights = []
    for place in range(3):
        (x0, y0), (x1, y1) = corners[:, (place + 1) % 3].T, corners[:, (place + 2) % 3].T
        dx, dy = ((x1 - x0) / area)[:, None, None], ((y1 - y0) / area)[:, None, None]
        weight = dx * (y + 0.5 - y0[:, None, None]) - dy * (x + 0.5 - x0[:, None, None])
        # A pixel centre on an edge belongs to the triangle on one side of it.
        owns = (dy < 0) | ((dy == 0) & (dx > 0))
        inside &= np.where(owns, weight >= 0, weight > 0)
        weights.append(weight)
    which, row, column = np.nonzero(inside)
    z = sum(weights[place][which, row, column] * depth[which, place] for place in range(3))
    index = (low[which, 1] + row) * box.stride + low[which, 0] + column
    return Pixels(index, np.ones(index.size, np.float32), np.asarray(z, np.float32).reshape(-1), shape[which])


def _in_reach(xy: np.ndarray) -> np.ndarray:
    """Return coordinates that integers can hold; what is this far away is outside of every picture."""
    reachable: np.ndarray = np.clip(xy, -1e9, 1e9)
    return reachable


def _rectangles(start: np.ndarray, end: np.ndarray, depth: np.ndarray, shape: np.ndarray, box: Box) -> Pixels:
    """Return the pixels of rectangles of whole pixels."""
    start = np.maximum(start, [box.left, box.top])
    extent = np.maximum(np.minimum(end, [box.right, box.bottom]) - start, 0)
    count = extent[:, 0] * extent[:, 1]

    def make(some: slice) -> Pixels:
        which = np.repeat(np.arange(count.size)[some], count[some])
        place = np.arange(which.size) - np.repeat(np.cumsum(count[some]) - count[some], count[some])
        columns = extent[which, 0]
        index = (start[which, 1] + place // columns) * box.stride + start[which, 0] + place % columns
        return Pixels(
            index, np.ones(index.size, np.float32), depth[which].astype(np.float32, copy=False), shape[which]
        )

    return _in_parts(make, count)


def _in_parts(make: Callable[[slice], Pixels], count: np.ndarray) -> Pixels:
    """Return the pixels of shapes, from their numbers and a function that makes those of some shapes."""
    total = np.cumsum(count)
    if not total.size or total[-1] <= _MOST:
        return make(slice(None))
    kept = join([])
    first = 0
    while first < total.size:
        before = total[first - 1] if first else 0
        last = max(int(np.searchsorted(total, before + _MOST, side="right")), first + 1)
        kept = join([kept, make(slice(first, last))])
        kept = _visible(kept) if kept.at.size else kept
        first = last
    return kept


def _visible(pixels: Pixels) -> Pixels:
    """Return of each place the pixel that is covered most, and the nearest of those that are mostly covered.

    A canvas without depth draws the first of them, and one with depth the second; of equal ones the last.
    """
    places = int(pixels.at.max()) + 1
    hidden = (pixels.depth < 0) | (pixels.cover < 0.5)
    chosen = []
    for rank in (-pixels.cover, np.where(hidden, np.float32(np.inf), pixels.depth)):
        least = np.full(places, np.inf, np.float32)
        np.minimum.at(least, pixels.at, rank)
        best = np.flatnonzero(rank == least[pixels.at])
        last = np.full(places, -1)
        last[pixels.at[best]] = best
        chosen.append(last[last >= 0])
    both = np.unique(np.concatenate(chosen))
    return Pixels(*(column[both] for column in pixels))


def _straight(
    start: np.ndarray,
    end: np.ndarray,
    depth0: np.ndarray,
    depth1: np.ndarray,
    width: float,
    shape: np.ndarray,
    box: Box,
) -> Pixels:
    thickness = max(1, round(width))
    # What lies on the right or lower edge of the picture is drawn in its last column or row.
    edge = np.array([box.right, box.bottom])
    low, high = np.minimum(start, end), np.maximum(start, end)
    low, high = (np.where((at >= edge) & (at <= edge + 1e-3), edge - 1, at) for at in (low, high))
    before = (thickness - 1) // 2
    first = np.floor(low + (0.5 if thickness % 2 == 0 else 0)).astype(np.int64) - before
    last = np.floor(high + (0.5 if thickness % 2 == 0 else 0)).astype(np.int64) - before + thickness
    if thickness % 2 == 0:
        first, last = first - 1, last - 1
    pixels = _rectangles(first, last, depth0, shape, box)
    if np.array_equal(depth0, depth1):
        return pixels
    # Deeper at one end: by how far along each pixel lies.
    inverse = np.empty(int(shape.max()) + 1, np.intp)
    inverse[shape] = np.arange(shape.size)
    which = inverse[pixels.shape]
    x, y = pixels.at % box.stride + 0.5, pixels.at // box.stride + 0.5
    along = end[which] - start[which]
    length = np.maximum((along**2).sum(axis=1), 1e-12)
    t = np.clip(((x - start[which, 0]) * along[:, 0] + (y - start[which, 1]) * along[:, 1]) / length, 0, 1)
    depth = depth0[which] + t * (depth1[which] - depth0[which])
    return pixels._replace(depth=depth.astype(np.float32))


def _slanted(
    start: np.ndarray,
    end: np.ndarray,
    depth0: np.ndarray,
    depth1: np.ndarray,
    width: float,
    shape: np.ndarray,
    box: Box,
) -> Pixels:
    half = max(width, 1.0) / 2
    # Along the longer axis one column of pixels after the other; in each, the pixels near the line.
    steep = np.abs(end[:, 1] - start[:, 1]) > np.abs(end[:, 0] - start[:, 0])
    p = np.where(steep[:, None], start[:, ::-1], start)
    q = np.where(steep[:, None], end[:, ::-1], end)
    low, high = np.where(steep, box.top, box.left), np.where(steep, box.bottom, box.right)
    first = np.floor(np.clip(np.minimum(p[:, 0], q[:, 0]) - half - 0.5, low, high)).astype(np.int64)
    last = np.ceil(np.clip(np.maximum(p[:, 0], q[:, 0]) + half + 0.5, low, high)).astype(np.int64)
    direction = q - p
    slope = direction[:, 1] / direction[:, 0]
    reach = half * float(np.sqrt(1 + np.abs(slope).max() ** 2)) + 1.5
    edges = min(box.left, box.top), max(box.right, box.bottom)

    def make(some: slice) -> Pixels:
        count = (last - first)[some]
        which = np.repeat(np.arange(first.size)[some], count)
        major = first[which] + np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
        if 2 * reach < edges[1] - edges[0]:
            t = np.clip((major + 0.5 - p[which, 0]) / direction[which, 0], 0, 1)
            minor = p[which, 1] + t * direction[which, 1]
            around = np.arange(-int(np.ceil(reach)), int(np.ceil(reach)) + 1)
            across = np.floor(minor).astype(np.int64)[:, None] + around[None, :]
        else:
            across = np.broadcast_to(np.arange(*edges), (which.size, edges[1] - edges[0]))
        which, major = (
            np.broadcast_to(which[:, None], across.shape),
            np.broadcast_to(major[:, None], across.shape),
        )
        dx, dy = major + 0.5 - p[which, 0], across + 0.5 - p[which, 1]
        length = (direction**2).sum(axis=1)[which]
        t = np.clip((dx * direction[which, 0] + dy * direction[which, 1]) / length, 0, 1)
        distance = np.hypot(dx - t * direction[which, 0], dy - t * direction[which, 1])
        cover = np.clip(half + 0.5 - distance, 0, 1)
        x, y = np.where(steep[which], across, major), np.where(steep[which], major, across)
        kept = (cover > 0) & (x >= box.left) & (x < box.right) & (y >= box.top) & (y < box.bottom)
        which, t = which[kept], t[kept]
        depth = depth0[which] + t * (depth1[which] - depth0[which])
        return Pixels(
            y[kept] * box.stride + x[kept],
            cover[kept].astype(np.float32),
            depth.astype(np.float32),
            shape[which],
        )

    return _in_parts(make, (last - first) * min(int(2 * reach) + 3, edges[1] - edges[0]))


def _clip(
    start: np.ndarray, end: np.ndarray, depth0: np.ndarray, depth1: np.ndarray, width: float, box: Box
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the parts of segments that are near the box, and which segments those are (Liang and Barsky)."""
    margin = width + 2
    low = np.array([box.left - margin, box.top - margin])
    high = np.array([box.right + margin, box.bottom + margin])
    direction = end - start
    enter, leave = np.zeros(len(start)), np.ones(len(start))
    is_inside = np.ones(len(start), bool)
    for axis in (0, 1):
        d, s = direction[:, axis], start[:, axis]
        still = d == 0
        is_inside &= ~still | ((s >= low[axis]) & (s <= high[axis]))
        safe = np.where(still, 1, d)
        t0, t1 = (low[axis] - s) / safe, (high[axis] - s) / safe
        enter = np.where(still, enter, np.maximum(enter, np.minimum(t0, t1)))
        leave = np.where(still, leave, np.minimum(leave, np.maximum(t0, t1)))
    kept = np.flatnonzero(is_inside & (enter <= leave))
    start, direction, enter, leave = start[kept], direction[kept], enter[kept, None], leave[kept, None]
    change = (depth1 - depth0)[kept]
    first = depth0[kept]
    return (
        start + direction * enter,
        start + direction * leave,
        first + change * enter[:, 0],
        first + change * leave[:, 0],
        kept,
    )
