"""Scene: a moving picture whose truth is known, so that what a detector finds in it can be scored; and BayerSensor.

A scene is a pure function of time: discs on a still background, each on a curve of its own. The seed chooses
colours, sizes and curves. Positions are whole sixteenths of a pixel and the drawing is done in integers, so that
every device draws the same pixels.

A sensor makes of a scene one colour per pixel, with an exposure and noise, in integers, too. The noise of a pixel
is ``sigma * g``: `sigma` follows from its level, and `g` is one of a field of normal numbers that is made once.
Each frame begins at another place of the field, chosen by its number.
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


BAYER_PATTERNS = {0: "BGGR", 1: "RGGB", 2: "GBRG", 3: "GRBG"}
"""The colours of the four pixels of the upper left, row by row, for each grid position."""

_CELL = ((0, 0), (0, 1), (1, 0), (1, 1))  # the rows and columns of the four pixels
MARGIN = 64  # how far a frame may be shifted on the field of noise
SIGMA_SCALE = 4
GAUSS_SCALE = 64
SHIFT = 8  # of sigma * g: both scales together
MAX_SIGMA = 127  # so that 8-bit frames are made with 16-bit numbers
MAX_GAUSS = 255


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth of a frame: the objects that it shows.

    Attributes
    ----------
    number
        The number of the frame, from 0 on.
    seconds
        The time of the scene.
    objects
        The discs, from the back to the front.
    """

    number: int
    seconds: float
    objects: tuple[SceneObject, ...]
    scene: Scene

    @property
    def rgb(self) -> np.ndarray[Any, Any]:
        """The picture without noise: RGB, uint8, (height, width, 3)."""
        return self.scene.rgb(self.seconds)

    @property
    def labels(self) -> np.ndarray[Any, Any]:
        """The number of the object that each pixel shows: uint8, (height, width); the background is 0."""
        return self.scene.labels(self.seconds)


