"""The functions on arrays: the standard's and, beside them, CuPy's; random numbers, and methods of arrays.

NumPy has nearly all of them by the same names and with the same parameters, so tables name them. Those that are
written out have other parameters or checks than NumPy's. A function of NumPy is here if the shapes of its results
do not depend on values, or if it waits for these.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays import creation, kernels, work
from headrace.gpu.sim.arrays.array import Array
from headrace.gpu.sim.arrays.compute import Stored, compute, compute_now, elementwise, new, stored

_Function = Callable[..., Any]
_Tuple = int | tuple[int, ...]


def _named(function: _Function, name: str, like: Any = None) -> _Function:
    """Return a function of the module, with a name, and with the parameters of one of NumPy's."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Compute the function ``{name}``, as NumPy does."
    if like is not None:
        function.__wrapped__ = like  # type: ignore[attr-defined]
    return function


# Functions of each element by itself.

_OF_ELEMENTS = """
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or
bitwise_right_shift bitwise_xor ceil conj copysign cos cosh divide equal exp expm1 floor floor_divide
greater greater_equal hypot imag isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp
logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal
positive pow real reciprocal remainder sign signbit sin sinh sqrt square subtract tan tanh trunc
"""


def _checked(name: str, *args: Any) -> None:
    for one in args:
        if not isinstance(one, Stored | bool | int | float | complex | np.generic):
            raise TypeError(
                f"{name} takes arrays of headrace.gpu.arrays() and numbers, not {type(one).__name__}: "
                "asarray copies an array of the host to the device"
            )
    if not any(isinstance(one, Stored) for one in args):
        raise TypeError(f"{name} takes at least one array")


def _of_elements(function: _Function, name: str) -> _Function:
    """Return the function for one of NumPy's or a kernel, of each element by itself."""
    if (getattr(function, "nin", None) or len(inspect.signature(function).parameters)) == 1:

        def compute(x: Any, /, *, out: Any = None) -> Any:
            _checked(name, x)
            return elementwise(function, x, out=out)

    else:

        def compute(x1: Any, x2: Any, /, *, out: Any = None) -> Any:  # type: ignore[misc]
            _checked(name, x1, x2)
            return elementwise(function, x1, x2, out=out)

    return _named(compute, name)


def round(x: Any, /, decimals: int = 0, *, out: Any = None) -> Any:
    """Round to so many decimals, halves to even."""
    _checked("round", x)
    return elementwise(np.round, x, decimals, out=out)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Limit each element to a range; the result is of the type of `x`."""
    _checked("clip", x, *(limit for limit in (min, max) if limit is not None))
    return elementwise(kernels.clip, x, min, max)


def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Any:
    """Choose each element from one of two arrays; without these, return where the condition is true."""
    if x1 is None and x2 is None:
        return tuple(compute_now(np.nonzero, condition))
    _checked("where", condition, x1, x2)
    return elementwise(np.where, condition, x1, x2)


# Functions that need no copy, and return views at once.

_VIEWS = """
array_split atleast_1d atleast_2d atleast_3d broadcast_to fliplr flip flipud hsplit matrix_transpose moveaxis
permute_dims rollaxis rot90 split squeeze swapaxes transpose vsplit
"""


def _view(function: Any) -> _Function:
    def view(x: Any, /, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Stored):
            raise TypeError(
                f"{function.__name__} takes an array of headrace.gpu.arrays(), not {type(x).__name__}"
            )
        found = function(x._view, *args, **options)
        if isinstance(found, list | tuple):
            return type(found)(x._on(one, x._memory) for one in found)
        # Of an array without dimensions, NumPy may return the element.
        return x._on(found if isinstance(found, np.ndarray) else x._view, x._memory)

    return _named(view, function.__name__, function)


_broadcast_to, _expand_dims, _moveaxis, _reshape = map(
    _view, (np.broadcast_to, np.expand_dims, np.moveaxis, np.reshape)
)


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """Return views of one shape."""
    shape = np.broadcast_shapes(*(one.shape for one in arrays))
    return [_broadcast_to(one, shape) for one in arrays]


def expand_dims(x: Any, /, axis: int = 0) -> Any:
    """Return a view with another dimension, of the extent 1."""
    return _expand_dims(x, axis)


def unstack(x: Any, /, axis: int = 0) -> tuple[Any, ...]:
    """Return a view of each part along an axis."""
    return tuple(_moveaxis(x, axis, 0))


def reshape(x: Any, /, shape: _Tuple, *, copy: bool | None = None) -> Any:
    """Return the elements in another shape: a view, unless that needs a copy or one is asked for."""
    if not copy:
        try:
            return _reshape(x, shape, copy=False)
        except ValueError:
            if copy is False:
                raise
    return compute(np.reshape, x, shape)


def ravel(x: Any, /) -> Any:
    """Return the elements in one dimension: a view, unless that needs a copy."""
    return reshape(x, (-1,))


# Functions that are queued.

_QUEUED = """
all allclose angle any append argmax argmin argpartition array_equal ascontiguousarray average block column_stack
concat convolve copy corrcoef correlate count_nonzero cov cumprod cumsum cumulative_prod cumulative_sum diag
digitize dot dstack ediff1d einsum geomspace gradient hamming hanning histogram hstack identity inner interp
isclose isin ix_ kron lexsort logspace max median min nan_to_num nanargmax nanargmin nancumsum nanmax
nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar outer pad partition percentile
polyval prod ptp quantile roll select sinc stack sum tile trapezoid tri tril tril_indices triu triu_indices
unravel_index unwrap vander vstack
"""
_WAITING = """
argwhere bincount flatnonzero intersect1d setdiff1d union1d unique unique_all unique_counts unique_inverse
"""


def _queued(function: Any, operations: Callable[..., float] | None = None, like: str = "ones") -> _Function:
    """Return a function that queues one of NumPy's or a kernel; `operations` tells their number."""

    def queue(*args: Any, **options: Any) -> Any:
        number = None if operations is None else operations(*args)
        return compute(function, *args, operations=number, like=like, **options)

    return _named(queue, function.__name__, function)


