"""CuPy's names beside the standard's: NumPy's further functions, random numbers, and methods of arrays.

A function of NumPy is here if the shapes of its results do not depend on values, or is one of those that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays import creation, elementwise, reductions, shapes
from headrace.gpu.sim.arrays.array import Array
from headrace.gpu.sim.arrays.compute import compute, compute_now, stored

_VIEWS = """
array_split atleast_1d atleast_2d atleast_3d fliplr flipud hsplit rollaxis rot90 split swapaxes transpose vsplit
"""
_QUEUED = """
allclose angle append argpartition array_equal ascontiguousarray average block column_stack convolve copy
corrcoef correlate cov cumprod cumsum diag digitize dot dstack ediff1d einsum geomspace gradient hamming hanning
histogram hstack identity inner interp isclose isin ix_ kron lexsort logspace median nan_to_num nanargmax
nanargmin nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar outer
pad partition percentile polyval ptp quantile select sinc trapezoid tri tril_indices triu_indices unravel_index
unwrap vander vstack
"""
_DRAWN = "choice integers normal permutation poisson rand randint randn random standard_normal uniform"
_OF_TYPES = "complexfloating dtype floating inexact integer issubdtype ndim number shape size"
_WAITING = "argwhere bincount flatnonzero intersect1d setdiff1d union1d unique"


def _view(function: Any) -> Callable[..., Any]:
    def view(x: Any, /, *args: Any, **options: Any) -> Any:
        found = function(x._view, *args, **options)
        results = [x._on(one, x._memory) for one in (found if isinstance(found, list) else [found])]
        return results if isinstance(found, list) else results[0]

    return view


def _queued(function: Any) -> Callable[..., Any]:
    return lambda *args, **options: compute(function, *args, **options)


def _waiting(function: Any) -> Callable[..., Any]:
    return lambda *args, **options: compute_now(function, *args, **options)


def array(obj: Any, dtype: Any = None, *, copy: bool = True) -> Any:
    """Return an array of numbers, of an array on the device, or of one on the host: a copy by default."""
    return creation.asarray(obj, dtype, copy=True if copy and isinstance(obj, Array) else None)


def ravel(x: Any, /) -> Any:
    """Return the elements in one dimension: a view, unless that needs a copy."""
    return shapes.reshape(x, (-1,))


def functions(known: dict[str, Any]) -> dict[str, Any]:
    """Return the functions and types by NumPy's names, for a module that has the standard's functions."""
    by_identity = {id(getattr(np, name, name)): value for name, value in known.items()}
    found: dict[str, Any] = {"array": array, "ravel": ravel, "random": random}
    found |= {name: getattr(np, name) for name in _OF_TYPES.split()}
    for name, value in vars(np).items():
        if id(value) in by_identity:
            found[name] = by_identity[id(value)]
        elif isinstance(value, np.ufunc) and value.nin <= 2 and value.nout == 1 and value.signature is None:
            found[name] = elementwise.of_elements(value, name)
    for names, make in ((_VIEWS, _view), (_QUEUED, _queued), (_WAITING, _waiting)):
        found |= {name: make(getattr(np, name)) for name in names.split()}
    return {**found, "amax": reductions.max, "amin": reductions.min, **known}


def _of_random(source: Any) -> SimpleNamespace:
    """Return the functions of a generator of NumPy; kernels write what they return."""

    def drawn(function: Any) -> Callable[..., Any]:
        return lambda *args, **options: stored(np.asarray(function(*args, **options)))

    found = {name: drawn(getattr(source, name)) for name in _DRAWN.split() if hasattr(source, name)}
    return SimpleNamespace(**found)


_source = np.random.RandomState()
random = _of_random(_source)
random.seed, random.default_rng = _source.seed, lambda seed=None: _of_random(np.random.default_rng(seed))


# The methods of arrays.


def _of_tuple(function: Any) -> Callable[..., Any]:
    """Return a method that takes a tuple, or its numbers."""

    def method(self: Any, *numbers: Any) -> Any:
        given = numbers[0] if len(numbers) == 1 and not isinstance(numbers[0], int) else numbers
        return function(self, given or None)

    return method


def _sort(self: Any, axis: int = -1) -> None:
    self[...] = reductions.sort(self, axis)


def _astype(self: Any, dtype: Any, copy: bool = True) -> Any:
    return creation.asarray(self, dtype, copy=copy or None)


def add_methods(known: dict[str, Any]) -> None:
    """Add the methods of CuPy's arrays, for a module that has functions of these names."""
    names = """
    all any argmax argmin argsort clip conj cumprod cumsum diagonal dot max mean min nonzero prod ptp ravel repeat
    round searchsorted squeeze std sum swapaxes take trace var
    """
    methods = {name: known[name] for name in names.split()}
    methods |= {name: _of_tuple(known[name]) for name in ("reshape", "transpose")}
    methods |= {"astype": _astype, "sort": _sort, "copy": lambda self: creation.asarray(self, copy=True)}
    methods["flatten"] = lambda self: creation.asarray(ravel(self), copy=True)
    methods["fill"] = lambda self, value: self.__setitem__(..., value)
    methods["item"] = lambda self, *at: self.get().item(*at)
    methods["__reduce__"] = lambda self: (creation.asarray, (self.get(),))
    methods["tolist"] = lambda self: self.get().tolist()
    methods["__format__"] = lambda self, form: format(self.get()[()], form)
    for name, method in methods.items():
        setattr(Array, name, method)
    Array.real, Array.imag = property(elementwise.real), property(elementwise.imag)  # type: ignore[attr-defined]
