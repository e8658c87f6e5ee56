"""Kernels that NumPy has not in one function, or where it raises an error when it computes.

They are functions of NumPy's arrays, and have the names that they show in traces.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays.compute import compute


def pow(x1: Any, x2: Any) -> Any:
    """Raise to a power; a negative one of integers, which NumPy refuses, counts as 0."""
    if isinstance(x2, np.ndarray) and x2.dtype.kind == "i" and np.result_type(x1, x2).kind in "iu":
        x2 = np.maximum(x2, 0)
    return np.power(x1, x2)


def floor_divide(x1: Any, x2: Any) -> Any:
    """Divide and round down; of an infinite number, and by one, as the standard and CuPy do and NumPy does not."""
    found = np.floor_divide(x1, x2)
    if found.dtype.kind != "f":
        return found
    return np.where(np.isinf(x1) | np.isinf(x2), np.true_divide(x1, x2), found)


def expm1(x: Any) -> Any:
    """Return exp(x) - 1; NumPy's is NaN for a complex number with an infinite part, where the standard's is not."""
    return np.where(np.isfinite(x), np.expm1(x), np.exp(x) - 1)


def sign(x: Any) -> Any:
    """Return the sign; of a complex number with NaN in it that is NaN, and NumPy's may be a number."""
    found = np.sign(x)
    return np.where(np.isnan(x), np.nan * x, found) if found.dtype.kind == "c" else found


def clip(x: Any, minimum: Any, maximum: Any) -> Any:
    """Limit to a range, in the type of the elements; NaN as a limit makes the result NaN."""
    out = x
    if minimum is not None:
        out = np.where((x < minimum) | (minimum != minimum), minimum, out)
    if maximum is not None:
        out = np.where((out > maximum) | (maximum != maximum), maximum, out)
    return np.asarray(out).astype(x.dtype)


def mean(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the mean, without NumPy's warning for no elements."""
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype if x.dtype.kind in "fc" else np.float64)
    return np.true_divide(total, _count(x, axis))


def variance(
    x: Any, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float = 0.0
) -> Any:
    """Return the variance, without NumPy's warning for too few elements."""
    apart = np.abs(x - mean(x, axis=axis, keepdims=True))
    total = np.sum(apart * apart, axis=axis, keepdims=keepdims)
    return np.true_divide(total, max(_count(x, axis) - correction - ddof, 0))


def deviation(
    x: Any, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float = 0.0
) -> Any:
    """Return the standard deviation."""
    return np.sqrt(variance(x, axis, correction=correction + ddof, keepdims=keepdims))


def _count(x: Any, axis: Any) -> int:
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(x.shape[one] for one in axes)


def sort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Sort."""
    found = np.sort(x, axis=axis, stable=stable)
    return np.flip(found, axis=axis) if descending else found


def argsort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Return the indices that sort; equal elements keep their order if they are descending, too."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    found = np.argsort(np.flip(x, axis=axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - np.flip(found, axis=axis)


def searchsorted(x1: Any, x2: Any, /, *, side: Any = "left", sorter: Any = None) -> Any:
    """Return where elements belong in an array that another one sorts, if one is given."""
    ordered = x1 if sorter is None else np.take(x1, sorter, mode="wrap")
    return np.searchsorted(ordered, x2, side=side)


def take(x: Any, indices: Any, *, axis: int | None) -> Any:
    """Take elements; an index out of bounds counts modulo the extent."""
    return np.take(x, np.asarray(indices).astype(np.int64), axis=axis, mode="wrap")


def take_along_axis(x: Any, indices: Any, *, axis: int) -> Any:
    """Take elements by indices along an axis, likewise."""
    return np.take_along_axis(x, indices.astype(np.int64) % max(x.shape[axis], 1), axis=axis)


def unique_values(x: Any, /) -> Any:
    """Return the different elements in order, which NumPy's function of that name does not keep."""
    return np.unique(x, equal_nan=False)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """Return pseudo-inverses of matrices, with the limit of the standard and not NumPy's."""
    return np.linalg.pinv(x, rtol=rtol)


def matmul(x1: Any, x2: Any, /, out: Any = None) -> Any:
    """Return the product of matrices, which replaces the elements of `out`, if that is given."""
    one, two = x1._view, x2._view
    columns = two.shape[-1] if two.ndim > 1 else 1
    return compute(np.matmul, x1, x2, operations=2.0 * one.size * columns, out=out)
