"""The computations of the image operators by OpenCV, which takes a part of NumPy's time on the host.

Each function returns whether it did the work: OpenCV may be missing, or may not know the conversion. NumPy does it
then. What moves bytes and demosaics is exact. What rounds differs from the kernels by at most 1: the conversions
between RGB and YUV, and the modes of resizing in `INTERPOLATION`.

OpenCV is no requirement of the operators, so that they work where only NumPy is: it comes with the extra
``operators``, as wheels for x86-64 and aarch64 and every Python from 3.11 on, under the Apache licence.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_BAND = 64  # rows converted at a time, so that they stay in the processor's cache

# INTER_LINEAR is within 1 of the formula on x86-64. The wheels for aarch64 take another implementation, which is
# 4 off, and wrong for some pictures of a few pixels.
_LINEAR = "LINEAR" if platform.machine().lower() in ("x86_64", "amd64") else "LINEAR_EXACT"
INTERPOLATION = {"linear": _LINEAR, "cubic": "CUBIC", "super": "AREA", "Lanczos": "LANCZOS4"}
"""OpenCV's names of filters."""

_LARGEST = 32767  # of what OpenCV looks up by positions


@lru_cache(maxsize=1)
def opencv() -> Any:
    """Return OpenCV, or None where it is not installed."""
    try:
        return import_module("cv2")
    except ImportError:
        return None


def _put(out: Array, result: Array) -> None:
    """Make sure that a result is in the memory that it is for: OpenCV takes other memory if that does not fit."""
    if result is not out:
        np.copyto(out, result.reshape(out.shape))


# Order of channels.

_ORDERS = {
    (3, 3, (2, 1, 0)): "RGB2BGR",
    (4, 4, (2, 1, 0, 3)): "RGBA2BGRA",
    (3, 4, (0, 1, 2, 3)): "RGB2RGBA",
    (3, 4, (2, 1, 0, 3)): "RGB2BGRA",
    (4, 3, (0, 1, 2)): "RGBA2RGB",
    (4, 3, (2, 1, 0)): "RGBA2BGR",
}


def reorder(out: Array, pixels: Array, order: list[int], alpha: int) -> bool:
    """Put the channels of pixels in another order; a number that is no channel stands for alpha.

    Parameters
    ----------
    out, pixels
        (rows, columns, channels), of the same type.
    order
        For each channel of the result the one that it takes.
    alpha
        The constant of an added channel.
    """
    cv2 = opencv()
    if cv2 is None:
        return False
    taken, made = pixels.shape[2], out.shape[2]
    name = _ORDERS.get((taken, made, tuple(order)))
    if name is not None:
        _put(out, cv2.cvtColor(pixels, getattr(cv2, f"COLOR_{name}"), dst=out))
        if made > taken and alpha != _full(out.dtype):
            out[..., 3] = alpha
        return True
    pairs = [part for place, channel in enumerate(order) if channel < taken for part in (channel, place)]
    cv2.mixChannels([pixels], [out], pairs)
    for place, channel in enumerate(order):
        if channel >= taken:
            out[..., place] = alpha
    return True


def _full(dtype: np.dtype[Any]) -> float:
    """Return the alpha that OpenCV adds."""
    return 1.0 if dtype.kind == "f" else float(np.iinfo(dtype).max)


# Size.


def resize(name: str, out: Array, image: Array, rows: Any, columns: Any) -> bool:
    """Resize an image of bytes, (rows, columns, channels), by a filter with these tables."""
    cv2 = opencv()
    if cv2 is None or max(*out.shape, *image.shape) > _LARGEST:
        return False
    if image.shape[2] == 1:  # as OpenCV returns it
        image, out = image[..., 0], out[..., 0]
    if name == "nearest":
        places = _places(rows.positions[:, 0].tobytes(), columns.positions[:, 0].tobytes(), image.shape[:2])
        if places is not None:
            _put(out, cv2.remap(image, places, None, cv2.INTER_NEAREST, dst=out))
            return True
    elif name not in INTERPOLATION:
        return False
    code = getattr(cv2, f"INTER_{INTERPOLATION.get(name, 'NEAREST_EXACT')}")
    _put(out, cv2.resize(image, out.shape[1::-1], dst=out, interpolation=code))
    return True


@lru_cache(maxsize=2)
def _places(rows: bytes, columns: bytes, size: tuple[int, int]) -> Array | None:
    """Return the place in the image of each pixel of a result; None if INTER_NEAREST_EXACT takes the same ones.

    Between two pixels it may take either, and in large images its positions are not exact. Otherwise it is faster.
    """
    cv2 = opencv()
    ours = [np.frombuffer(positions, np.int32) for positions in (rows, columns)]
    theirs = (
        cv2.resize(
            np.arange(extent, dtype=np.uint16)[None], (len(at), 1), interpolation=cv2.INTER_NEAREST_EXACT
        )
        for extent, at in zip(size, ours, strict=True)
    )
    if all(np.array_equal(at, other[0]) for at, other in zip(ours, theirs, strict=True)):
        return None
    places = np.empty((len(ours[0]), len(ours[1]), 2), np.int16)
    places[..., 0], places[..., 1] = ours[1], ours[0][:, None]
    return places


# Colour.


