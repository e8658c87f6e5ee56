"""Points, lines and triangles with depth: what of them is seen, by OpenCV's `triangleRasterize`.

Points and lines are two triangles each. A triangle covers the pixels whose centre it contains, and its depth is
linear in the picture, as on a GPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.viewer.clipping import MARGIN, Box, clip, clip_lines, quads, squares, straight
from headrace.viewer.opencv import opencv

_AT_ONCE = 1 << 17  # triangles given to OpenCV at a time, so that memory is bounded


class Depths(NamedTuple):
    """The visible parts of some shapes.

    Attributes
    ----------
    left, top
        Where it begins in the picture.
    depth
        The depth of the nearest shape at each pixel, from 0 to 1; 1 where there is none.
    number
        Which shape that is; None if nobody asked.
    """

    left: int
    top: int
    depth: np.ndarray
    number: np.ndarray | None


def _quads(
    corners: np.ndarray, number: np.ndarray, size: float, extent: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return points, as squares, or lines, as shapes of their width, with four corners in a row around them."""
    if corners.shape[1] == 1:
        places = squares(corners[:, 0, :2], size)
        around = np.repeat(corners, 4, axis=1)
        around[..., :2] = places[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
        return around, number
    ends, number = clip_lines(corners, number, size, extent)
    is_straight, places, thickness = straight(ends, size, extent)
    # Horizontal and vertical ones cover whole pixels: their ends are moved so that they do.
    low, high = places[:, :2] + thickness / 2, places[:, 2:] - thickness / 2
    is_turned = ends[is_straight, 1, :2] < ends[is_straight, 0, :2]
    ends[is_straight, 0, :2] = np.where(is_turned, high, low)
    ends[is_straight, 1, :2] = np.where(is_turned, low, high)
    half = np.where(is_straight, thickness / 2, min(max(size, 1) / 2, MARGIN))
    return quads(ends, half[:, None]), number


def rasterize(
    corners: np.ndarray, number: np.ndarray, size: float, box: Box, needs_number: bool
) -> Depths | None:
    """Return what is seen of shapes with depth, the nearest at each pixel; None if nothing is.

    Parameters
    ----------
    corners
        (N, 1, 2 or 3, 3) floats: x and y in pixels, and the depth, of points, lines or triangles.
    number
        The number of each of them.
    size
        The size of points, or the width of lines, in pixels.
    box
        The part of the picture.
    needs_number
        Whether the result says which of them is seen where.
    """
    corners = corners - [box.left, box.top, 0]
    if corners.shape[1] < 3:
        corners, number = _quads(corners, number, size, box.size)
        corners = np.concatenate([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]])
        number = np.concatenate([number, number])
    corners, number = clip(corners, number, box.size)
    if not len(corners):
        return None
    # No more of the picture than the shapes may cover.
    low = np.clip(np.floor(corners[..., :2].min(axis=(0, 1))), 0, box.size).astype(int)
    high = np.clip(np.ceil(corners[..., :2].max(axis=(0, 1))), 0, box.size).astype(int)
    columns, rows = (high - low).tolist()
    if columns <= 0 or rows <= 0:
        return None
    cv2 = opencv()
    settings = cv2.TriangleRasterizeSettings()
    settings.setShadingType(cv2.RASTERIZE_SHADING_FLAT)
    settings.setCullingMode(cv2.RASTERIZE_CULLING_NONE)
    settings.setGlCompatibleMode(cv2.RASTERIZE_COMPAT_INVDEPTH)
    depth = np.ones((rows, columns), np.float32)
    numbers = np.zeros((rows, columns, 3), np.float32) if needs_number else None
    # OpenCV's camera has a matrix of perspective, and these places are behind one. With distances from 1 to 2 its
    # depth is 2 - 2 / distance: the distance that has our depth is 1 / (1 - depth / 2).
    camera = np.eye(4, dtype=np.float32), np.pi / 2, 1.0, 2.0, settings
    for first in range(0, len(corners), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        x, y, z = np.moveaxis(corners[some], 2, 0)
        distance = 1 / (1 - z / 2)
        scale = distance * (2 / rows)
        places = np.stack(
            [(x - low[0] - columns / 2) * scale, (low[1] + rows / 2 - y) * scale, -distance], axis=2
        )
        vertices = places.reshape(1, -1, 3).astype(np.float32)
        indices = np.arange(vertices.shape[1], dtype=np.int32).reshape(1, -1, 3)
        if numbers is None:
            cv2.triangleRasterizeDepth(vertices, indices, depth, *camera)
        else:
            # The number as a colour, whose parts are from 0 to 1.
            name = np.repeat(number[some], 3)
            colors = np.stack([(name & 0xFFFF) / 0x10000, (name >> 16) / 0x10000, np.ones(len(name))], axis=1)
            cv2.triangleRasterize(vertices, indices, colors[None].astype(np.float32), numbers, depth, *camera)
    found = None
    if numbers is not None:
        low_part, high_part = (numbers[..., place] * 0x10000 for place in (0, 1))
        found = low_part.astype(np.intp) + (high_part.astype(np.intp) << 16)
    return Depths(box.left + int(low[0]), box.top + int(low[1]), depth, found)
