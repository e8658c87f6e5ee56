"""Functions of several elements: statistics, sums along an axis, searching, sorting, sets."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays import kernels
from headrace.gpu.sim.arrays.compute import as_dtype, compute, compute_now, named
from headrace.gpu.sim.arrays.elementwise import _checked

_Axis = int | tuple[int, ...] | None


def _of_axes(function: Any) -> Any:
    def reduce(x: Any, /, axis: _Axis = None, *, keepdims: bool = False) -> Any:
        return compute(function, x, axis=axis, keepdims=keepdims)

    return named(reduce, function.__name__)


all, any, max, min = _of_axes(np.all), _of_axes(np.any), _of_axes(np.max), _of_axes(np.min)
mean, count_nonzero = _of_axes(kernels.mean), _of_axes(np.count_nonzero)
argmax, argmin = _of_axes(np.argmax), _of_axes(np.argmin)


def sum(x: Any, /, axis: _Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """Return the sum."""
    return compute(np.sum, x, axis=axis, dtype=as_dtype(dtype), keepdims=keepdims)


def prod(x: Any, /, axis: _Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    """Return the product."""
    return compute(np.prod, x, axis=axis, dtype=as_dtype(dtype), keepdims=keepdims)


def std(
    x: Any, /, axis: _Axis = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float = 0.0
) -> Any:
    """Return the standard deviation."""
    return compute(kernels.deviation, x, axis=axis, correction=correction + ddof, keepdims=keepdims)


def var(
    x: Any, /, axis: _Axis = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float = 0.0
) -> Any:
    """Return the variance."""
    return compute(kernels.variance, x, axis=axis, correction=correction + ddof, keepdims=keepdims)


def cumulative_sum(
    x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
) -> Any:
    """Return the sums up to each element."""
    options = {"axis": axis, "dtype": as_dtype(dtype), "include_initial": include_initial}
    return compute(np.cumulative_sum, x, **options)


def cumulative_prod(
    x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
) -> Any:
    """Return the products up to each element."""
    options = {"axis": axis, "dtype": as_dtype(dtype), "include_initial": include_initial}
    return compute(np.cumulative_prod, x, **options)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Return the differences between neighbours."""
    ends = {"prepend": prepend, "append": append}
    return compute(np.diff, x, n=n, axis=axis, **{name: end for name, end in ends.items() if end is not None})


# Searching.


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Return where the elements are that are not zero; the host waits for the stream."""
    _checked("nonzero", x)
    if not x.ndim:
        raise ValueError("nonzero takes an array with dimensions")
    return tuple(compute_now(np.nonzero, x))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Return where elements belong in a sorted array."""
    return compute(kernels.searchsorted, x1, x2, sorter, side=side, operations=_of_sorting(x2, x1))


def take(x: Any, indices: Any, /, axis: int | None = None) -> Any:
    """Return elements at indices along an axis; an index out of bounds counts modulo the extent."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"take needs an axis for an array of {x.ndim} dimensions")
    _check_indices("take", indices)
    return compute(kernels.take, x, indices, axis=axis)


def take_along_axis(x: Any, indices: Any, /, axis: int = -1) -> Any:
    """Return elements at the indices for each place; an index out of bounds counts modulo the extent."""
    _check_indices("take_along_axis", indices)
    return compute(kernels.take_along_axis, x, indices, axis=axis)


def _check_indices(function: str, indices: Any) -> None:
    dtype = indices.dtype if hasattr(indices, "dtype") else np.asarray(indices).dtype
    if np.dtype(dtype).kind not in "iu":
        raise TypeError(f"{function} needs indices that are integers, not {dtype}")


# Sorting.

_STEP = 200.0  # operations of a sort for each element and bit of an index: it passes over its memory several times


def _of_sorting(x: Any, among: Any) -> float:
    return np.size(x) * math.log2(np.size(among) + 2)


def sort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Return the elements in order."""
    options: dict[str, Any] = {"axis": axis, "descending": descending, "stable": stable}
    return compute(kernels.sort, x, operations=_STEP * _of_sorting(x, x), **options)


def argsort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Return the indices that put the elements in order."""
    options: dict[str, Any] = {"axis": axis, "descending": descending, "stable": stable}
    return compute(kernels.argsort, x, operations=_STEP * _of_sorting(x, x), **options)


# Sets. The number of different values is a value, so the host waits for the stream.


UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def unique_all(x: Any, /) -> UniqueAll:
    """Return the different elements, where each is first, which each element is, and how many there are."""
    return UniqueAll(*compute_now(_unique, x))


def unique_counts(x: Any, /) -> UniqueCounts:
    """Return the different elements, and how many there are of each."""
    values, _, _, counts = compute_now(_unique, x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Return the different elements, and which of them each element is."""
    values, _, inverse, _ = compute_now(_unique, x)
    return UniqueInverse(values, inverse)


def unique_values(x: Any, /) -> Any:
    """Return the different elements."""
    return compute_now(_unique, x)[0]


def _unique(x: Any) -> tuple[Any, ...]:
    found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    return found[0], found[1], found[2].reshape(x.shape), found[3]