def _waiting(function: Any) -> _Function:
    return _named(
        lambda *args, **options: compute_now(function, *args, **options), function.__name__, function
    )


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Return the coordinates of a grid."""
    return list(compute(np.meshgrid, *arrays, indexing=indexing))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a type is of a kind, or of one of several."""
    return bool(np.isdtype(np.dtype(dtype), kind))


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Return where the elements are that are not zero; the host waits for the stream."""
    _checked("nonzero", x)
    if not x.ndim:
        raise ValueError("nonzero takes an array with dimensions")
    return tuple(compute_now(np.nonzero, x))


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Return the differences between neighbours."""
    ends = {"prepend": prepend, "append": append}
    return compute(np.diff, x, n=n, axis=axis, **{name: end for name, end in ends.items() if end is not None})


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


def array(obj: Any, dtype: Any = None, *, copy: bool = True) -> Any:
    """Return an array of numbers, of an array on the device, or of one on the host: a copy by default."""
    return creation.asarray(obj, dtype, copy=True if copy and isinstance(obj, Array) else None)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the products of vectors; those of the first array are conjugated."""
    return compute(np.vecdot, x1, x2, axis=axis)


def _of_searching(x1: Any, x2: Any, *_: Any) -> float:
    return float(np.size(x2)) * math.log2(np.size(x1) + 2)


def _of_sorting(x: Any, *_: Any) -> float:
    return 200.0 * _of_searching(x, x)  # a sort passes over its memory several times


def _of_products(x1: Any, x2: Any, *_: Any) -> float:
    return 2.0 * float(x1.size) * math.sqrt(max(x2.size, 1))


def _of_factors(x: Any, *_: Any) -> float:
    """Return a few operations for each element and row."""
    return 4.0 * float(x.size) * (min(x.shape[-2:]) if x.ndim > 1 else 1)


def _of_transforms(x: Any, *_: Any) -> float:
    return 5.0 * float(x.size) * math.log2(x.size + 2)


_KERNELS = {
    **{name: _queued(getattr(kernels, name), _of_sorting) for name in ("argsort", "sort")},
    "searchsorted": _queued(kernels.searchsorted, _of_searching),
    "mean": _queued(kernels.mean),
    "std": _queued(kernels.deviation),
    "var": _queued(kernels.variance),
    "unique_values": _waiting(kernels.unique_values),
}

# The standard's extensions. A factorization that fails gives NaN, as CuPy's does by default.

_PRODUCTS: dict[str, _Function] = {
    **{name: _queued(getattr(np.linalg, name)) for name in ("cross", "trace")},
    "tensordot": _queued(np.tensordot, _of_products),
    "matmul": kernels.matmul,
    "vecdot": vecdot,
    "diagonal": _view(np.linalg.diagonal),
}
_FACTORS = """
cholesky det eigh eigvalsh inv matrix_norm matrix_power matrix_rank norm qr slogdet solve svd svdvals
"""
linalg = SimpleNamespace(
    **_PRODUCTS,
    **{name: _queued(getattr(np.linalg, name), _of_factors, "eye") for name in _FACTORS.split()},
    **{name: _queued(getattr(np.linalg, name)) for name in ("outer", "vector_norm")},
    matrix_transpose=_view(np.matrix_transpose),
    pinv=_queued(kernels.pinv, _of_factors, "eye"),
)


def _along_axes(function: Any) -> _Function:
    def transform(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        if s is not None and axes is None:
            axes = tuple(range(-len(s), 0))
        return compute(function, x, s=s, axes=axes, norm=norm, operations=_of_transforms(x))

    return _named(transform, function.__name__)


def _frequencies(function: Any) -> _Function:
    def frequencies(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
        with work.on_device(device):
            found = compute(function, n, d)
            return found if dtype in (None, found.dtype) else compute(np.astype, found, np.dtype(dtype))

    return _named(frequencies, function.__name__)


_TRANSFORMS = "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2"
fft = SimpleNamespace(
    **{name: _queued(getattr(np.fft, name), _of_transforms) for name in _TRANSFORMS.split()},
    **{name: _along_axes(getattr(np.fft, name)) for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    **{name: _frequencies(getattr(np.fft, name)) for name in ("fftfreq", "rfftfreq")},
    **{name: _queued(getattr(np.fft, name)) for name in ("fftshift", "ifftshift")},
)

# Random numbers: kernels write what a generator of NumPy returns.

_DRAWN = "choice integers normal permutation poisson rand randint randn random standard_normal uniform"


def _of_random(source: Any) -> SimpleNamespace:
    def drawn(function: Any) -> _Function:
        return lambda *args, **options: stored(np.asarray(function(*args, **options)))

    found = {name: drawn(getattr(source, name)) for name in _DRAWN.split() if hasattr(source, name)}
    return SimpleNamespace(**found)


_source = np.random.RandomState()
random = _of_random(_source)
random.seed, random.default_rng = _source.seed, lambda seed=None: _of_random(np.random.default_rng(seed))

# All names.

_OF_TYPES = "complexfloating dtype floating inexact integer issubdtype ndim number shape size"


_WRITTEN: tuple[Any, ...] = (
    *(array, broadcast_arrays, clip, diff, expand_dims, isdtype, meshgrid, nonzero, ravel, repeat, reshape),
    *(round, take, take_along_axis, unstack, where),
)
_METHODS = """
all any argmax argmin argsort clip conj cumprod cumsum diagonal dot max mean min nonzero prod ptp ravel repeat
round searchsorted squeeze std sum swapaxes take trace var
"""


def all_names() -> dict[str, Any]:
    """Return the functions and types of the module, also by NumPy's further names for them."""
    created = [one for one in vars(creation).values() if inspect.isfunction(one)]
    public = [one for one in created if one.__module__ == creation.__name__ and one.__name__[0] != "_"]
    found = {one.__name__: one for one in (*public, *_WRITTEN)}
    for name in _OF_ELEMENTS.split():
        found[name] = _of_elements(getattr(kernels, name, None) or getattr(np, name), name)
    for names, make in ((_VIEWS, _view), (_QUEUED, _queued), (_WAITING, _waiting)):
        found |= {name: make(getattr(np, name)) for name in names.split()}
    found |= _KERNELS | _PRODUCTS | creation.TYPES
    by_identity = {id(getattr(np, name)): value for name, value in found.items() if hasattr(np, name)}
    for name, value in vars(np).items():
        if id(value) in by_identity:
            found.setdefault(name, by_identity[id(value)])
        elif isinstance(value, np.ufunc) and value.nin <= 2 and value.nout == 1 and value.signature is None:
            found.setdefault(name, _of_elements(value, name))
    found |= {name: getattr(np, name) for name in _OF_TYPES.split()}
    return {
        **found,
        "amax": found["max"],
        "amin": found["min"],
        "linalg": linalg,
        "fft": fft,
        "random": random,
    }


def _of_tuple(function: Any) -> _Function:
    """Return a method that takes a tuple, or its numbers."""

    def method(self: Any, *numbers: Any) -> Any:
        given = numbers[0] if len(numbers) == 1 and not isinstance(numbers[0], int) else numbers
        return function(self, given or None)

    return method


def _sort(self: Any, axis: int = -1) -> None:
    self[...] = _KERNELS["sort"](self, axis)


def _astype(self: Any, dtype: Any, copy: bool = True) -> Any:
    return creation.asarray(self, dtype, copy=copy or None)


def add_methods(known: dict[str, Any]) -> None:
    """Add the methods of CuPy's arrays, for a module that has functions of these names."""
    methods = {name: known[name] for name in _METHODS.split()}
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
    Array.real, Array.imag = property(known["real"]), property(known["imag"])  # type: ignore[attr-defined]
