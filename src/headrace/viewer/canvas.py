"""Canvas: the picture that layers are drawn on, 8-bit RGBA, and its depth."""

from __future__ import annotations

import numpy as np

from headrace.viewer.raster import Pixels

__all__ = ["Canvas"]

# Rows are blended in blocks that fit a processor's cache.
_BLOCK = 1 << 18


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
        self._cover: np.ndarray | None = None
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
        mask = None if alpha is None else alpha[rows, columns]
        step = max(1, _BLOCK // (4 * target.shape[1]))
        whole = np.uint16(round(opacity * 255))
        for first in range(0, target.shape[0], step):
            block, above = target[first : first + step], source[first : first + step]
            weight = np.full(block.shape[:2], whole, np.uint16)
            if mask is not None:
                weight = _divided(weight * mask[first : first + step])
            rest = np.uint16(255) - weight
            for channel in range(3):
                mixed = above[..., channel] * weight
                mixed += block[..., channel] * rest
                block[..., channel] = _divided(mixed)

    def draw(self, pixels: Pixels, colors: np.ndarray, opacity: float, has_depth: bool) -> None:
        """Draw the pixels of shapes.

        Parameters
        ----------
        pixels
            The pixels.
        colors
            (N, 4) floats: the colour of each shape, or (1, 4) for one colour of all.
        opacity
            Multiplied with the alpha of the colours.
        has_depth
            Whether what lies behind what was drawn before is hidden.
        """
        if not pixels.at.size:
            return
        index, cover, shape = pixels.at, pixels.cover, pixels.shape
        if has_depth:
            nearest = self.depth.reshape(-1)
            seen = (pixels.depth >= 0) & (pixels.depth <= nearest[index]) & (cover >= 0.5)
            index, cover, shape, depth = index[seen], cover[seen], shape[seen], pixels.depth[seen]
            np.minimum.at(nearest, index, depth)
            front = depth <= nearest[index]
            index, cover, shape = index[front], cover[front], shape[front]
        else:
            # Where shapes of one layer overlap, as lines do at their ends, the pixel is drawn once.
            if self._cover is None:
                self._cover = np.zeros(self.width * self.height, np.float32)
            np.maximum.at(self._cover, index, cover)
            full = self._cover[index]
            last = full == cover
            self._cover[index] = 0
            index, cover, shape = index[last], cover[last], shape[last]
        flat = self.pixels.reshape(-1, 4)
        chosen = colors[0] if len(colors) == 1 else colors[shape]
        weight = (cover * np.float32(opacity) * chosen[..., 3].astype(np.float32))[:, None]
        below = flat[index, :3].astype(np.float32)
        above = chosen[..., :3].astype(np.float32) * 255
        flat[index, :3] = np.rint(below + (above - below) * weight).astype(np.uint8)


def _divided(values: np.ndarray) -> np.ndarray:
    """Return uint16 values up to 255 * 255 divided by 255 and rounded."""
    values = values + np.uint16(128)
    divided: np.ndarray = (values + (values >> np.uint16(8))) >> np.uint16(8)
    return divided