def yuv_to_rgb(
    out: Array,
    pixels: Array,
    layout: str,
    planes: tuple[Array, Array, Array],
    order: list[int],
    alpha: int,
    matrix: Any,
) -> bool:
    """Convert a frame to RGB, by a matrix, in an order of channels.

    Parameters
    ----------
    out
        (rows, columns, 3 or 4) of uint8.
    pixels
        The frame.
    layout
        ``"yuyv"`` or ``"uyvy"`` if the matrix is that of BT.601 in limited range, which OpenCV knows; else ``""``.
    planes
        Its luma, and its chroma, of which a sample is for 2 columns, and for 1 or 2 rows.
    order, alpha
        The channel that each one of the result takes, 3 for alpha.
    matrix
        The matrix of `colour`.
    """
    cv2 = opencv()
    if cv2 is None or max(out.shape) > _LARGEST:
        return False
    rows, columns = out.shape[:2]
    if layout:
        frame = pixels.reshape(rows, columns, 2)
        made = "RGBA" if order == [0, 1, 2, 3] and alpha == 255 else "RGB"
        code = getattr(cv2, f"COLOR_YUV2{made}_{layout.upper()}")
        if order == list(range(len(made))):
            _put(out, cv2.cvtColor(frame, code, dst=out))
            return True
        return reorder(out, cv2.cvtColor(frame, code), order, alpha)
    luma, u, v = planes
    colors = _rows_of(matrix, order, alpha)
    shared = rows // len(u)
    chroma = np.empty((2, _BAND, columns), np.uint8)
    joined = np.empty((_BAND, columns, 3), np.uint8)
    for top in range(0, rows, _BAND):
        count = min(_BAND, rows - top)
        some = slice(top // shared, (top + count) // shared)
        for place, plane in enumerate((v, u)):
            small = np.ascontiguousarray(plane[some])
            cv2.resize(small, (columns, count), dst=chroma[place, :count], interpolation=cv2.INTER_NEAREST)
        band = joined[:count]
        light = luma[top : top + count]
        if matrix[0]:  # luma below black counts as black
            light = cv2.max(light, float(matrix[0]))
        cv2.merge([light, chroma[0, :count], chroma[1, :count]], band)
        _put(out[top : top + count], cv2.transform(band, colors, dst=out[top : top + count]))
    return True


def _rows_of(matrix: Any, order: list[int], alpha: int) -> Array:
    """Return a matrix from luma, V and U to channels in an order, with what is added to each."""
    luma, v_in_red, u_in_green, v_in_green, u_in_blue = (float(factor) / 65536 for factor in matrix[1:])
    factors = np.array([[luma, v_in_red, 0], [luma, v_in_green, u_in_green], [luma, 0, u_in_blue]])
    added = -factors @ [float(matrix[0]), 128, 128]
    rows = [[*factors[channel], added[channel]] if channel < 3 else [0, 0, 0, alpha] for channel in order]
    return np.array(rows)


def rgb_to_yuv420(out: tuple[Array, Array, Array], pixels: Array) -> bool:
    """Convert RGB to the planes of 4:2:0, by BT.601 in full range."""
    cv2 = opencv()
    if cv2 is None:
        return False
    rows, columns = pixels.shape[:2]
    luma, u, v = out
    for top in range(0, rows, _BAND):
        band = pixels[top : top + _BAND]
        some = slice(top // 2, (top + len(band)) // 2)
        joined = cv2.cvtColor(band, cv2.COLOR_RGB2YCrCb)
        cv2.extractChannel(joined, 0, luma[top : top + len(band)])
        half = cv2.resize(band, (columns // 2, len(band) // 2), interpolation=cv2.INTER_AREA)
        chroma = cv2.cvtColor(half, cv2.COLOR_RGB2YCrCb)
        for channel, plane in ((1, v), (2, u)):
            cv2.extractChannel(chroma, channel, plane[some])
    return True


# Demosaicking.

_STRIP = 4  # rows or columns; the least that a frame needs for its borders


def demosaic(out: Array, mosaic: Array, pattern: str, alpha: int) -> bool:
    """Demosaic a frame whose first pixels have the colours of a pattern, such as ``"RGGB"``."""
    cv2 = opencv()
    if cv2 is None or min(mosaic.shape) < _STRIP:
        return False
    channels = out.shape[2]
    code = getattr(cv2, f"COLOR_Bayer{pattern}2{'RGB' if channels == 3 else 'RGBA'}")
    _put(out, cv2.cvtColor(mosaic, code, dst=out))
    # OpenCV copies the outermost rows and columns from their neighbours, so these are computed with the frame
    # mirrored beyond them: two rows or columns more, which keeps the pattern.
    for axis in (0, 1):
        for place in (0, -1):
            strip = mosaic[:_STRIP] if place == 0 else mosaic[-_STRIP:]
            target = out[place]
            if axis == 1:
                strip = mosaic[:, :_STRIP] if place == 0 else mosaic[:, -_STRIP:]
                target = out[:, place]
            wide = cv2.copyMakeBorder(np.ascontiguousarray(strip), 2, 2, 2, 2, cv2.BORDER_REFLECT_101)
            near = cv2.cvtColor(wide, code)[2:-2, 2:-2]
            target[...] = near[place] if axis == 0 else near[:, place]
    if channels == 4 and alpha != np.iinfo(out.dtype).max:
        out[..., 3] = alpha
    return True
