"""Arrays of every layout: sliced, turned, broadcast, empty, without dimensions; and when two are one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.limits import examples

Array = np.ndarray[Any, Any]

many = settings(
    max_examples=examples(400), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

few = settings(many, max_examples=examples(100))

NUMBERS = tuple(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array that counts, at an address from which JAX takes one without a copy."""
    count = int(np.prod(shape, dtype=int))
    memory = np.zeros(count * dtype.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + count * dtype.itemsize].view(dtype)
    array[:] = (np.arange(count) % 2 == 0) if dtype.kind == "b" else np.arange(count) % 100
    return array.reshape(shape)


@st.composite
def arrays(
    draw: st.DrawFn,
    dtypes: tuple[Any, ...] = NUMBERS,
    negative: bool = True,
    compact: bool = False,
    read_only: bool = True,
    dimensions: int = 5,
) -> Array:
    """An array of up to five dimensions, of 0 to 4 each.

    Parameters
    ----------
    negative
        Whether there are strides less than 0.
    compact
        Whether it is a block of memory without gaps, at most turned.
    read_only
        Whether it may be one that must not be written to.
    """
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=dimensions)))
    dtype = draw(st.sampled_from(dtypes))
    if compact:
        array = aligned(shape, dtype)
    else:
        steps = [draw(st.sampled_from([1, 1, 2, 3, -1, -2] if negative else [1, 1, 2, 3])) for _ in shape]
        starts = [draw(st.integers(0, 2)) for _ in shape]
        sizes = [first + extent * abs(step) for first, extent, step in zip(starts, shape, steps, strict=True)]
        part = aligned(tuple(sizes), dtype)[(*(slice(first, None) for first in starts), ...)]
        array = part[(*(slice(None, None, step) for step in steps), ...)]
        assert array.shape == shape
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    if not compact and array.ndim and draw(st.booleans()):
        # One axis becomes a broadcast of its first element.
        axis = draw(st.integers(0, array.ndim - 1))
        if array.shape[axis]:
            strides = tuple(0 if n == axis else stride for n, stride in enumerate(array.strides))
            array = np.lib.stride_tricks.as_strided(array, array.shape, strides)
    if read_only and draw(st.booleans()):
        array.flags.writeable = False
    return array


def steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that mean something: an axis of one element has none, and nothing that is empty has."""
    if 0 in shape:
        return ()
    return tuple(stride for extent, stride in zip(shape, strides, strict=True) if extent > 1)


def check_described(tensor: Any, array: Array) -> None:
    """A tensor says of an array what it is."""
    assert tensor.shape == array.shape
    assert steps(tensor.shape, tensor.strides) == steps(array.shape, array.strides)
    assert tensor.dtype == array.dtype
    assert (tensor.ndim, tensor.size) == (array.ndim, array.size)
    assert (tensor.itemsize, tensor.nbytes) == (array.itemsize, array.nbytes)
    assert tensor.is_contiguous() == array.flags.c_contiguous
    assert tensor.is_readonly == (not array.flags.writeable)
    if array.size:
        assert tensor.data == array.ctypes.data


def check_same(got: Array, array: Array, *, read_only: bool = True) -> None:
    """Two arrays are the same memory, seen in the same way."""
    assert got.shape == array.shape
    assert steps(got.shape, got.strides) == steps(array.shape, array.strides)
    assert got.dtype == array.dtype
    assert np.array_equal(got, array)
    if array.size:  # what is empty has no memory to be the same
        assert got.ctypes.data == array.ctypes.data
    if read_only and array.size:
        assert got.flags.writeable == array.flags.writeable
