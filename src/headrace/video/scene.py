"""Scene: a moving picture whose truth is known, so that what a detector finds in it can be scored.

It is a pure function of time: discs on a still background, each on a curve of its own. The seed chooses colours,
sizes and curves. Positions are whole sixteenths of a pixel and the drawing is done in integers, so that every
device draws the same pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

SUBPIXELS = 16
MAX_OBJECTS = 64


@dataclass(frozen=True, slots=True)
class SceneObject:
    """A disc of a scene at one time.

    Attributes
    ----------
    label
        Its number in the labels, from 1 on; of two that overlap the one with the larger number is in front.
    x, y
        Its centre in pixels: (0, 0) is the middle of the first pixel.
    radius
        Its radius in pixels.
    color
        Its red, green and blue, 0 to 255.
    """

    label: int
    x: float
    y: float
    radius: float
    color: tuple[int, int, int]


class Scene:
    """Discs that move over a still background.

    Parameters
    ----------
    width, height
        The size in pixels.
    objects
        The number of discs, up to 64.
    seed
        Chooses colours, sizes and curves.
    """

    def __init__(self, width: int, height: int, *, objects: int = 4, seed: int = 0) -> None:
        if width < 2 or height < 2:
            raise ValueError(f"a scene is at least 2 by 2 pixels, not {width} by {height}")
        if not 0 <= objects <= MAX_OBJECTS:
            raise ValueError(f"a scene has 0 to {MAX_OBJECTS} objects, not {objects}")
        self.width, self.height = width, height
        random = np.random.default_rng(seed)
        self._tint = random.integers(40, 110, 3)
        small = min(width, height)
        self._motions = [_Motion(random, small, width, height) for _ in range(objects)]
        self._background: np.ndarray[Any, Any] | None = None

    @property
    def background(self) -> np.ndarray[Any, Any]:
        """The background: RGB, uint8, (height, width, 3); read-only."""
        if self._background is None:
            rows = np.arange(self.height, dtype=np.float64)[:, None] / self.height
            columns = np.arange(self.width, dtype=np.float64)[None, :] / self.width
            waves = 12 * np.sin(2 * np.pi * 6 * columns) * np.cos(2 * np.pi * 4 * rows)
            picture = [
                tint + 50 * rows * (1 - channel / 4) + waves for channel, tint in enumerate(self._tint)
            ]
            self._background = np.stack(picture, -1).astype(np.uint8)
            self._background.flags.writeable = False
        return self._background

    def objects(self, seconds: float) -> list[SceneObject]:
        """Return the discs at a time, from the back to the front."""
        return [motion.at(seconds, label) for label, motion in enumerate(self._motions, 1)]

    def rgb(self, seconds: float) -> np.ndarray[Any, Any]:
        """Return the picture at a time: RGB, uint8, (height, width, 3), without noise."""
        picture = self.background.copy()
        for one in self.objects(seconds):
            place, inside = self.disc(one)
            picture[place][inside] = one.color
        return picture

    def labels(self, seconds: float) -> np.ndarray[Any, Any]:
        """Return the label of what each pixel shows at a time: uint8, (height, width); the background is 0."""
        labels = np.zeros((self.height, self.width), np.uint8)
        for one in self.objects(seconds):
            place, inside = self.disc(one)
            labels[place][inside] = one.label
        return labels

    def disc(self, one: SceneObject) -> tuple[tuple[slice, slice], np.ndarray[Any, Any]]:
        """Return the rows and columns around a disc, and which of their pixels are inside of it."""
        x, y, radius = (round(value * SUBPIXELS) for value in (one.x, one.y, one.radius))
        rows, columns = (
            slice(max(-(-(centre - radius) // SUBPIXELS), 0), min((centre + radius) // SUBPIXELS + 1, limit))
            for centre, limit in ((y, self.height), (x, self.width))
        )
        down = np.arange(rows.start, rows.stop, dtype=np.int64) * SUBPIXELS - y
        across = np.arange(columns.start, columns.stop, dtype=np.int64) * SUBPIXELS - x
        return (rows, columns), down[:, None] ** 2 + across[None, :] ** 2 <= radius**2


class _Motion:
    """The way of a disc: it swings on each axis by itself, and stays in the picture."""

    def __init__(self, random: np.random.Generator, small: int, width: int, height: int) -> None:
        self._radius = max(round(random.uniform(0.04, 0.10) * small * SUBPIXELS), SUBPIXELS)
        # A strong, a middle and a weak colour, so that it stands out from any background.
        parts = [random.integers(215, 256), random.integers(60, 200), random.integers(0, 40)]
        self._color = tuple(int(value) for value in random.permutation(parts))
        self._axes = []
        for size in (width, height):
            middle = (size - 1) / 2
            reach = max(middle - self._radius / SUBPIXELS, 0.0) * random.uniform(0.5, 1.0)
            self._axes.append((middle, reach, random.uniform(0.1, 0.6), random.uniform(0, 2 * math.pi)))

    def at(self, seconds: float, label: int) -> SceneObject:
        x, y = (
            round((middle + reach * math.sin(2 * math.pi * rate * seconds + phase)) * SUBPIXELS) / SUBPIXELS
            for middle, reach, rate, phase in self._axes
        )
        red, green, blue = self._color
        return SceneObject(label, x, y, self._radius / SUBPIXELS, (red, green, blue))
