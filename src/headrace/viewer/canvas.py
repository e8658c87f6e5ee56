"""Canvas: the picture that layers are drawn on, 8-bit RGBA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headrace.viewer.opencv import opencv


class Box(NamedTuple):
    """The part of the picture that may be drawn to, in pixels; `right` and `bottom` are beyond it."""

    left: int
    top: int
    right: int
    bottom: int


class Canvas:
    """A picture of `height` rows and `width` columns, black and opaque at first.

    Attributes
    ----------
    pixels
        (height, width, 4) of uint8; alpha is always 255.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.pixels = np.empty((height, width, 4), np.uint8)
        self.clear()

    def clear(self) -> None:
        """Make the picture black."""
        self.pixels.view(np.uint32)[...] = np.frombuffer(b"\0\0\0\xff", np.uint32)[0]

    def put(
        self, rgb: np.ndarray, alpha: np.ndarray | None, opacity: float, left: int = 0, top: int = 0
    ) -> None:
        """Draw an image with its first pixel at (left, top); what lies outside of the picture is left out."""
        rows = slice(max(0, -top), min(rgb.shape[0], self.height - top))
        columns = slice(max(0, -left), min(rgb.shape[1], self.width - left))
        if rows.start >= rows.stop or columns.start >= columns.stop or opacity == 0:
            return
        cv2, source = opencv(), np.ascontiguousarray(rgb[rows, columns])
        target = self.pixels[top + rows.start : top + rows.stop, left + columns.start : left + columns.stop]
        if source.shape[2] == 3:
            source = cv2.cvtColor(source, cv2.COLOR_RGB2RGBA)
        if alpha is not None or opacity < 1:
            weight = np.full(target.shape[:2], opacity, np.float32)
            if alpha is not None:
                weight *= alpha[rows, columns] / np.float32(255)
            source = cv2.blendLinear(source, target.copy(), weight, 1 - weight)
        target[...] = source
        target[..., 3] = 255

    def draw_flat(
        self, draw: Callable[[np.ndarray, Any], None], color: np.ndarray, opacity: float, box: Box
    ) -> None:
        """Draw shapes.

        Parameters
        ----------
        draw
            Draws them to a part of the picture, or to a mask of it, in a colour.
        color
            4 floats.
        opacity
            Multiplied with the alpha of the colour.
        box
            The part of the picture.
        """
        columns, rows = box.right - box.left, box.bottom - box.top
        if columns <= 0 or rows <= 0:
            return
        weight = opacity * float(color[3])
        rgb = np.rint(color[:3] * 255).astype(np.uint8)
        if weight >= 1:
            draw(self.pixels[box.top : box.bottom, box.left : box.right], (*rgb.tolist(), 255))
            return
        # By way of a mask, so that a pixel that several shapes cover, as lines do at their ends, is drawn once.
        mask = np.zeros((rows, columns), np.uint8)
        draw(mask, 255)
        left, top, width, height = opencv().boundingRect(mask)
        if width and height:
            mask = mask[top : top + height, left : left + width]
            self.put(np.broadcast_to(rgb, (height, width, 3)), mask, weight, box.left + left, box.top + top)
