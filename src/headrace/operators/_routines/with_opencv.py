"""The computations of the image operators by OpenCV, which takes a part of NumPy's time on the host.

Each function returns whether it did the work: OpenCV may be missing, or may not know the conversion. NumPy does it
then. What moves bytes and demosaics is exact. What rounds differs from the kernels by at most 1: the conversions
between RGB and YUV, and the modes of resizing in `INTERPOLATION`.

OpenCV is no requirement of the operators, so that they work where only NumPy is: it comes with the extra
``operators``, as wheels for x86-64 and aarch64 and every Python from 3.11 on, under the Apache licence.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# INTER_LINEAR_EXACT is within 1 of the formula everywhere. INTER_LINEAR is so on x86-64 alone, and there up to 2
# from what INTER_LINEAR_EXACT gives elsewhere.
INTERPOLATION = {"linear": "LINEAR_EXACT", "cubic": "CUBIC", "super": "AREA", "Lanczos": "LANCZOS4"}
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


def knows_order(channels: int, order: list[int]) -> bool:
    """Return whether OpenCV puts so many channels in an order; `mixChannels`, for any order, takes NumPy's time."""
    return opencv() is not None and (channels, len(order), tuple(order)) in _ORDERS


def reorder(out: Array, pixels: Array, order: list[int], alpha: int) -> None:
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
    cv2, (taken, made) = opencv(), (pixels.shape[2], out.shape[2])
    code = getattr(cv2, f"COLOR_{_ORDERS[taken, made, tuple(order)]}")
    _put(out, cv2.cvtColor(pixels, code, dst=out))
    if made > taken and alpha != (1.0 if out.dtype.kind == "f" else np.iinfo(out.dtype).max):
        out[..., 3] = alpha


# Size.


def resize(name: str, out: Array, image: Array, *tables: Any) -> bool:
    """Resize an image of bytes, (rows, columns, channels), by a filter."""
    cv2 = opencv()
    if cv2 is None or name not in INTERPOLATION or max(*out.shape, *image.shape) > _LARGEST:
        return False
    if image.shape[2] == 1:  # as OpenCV returns it
        image, out = image[..., 0], out[..., 0]
    code = getattr(cv2, f"INTER_{INTERPOLATION[name]}")
    _put(out, cv2.resize(image, out.shape[1::-1], dst=out, interpolation=code))
    return True


# Colour.

_CHANNELS = {(0, 1, 2): "RGB", (2, 1, 0): "BGR", (0, 1, 2, 3): "RGBA", (2, 1, 0, 3): "BGRA"}


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
    made = _CHANNELS.get(tuple(order), "")
    if layout and made and (len(made) == 3 or alpha == 255):  # in a fifth of the time
        code = getattr(cv2, f"COLOR_YUV2{made}_{layout.upper()}")
        _put(out, cv2.cvtColor(pixels.reshape(rows, columns, 2), code, dst=out))
        return True
    luma, u, v = map(np.ascontiguousarray, planes)
    v, u = (cv2.resize(plane, (columns, rows), interpolation=cv2.INTER_NEAREST) for plane in (v, u))
    if matrix[0]:  # luma below black counts as black
        luma = cv2.max(luma, float(matrix[0]))
    _put(out, cv2.transform(cv2.merge([luma, v, u]), _rows_of(matrix, order, alpha), dst=out))
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
    luma, u, v = out
    half = cv2.resize(pixels, (pixels.shape[1] // 2, len(pixels) // 2), interpolation=cv2.INTER_AREA)
    _put(luma, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY, dst=luma))
    # The channels of OpenCV are Y, V and U.
    _, v[...], u[...] = cv2.split(cv2.cvtColor(half, cv2.COLOR_RGB2YCrCb))
    return True


# Demosaicking.

# The outermost rows and columns, each with what lies near it.
_ALL = slice(None)
_EDGES: tuple[tuple[Any, Any], ...] = (
    (slice(4), 0),
    (slice(-4, None), -1),
    ((_ALL, slice(4)), (_ALL, 0)),
    ((_ALL, slice(-4, None)), (_ALL, -1)),
)


def demosaic(out: Array, mosaic: Array, pattern: str, alpha: int) -> bool:
    """Demosaic a frame whose first pixels have the colours of a pattern, such as ``"RGGB"``."""
    cv2 = opencv()
    if cv2 is None or min(mosaic.shape) < 4:
        return False
    code = getattr(cv2, f"COLOR_Bayer{pattern}2{'RGB' if out.shape[2] == 3 else 'RGBA'}")
    _put(out, cv2.cvtColor(mosaic, code, dst=out))
    # OpenCV copies the outermost rows and columns from their neighbours, so these are computed with the frame
    # mirrored beyond them: two rows or columns more, which keeps the pattern.
    for near, edge in _EDGES:
        wide = cv2.copyMakeBorder(np.ascontiguousarray(mosaic[near]), 2, 2, 2, 2, cv2.BORDER_REFLECT_101)
        out[edge] = cv2.cvtColor(wide, code)[2:-2, 2:-2][edge]
    if out.shape[2] == 4 and alpha != np.iinfo(out.dtype).max:
        out[..., 3] = alpha
    return True
