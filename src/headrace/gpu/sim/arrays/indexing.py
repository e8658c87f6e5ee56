"""Indexing: with integers, slices, Ellipsis and None, which gives a view; with arrays, which computes.

As on a GPU, an index out of bounds in an array is no error: it is taken modulo the extent, as by CuPy. A mask tells
how many elements there are only when it has been computed, so reading by one waits for the stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.gpu.sim.arrays import work
from headrace.gpu.sim.arrays.compute import Stored, compute, compute_now, stored

_Template = tuple[Any, ...]


def get_item(array: Stored, key: Any) -> Any:
    """Return elements: a view where that is possible."""
    parts = _parts(key)
    if not _is_advanced(parts):
        view = array._view[parts]
        return array._on(view, array._memory)
    _template(array._view, parts)  # which refuses masks of other shapes
    template, indices = _template(array._view, _without_masks(parts))
    return compute(_take, array, template, *indices)


def set_item(array: Stored, key: Any, value: Any) -> None:
    """Queue an assignment to elements."""
    view, parts = array._view, _parts(key)
    values = value._view if isinstance(value, Stored) else value
    if not isinstance(value, Stored):
        np.empty((), view.dtype)[...] = value  # which refuses a value that it cannot hold
    if not _is_advanced(parts):
        target = view[parts]
        _check(np.shape(values), target.shape)
        work.run("setitem", lambda: _put(target, ..., values), work.views_in([values]), [target])
        return
    is_masked = np.ndim(values) == 0  # one value for all, however many they are
    template, indices = _template(view, parts)
    if not is_masked:
        template, indices = _template(view, _without_masks(parts))
        example = np.broadcast_to(np.ones((), view.dtype), view.shape)
        ones = [np.broadcast_to(np.ones((), one._view.dtype), one._view.shape) for one in indices]
        _check(np.shape(values), _take(example, template, *ones).shape)
    given = [one._view for one in indices]
    work.run(
        "setitem",
        lambda: _put(view, _built(template, given), values),
        work.views_in([values, *given]),
        [view],
    )


def _check(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(given, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"values of shape {given} cannot be assigned to elements of shape {shape}")


def _put(target: Any, key: Any, values: Any) -> None:
    with np.errstate(all="ignore"):
        target[key] = values


def _parts(key: Any) -> tuple[Any, ...]:
    """Return the parts of an index; Ellipsis is the last one if none is, so that one element is a view, too."""
    parts = key if isinstance(key, tuple) else (key,)
    if not any(part is Ellipsis for part in parts):
        parts = (*parts, ...)
    return tuple(_stored(part) if isinstance(part, list | np.ndarray) else part for part in parts)


def _stored(part: Any) -> Stored:
    """Return a list or an array of the host as an array; a list without elements has no type of its own."""
    found = np.asarray(part)
    result: Stored = stored(found if found.size or not isinstance(part, list) else found.astype(np.int64))
    return result


def _is_advanced(parts: tuple[Any, ...]) -> bool:
    return any(isinstance(part, Stored | bool | np.bool_) for part in parts)


def _without_masks(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the parts with the indices of its true elements in the place of each mask."""
    found: list[Any] = []
    for part in parts:
        if not isinstance(part, Stored) or part._view.dtype != np.bool_:
            found.append(part)
        elif part._view.ndim:
            found += compute_now(np.nonzero, part)
        else:
            found.append(bool(part))
    return tuple(found)


def _template(view: work.View, parts: tuple[Any, ...]) -> tuple[_Template, list[Stored]]:
    """Return an index as a value that can be hashed, and the arrays in it.

    An array of integers stands in the template as a pair of its number and the extent that it indexes, a mask as
    its number alone.
    """

    def width(part: Any) -> int:
        """Return how many dimensions a part indexes."""
        if part is None or part is Ellipsis or isinstance(part, bool | np.bool_):
            return 0
        return part._view.ndim if isinstance(part, Stored) and part._view.dtype == np.bool_ else 1

    template: list[Any] = []
    indices: list[Stored] = []
    dimension = 0
    left = view.ndim - sum(map(width, parts))
    if left < 0:
        raise IndexError(f"too many indices for an array of {view.ndim} dimensions: {-left} more than those")
    for part in parts:
        if isinstance(part, Stored):
            dtype, extent = part._view.dtype, view.shape[dimension : dimension + width(part)]
            is_mask, given = dtype == np.bool_, part._view.shape
            if is_mask and any(one not in (own, 0) for one, own in zip(given, extent, strict=True)):
                raise IndexError(f"a mask of shape {given} does not fit to extents of {extent}")
            if dtype.kind not in "biu":
                raise IndexError(f"an index is an integer or a boolean, not {dtype}")
            template.append(("mask", len(indices)) if is_mask else ("at", len(indices), extent[0]))
            indices.append(part)
        elif isinstance(part, slice):
            template.append(("slice", part.start, part.stop, part.step))
        else:
            template.append(part)
        dimension += left if part is Ellipsis else width(part)
    return tuple(template), indices


def _built(template: _Template, indices: list[Any]) -> tuple[Any, ...]:
    """Return the index of a template."""
    key: list[Any] = []
    for part in template:
        if not isinstance(part, tuple):
            key.append(part)
        elif part[0] == "slice":
            key.append(slice(*part[1:]))
        elif part[0] == "mask":
            key.append(indices[part[1]])
        else:
            index = indices[part[1]].astype(np.int64)
            key.append(index % part[2] if part[2] else index)
    return tuple(key)


def _take(view: Any, template: _Template, *indices: Any) -> Any:
    return view[_built(template, list(indices))]
