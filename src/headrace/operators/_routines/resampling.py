"""Resampling of images: each output pixel is a weighted sum of input pixels, first over rows, then over columns.

A filter is a table of input positions and weights for each output row, and one for each output column. The
tables are computed once on the host, in double precision, so that a GPU and the host use the same numbers. The
sums are in single precision, in the same order on both. Positions beyond the border take the outermost pixel.

On the host OpenCV resizes where it is installed and knows the filter. Its weights have 11 binary digits, and ours
24: its pixels differ by at most 1.

The centres of pixels are at half-integers, as in OpenCV and Pillow: output position ``x`` looks at
``(x + 0.5) * scale - 0.5``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from headrace.operators._routines import with_opencv
from headrace.operators._routines.conversion import COPY, SCALED, TO_FLOAT, unpack_order
from headrace.operators.arrays import Routine

Array = np.ndarray[Any, Any]


class Filter(NamedTuple):
    """How to resample.

    Attributes
    ----------
    name
        Its name, for errors.
    support
        The distance in pixels beyond which the weight is 0.
    weight
        The weight at a distance.
    antialias
        Whether the filter is stretched when an image shrinks, so that every input pixel counts.
    """

    name: str
    support: float
    weight: Callable[[Array], Array]
    antialias: bool = False


class Taps(NamedTuple):
    """For each output position, the input positions and their weights."""

    positions: Array
    weights: Array


def make_taps(how: Filter, source: int, target: int) -> Taps:
    """Return the table of a filter for one axis."""
    scale = source / target
    if how.name == "nearest":
        nearest = (2 * np.arange(target) + 1) * source // (2 * target)  # exact, also between two pixels
        return Taps(nearest.astype(np.int32)[:, None], np.ones((target, 1), np.float32))
    if how.name == "super":
        return _area(source, target)
    stretch = max(scale, 1.0) if how.antialias else 1.0
    centres = (np.arange(target) + 0.5) * scale - 0.5
    first = np.floor(centres - how.support * stretch).astype(np.int64) + 1
    count = math.ceil(2 * how.support * stretch) + (1 if how.antialias else 0)
    positions = first[:, None] + np.arange(count)
    weights = how.weight(np.abs(positions - centres[:, None]) / stretch)
    if how.antialias:  # beyond the border there is nothing to weigh
        weights[(positions < 0) | (positions >= source)] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    return Taps(np.clip(positions, 0, source - 1).astype(np.int32), weights.astype(np.float32))


def _area(source: int, target: int) -> Taps:
    """Return the shares of the input pixels in each output pixel's area."""
    scale = source / target
    begin = np.arange(target) * scale
    end = begin + scale
    first = np.floor(begin + 1e-9).astype(np.int64)
    positions = first[:, None] + np.arange(math.ceil(scale) + 1)
    shares = np.minimum(positions + 1, end[:, None]) - np.maximum(positions, begin[:, None])
    shares = np.where(shares > 1e-9, shares, 0)
    shares[positions >= source] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    used = int(np.flatnonzero(shares.max(axis=0))[-1]) + 1
    positions, shares = positions[:, :used], shares[:, :used]
    return Taps(np.minimum(positions, source - 1).astype(np.int32), shares.astype(np.float32))


def _linear(x: Array) -> Array:
    weights: Array = np.maximum(1 - x, 0)
    return weights


def _cubic(x: Array) -> Array:
    """Return Keys' cubic with a = -0.75, as OpenCV's."""
    a = -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _two_parameters(b: float, c: float) -> Callable[[Array], Array]:
    """Return the cubic of Mitchell and Netravali."""

    def weight(x: Array) -> Array:
        near = (12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + 6 - 2 * b
        far = (-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x + 8 * b + 24 * c
        return np.where(x < 1, near, np.where(x < 2, far, 0)) / 6

    return weight


def _lanczos(lobes: int) -> Callable[[Array], Array]:
    return lambda x: np.where(x < lobes, np.sinc(x) * np.sinc(x / lobes), 0)


FILTERS = {
    1: Filter("nearest", 0.5, _linear),
    2: Filter("linear", 1, _linear),
    4: Filter("cubic", 2, _cubic),
    5: Filter("cubic B-spline", 2, _two_parameters(1, 0)),
    6: Filter("Catmull-Rom", 2, _two_parameters(0, 0.5)),
    7: Filter("cubic B05C03", 2, _two_parameters(0.5, 0.3)),
    8: Filter("super", 0.5, _linear),
    16: Filter("Lanczos", 4, _lanczos(4)),
    17: Filter("Lanczos 3", 3, _lanczos(3), antialias=True),
}
"""The filters, by the number of `resize_mode`."""

_BAND = 16  # output rows at a time, so that they stay in the processor's cache


def _resample(out: Array, image: Array, rows: Taps, columns: Taps) -> bool:
    """Resample an image in NumPy, in the order of the kernel's sums."""
    if rows.weights.shape[1] == columns.weights.shape[1] == 1:
        np.take(image[rows.positions[:, 0]], columns.positions[:, 0], axis=1, out=out)
        return True
    height, _, channels = image.shape
    lines = image.reshape(height, -1)
    shares = [np.repeat(weights, channels) for weights in columns.weights.T]
    for top in range(0, len(out), _BAND):
        band = slice(top, top + _BAND)
        taken = zip(rows.positions[band].T, rows.weights[band].T, strict=True)
        parts = _sum(np.multiply(lines[at], weight[:, None], dtype=np.float32) for at, weight in taken)
        parts = parts.reshape(len(parts), -1, channels)
        taken = zip(columns.positions.T, shares, strict=True)
        sums = _sum(parts.take(at, axis=1).reshape(len(parts), -1) * share for at, share in taken)
        sums += np.float32(0.5)
        np.clip(sums, 0, 255, out=sums)
        out[band] = sums.reshape(out[band].shape)  # truncated: floor of what is not negative
    return True


def _sum(terms: Iterable[Array]) -> Array:
    return reduce(lambda total, term: np.add(total, term, out=total), terms)


def _on_host(resize: Callable[..., bool], convert: Callable[..., object]) -> Callable[..., bool]:
    """Return what resizes an image, and then converts it unless the bytes themselves are the result."""

    def resample(out: Array, image: Array, *arguments: Any) -> bool:
        tables, (_, _, in_columns, rows, columns, channels, *conversion) = arguments[:4], arguments[4:]
        out_channels, order, *_, planes = conversion
        shape = (rows, columns, channels)
        is_copy = (
            not planes
            and out.dtype == np.uint8
            and unpack_order(order, out_channels) == list(range(channels))
        )
        resized = out.reshape(shape) if is_copy else np.empty(shape, np.uint8)
        if not resize(resized, image.reshape(-1, in_columns, channels), Taps(*tables[:2]), Taps(*tables[2:])):
            return False
        if not is_copy:
            convert(out, resized, int(rows) * int(columns), channels, *conversion)
        return True

    return resample


RESAMPLE = {
    (np.dtype(element), how.name): Routine(
        "resample",
        _on_host(_resample, convert.numpy),
        _on_host(partial(with_opencv.resize, how.name), convert.host),
        {"OUTPUT": target, "CONVERT(value)": converted},
    )
    for how in FILTERS.values()
    for element, target, converted, convert in (
        (np.uint8, "unsigned char", "value", COPY[np.dtype(np.uint8)]),
        (np.float32, "float", SCALED, TO_FLOAT),
    )
}
"""Resample an image of bytes with up to 4 channels, and convert the result as `COPY` or `TO_FLOAT` would.

By the type of the result, and the name of the filter, which only the host asks for. A thread computes a pixel.
"""
