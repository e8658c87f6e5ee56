"""Canvas: the picture that layers are drawn on, 8-bit RGBA, and its depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.viewer.clipping import Box
from headrace.viewer.deep_shapes import Depths
from headrace.viewer.opencv import opencv


class Canvas:
    """A picture of `height` rows and `width` columns, black and opaque at first.

    Attributes
    ----------
    pixels
        (height, width, 4) of uint8; alpha is always 255.
    depth
        (height, width) of float32: how deep the nearest of what was drawn in 3D lies, from 0 to 1; 1 where there
        is nothing.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.pixels = np.empty((height, width, 4), np.uint8)
        self._depth: np.ndarray | None = None
        self.clear()

    def clear(self) -> None:
        """Make the picture black."""
        self.pixels.view(np.uint32)[...] = np.frombuffer(b"\0\0\0\xff", np.uint32)[0]
        self._depth = None

    @property
    def depth(self) -> np.ndarray:
        """The depth of each pixel."""
        if self._depth is None:
            self._depth = np.ones((self.height, self.width), np.float32)
        return self._depth

    def put(
        self, rgb: np.ndarray, alpha: np.ndarray | None, opacity: float, left: int = 0, top: int = 0
    ) -> None:
        """Draw an image with its first pixel at (left, top); what lies outside of the picture is left out."""
        rows = slice(max(0, -top), min(rgb.shape[0], self.height - top))
        columns = slice(max(0, -left), min(rgb.shape[1], self.width - left))
        if rows.start >= rows.stop or columns.start >= columns.stop or opacity == 0:
            return
        source = rgb[rows, columns]
        target = self.pixels[top + rows.start : top + rows.stop, left + columns.start : left + columns.stop]
        if alpha is None and opacity == 1:
            if source.shape[2] == 4:
                target[...] = source
                target[..., 3] = 255
            else:
                # Channel by channel: NumPy takes 14 times as long for `target[..., :3] = source`.
                for channel in range(3):
                    target[..., channel] = source[..., channel]
            return
        cv2 = opencv()
        if source.shape[2] == 3:
            source = cv2.cvtColor(np.ascontiguousarray(source), cv2.COLOR_RGB2RGBA)
        weight = np.full(target.shape[:2], opacity, np.float32)
        if alpha is not None:
            weight *= alpha[rows, columns] / np.float32(255)
        target[...] = cv2.blendLinear(np.ascontiguousarray(source), target.copy(), weight, 1 - weight)
        target[..., 3] = 255

    def draw_flat(
        self, draw: Callable[[np.ndarray, Any], None], color: np.ndarray, opacity: float, box: Box
    ) -> None:
        """Draw shapes without depth.

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
        columns, rows = box.size
        if not columns or not rows:
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

    def draw_deep(self, shapes: Depths, colors: np.ndarray, opacity: float) -> None:
        """Draw shapes with depth: what lies behind what was drawn before is hidden.

        Parameters
        ----------
        shapes
            The visible parts of the shapes.
        colors
            (N, 4) floats: the colour of each shape, or (1, 4) for one colour of all.
        opacity
            Multiplied with the alpha of the colours.
        """
        rows, columns = shapes.depth.shape
        part = slice(shapes.top, shapes.top + rows), slice(shapes.left, shapes.left + columns)
        nearest = self.depth[part]
        seen = (shapes.depth < 1) & (shapes.depth <= nearest)
        np.copyto(nearest, shapes.depth, where=seen)
        at = np.nonzero(seen)
        chosen = colors[0] if shapes.number is None else colors[shapes.number[at]]
        above = chosen[..., :3].astype(np.float32) * 255
        weight = chosen[..., 3:].astype(np.float32) * np.float32(opacity)
        pixels = self.pixels[part]
        below = pixels[..., :3][at].astype(np.float32)
        pixels[..., :3][at] = np.rint(below + (above - below) * weight).astype(np.uint8)
