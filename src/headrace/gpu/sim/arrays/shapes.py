"""Functions that rearrange elements. Those that need no copy return a view, at once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays import work
from headrace.gpu.sim.arrays.compute import Stored, compute, new

_Arrays = tuple[Any, ...] | list[Any]


def _view(function: Callable[..., Any], x: Any, *args: Any, **options: Any) -> Any:
    if not isinstance(x, Stored):
        raise TypeError(
            f"{function.__name__} takes an array of headrace.gpu.arrays(), not {type(x).__name__}"
        )
    view = function(x._view, *args, **options)
    # Of an array without dimensions, NumPy may return the element.
    return x._on(view if isinstance(view, np.ndarray) else x._view, x._memory)


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Any:
    """Return a view of another shape, which repeats elements and cannot be written to."""
    return _view(np.broadcast_to, x, shape)


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """Return views of one shape."""
    shape = np.broadcast_shapes(*(one.shape for one in arrays))
    return [broadcast_to(one, shape) for one in arrays]


def expand_dims(x: Any, /, axis: int = 0) -> Any:
    """Return a view with another dimension, of the extent 1."""
    return _view(np.expand_dims, x, axis)


def squeeze(x: Any, /, axis: int | tuple[int, ...] | None = None) -> Any:
    """Return a view without dimensions of the extent 1."""
    return _view(np.squeeze, x, axis)


def flip(x: Any, /, axis: int | tuple[int, ...] | None = None) -> Any:
    """Return a view in the opposite order."""
    return _view(np.flip, x, axis)


def moveaxis(x: Any, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Any:
    """Return a view with dimensions in other places."""
    return _view(np.moveaxis, x, source, destination)


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    """Return a view with the dimensions in another order."""
    return _view(np.permute_dims, x, axes)


def matrix_transpose(x: Any, /) -> Any:
    """Return a view with the last two dimensions exchanged."""
    return _view(np.matrix_transpose, x)


def unstack(x: Any, /, axis: int = 0) -> tuple[Any, ...]:
    """Return a view of each part along an axis."""
    moved = moveaxis(x, axis, 0)
    return tuple(moved[number] for number in range(moved.shape[0]))


def reshape(x: Any, /, shape: int | tuple[int, ...], *, copy: bool | None = None) -> Any:
    """Return the elements in another shape: a view, unless that needs a copy or one is asked for."""
    if not copy:
        try:
            return _view(np.reshape, x, shape, copy=False)
        except ValueError:
            if copy is False:
                raise
    return compute(np.reshape, x, shape if isinstance(shape, int) else tuple(shape))


def concat(arrays: _Arrays, /, axis: int | None = 0) -> Any:
    """Return arrays joined along an axis."""
    return compute(np.concat, list(arrays), axis=axis)


def stack(arrays: _Arrays, /, axis: int = 0) -> Any:
    """Return arrays joined along a new axis."""
    return compute(np.stack, list(arrays), axis=axis)


def roll(x: Any, /, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Any:
    """Return the elements moved along an axis; those that leave at the end come in at the beginning."""
    return compute(np.roll, x, shift, axis=axis)


def tile(x: Any, repetitions: int | tuple[int, ...], /) -> Any:
    """Return an array of copies of an array."""
    return compute(np.tile, x, repetitions if isinstance(repetitions, int) else tuple(repetitions))


def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> Any:
    """Return each element several times; if an array tells how often, the host waits for the stream."""
    if not isinstance(repeats, Stored):
        return compute(np.repeat, x, operator.index(repeats), axis=axis)
    counts = work.to_host(repeats._view).astype(np.int64)
    shape = np.repeat(np.broadcast_to(np.ones((), np.bool_), x.shape), counts, axis=axis).shape
    result, source = new(shape, x.dtype), x._view
    target = result._view
    work.run("repeat", lambda: np.copyto(target, np.repeat(source, counts, axis)), [source], [target])
    return result