class BayerSensor:
    """Frames of a scene, as a sensor with a Bayer pattern gives them.

    Parameters
    ----------
    scene
        The scene that it looks at. Its size must be even.
    rate
        Frames per second: frame n shows the scene at n / rate seconds.
    dtype
        ``"uint8"`` or ``"uint16"``. Full scale is 255 or 65535.
    grid_position
        The pattern: 0 BGGR, 1 RGGB, 2 GBRG, 3 GRBG.
    exposure
        The factor on the light of the scene; what exceeds full scale is cut off.
    noise
        The standard deviation of what is added to each pixel, as a part of full scale.
    shot_noise
        The variance of what is added in proportion to the light, as a part of full scale at full scale.
    seed
        Chooses the noise.
    """

    def __init__(
        self,
        scene: Scene,
        rate: float,
        *,
        dtype: Any = "uint8",
        grid_position: int = 2,
        exposure: float = 1.0,
        noise: float = 0.0,
        shot_noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        if scene.width % 2 or scene.height % 2:
            raise ValueError(
                f"a Bayer pattern needs an even width and height, not {scene.width} by {scene.height}"
            )
        if not 0 < rate < float("inf"):
            raise ValueError(f"the rate must be more than 0, not {rate}")
        if np.dtype(dtype) not in (np.uint8, np.uint16):
            raise ValueError(f"the dtype must be 'uint8' or 'uint16', not {dtype!r}")
        if grid_position not in BAYER_PATTERNS:
            known = ", ".join(f"{number} {name}" for number, name in BAYER_PATTERNS.items())
            raise ValueError(f"the grid position must be one of {known}; not {grid_position}")
        for name, value in (("exposure", exposure), ("noise", noise), ("shot_noise", shot_noise)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be 0 or more, not {value}")
        self.scene = scene
        self.rate = rate
        self.dtype = np.dtype(dtype)
        self.full_scale = int(np.iinfo(self.dtype).max)
        self.is_noisy = bool(noise or shot_noise)
        self._pattern = BAYER_PATTERNS[grid_position]
        self._work = np.int16 if self.dtype == np.uint8 else np.int32
        self._levels = self._levels_of(exposure)
        self.background = self._mosaic(scene.background)
        signal = np.arange(self.full_scale + 1) / self.full_scale
        sigma = np.sqrt(noise**2 + shot_noise * signal) * self.full_scale * SIGMA_SCALE
        limit = MAX_SIGMA if self.dtype == np.uint8 else MAX_SIGMA * 257
        self.sigma = np.minimum(np.round(sigma), limit).astype(self._work)
        self.gauss = np.zeros((1, 1), np.int16)
        self._random = np.random.default_rng([seed, 1])
        self._seed = seed
        if self.is_noisy:
            size = (scene.height + MARGIN, scene.width + MARGIN)
            field = self._random.standard_normal(size, np.float32) * GAUSS_SCALE
            self.gauss = np.clip(np.round(field), -MAX_GAUSS, MAX_GAUSS).astype(np.int16)
            self._background_sigma = self.sigma[self.background]
            self._gauss = self.gauss.astype(self._work)

    def truth(self, number: int) -> Truth:
        """Return what a frame shows."""
        seconds = number / self.rate
        return Truth(number, seconds, tuple(self.scene.objects(seconds)), self.scene)

    def bayer(self, number: int, *, noisy: bool = True) -> np.ndarray[Any, Any]:
        """Return a frame: (height, width), of the sensor's dtype."""
        noisy = noisy and self.is_noisy
        levels = self.background.astype(self._work)
        sigma = self._background_sigma.copy() if noisy else None
        for one in self.truth(number).objects:
            place, inside = self.scene.disc(one)
            tile = self._tile(place, self.object_levels(one))
            np.copyto(levels[place], tile, where=inside)
            if sigma is not None:
                np.copyto(sigma[place], self.sigma[tile], where=inside)
        if sigma is not None:
            down, across = self.offset(number)
            height, width = levels.shape
            np.multiply(sigma, self._gauss[down : down + height, across : across + width], out=sigma)
            np.add(sigma, 1 << (SHIFT - 1), out=sigma)
            np.right_shift(sigma, SHIFT, out=sigma)
            np.add(levels, sigma, out=levels)
            np.clip(levels, 0, self.full_scale, out=levels)
        return levels.astype(self.dtype)

    def offset(self, number: int) -> tuple[int, int]:
        """Return where on the field of noise a frame begins."""
        random = np.random.default_rng([self._seed, number])
        down, across = random.integers(0, MARGIN + 1, 2)
        return int(down), int(across)

    def object_levels(self, one: SceneObject) -> tuple[int, int, int]:
        """Return the levels of an object's red, green and blue."""
        red, green, blue = (int(self._levels[value]) for value in one.color)
        return red, green, blue

    def color_at(self, row: int, column: int) -> int:
        """Return the colour of a pixel: 0 red, 1 green, 2 blue."""
        return "RGB".index(self._pattern[row % 2 * 2 + column % 2])

    def _levels_of(self, exposure: float) -> np.ndarray[Any, Any]:
        """Return the level of each value of the scene."""
        exposed = np.round(np.arange(256) * (self.full_scale / 255) * exposure)
        return np.minimum(exposed, self.full_scale).astype(self._work)

    def _mosaic(self, rgb: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return one colour of each pixel, as a level."""
        plane = np.empty(rgb.shape[:2], self.dtype)
        for row, column in _CELL:
            color = rgb[row::2, column::2, self.color_at(row, column)]
            plane[row::2, column::2] = self._levels[color]
        return plane

    def _tile(self, place: tuple[slice, slice], levels: tuple[int, int, int]) -> np.ndarray[Any, Any]:
        """Return the levels of one colour in the pattern of some rows and columns."""
        rows, columns = place
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start), self._work)
        for row, column in _CELL:
            tile[row::2, column::2] = levels[self.color_at(rows.start + row, columns.start + column)]
        return tile
