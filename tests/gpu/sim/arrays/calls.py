"""Random calls of every function of the Array API standard: what a test gives to two modules, to compare them.

Arguments are described with NumPy's arrays. Half of the arrays are views with other strides, of an array that the
call then makes on the device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import array_api_strict as strict
import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
REAL_FLOATS = ["float32", "float64"]
FLOATS = [*REAL_FLOATS, "complex64", "complex128"]
DTYPES = ["bool", *INTEGERS, *FLOATS]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@dataclass(frozen=True)
class Operand:
    """An array, and how a view of it is made.

    Attributes
    ----------
    base
        The values of the array.
    axes, key
        The dimensions and the index of the view.
    """

    base: Any
    axes: tuple[int, ...]
    key: tuple[Any, ...]

    def on(self, xp: Any) -> Any:
        """Return the array in a module."""
        made = xp.asarray(self.base.copy())
        return xp.permute_dims(made, self.axes)[self.key]

    @property
    def values(self) -> Any:
        return np.transpose(self.base, self.axes)[self.key]


@cache
def elements(dtype: str, special: bool) -> st.SearchStrategy[Any]:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        return st.integers(0 if kind == "u" else -9, 9)
    width = 32 if dtype in ("float32", "complex64") else 64
    real = st.floats(-9, 9, width=width).map(lambda value: 0.0 if abs(value) < 1e-6 else value)
    if kind == "f":
        return st.one_of(real, st.sampled_from([np.inf, -np.inf, np.nan, -0.0])) if special else real
    return st.builds(complex, real, real)


def operand(draw: Draw, dtype: str, shape: tuple[int, ...], special: bool = False) -> Operand:
    """Draw an array of a type and a shape."""
    axes, steps = draw(_views(len(shape)))
    key = [slice(None, None, step) for step in steps]
    large = [2 * extent if step == 2 else extent for extent, step in zip(shape, steps, strict=True)]
    inverse = np.argsort(axes)
    stored = tuple(large[place] for place in inverse) if shape else ()
    return Operand(draw(_arrays(dtype, stored, special)), axes, tuple(key) or (...,))


# Strategies are kept: to make one takes longer than to draw from it.


@cache
def _views(dimensions: int) -> st.SearchStrategy[tuple[tuple[int, ...], tuple[int, ...]]]:
    places = st.permutations(range(dimensions)).map(tuple) if dimensions else st.just(())
    return st.tuples(
        st.one_of(st.just(tuple(range(dimensions))), places),
        st.tuples(*[st.sampled_from([1, 1, 1, 2, -1])] * dimensions),
    )


@cache
def _arrays(dtype: str, shape: tuple[int, ...], special: bool) -> st.SearchStrategy[Any]:
    return hnp.arrays(dtype, shape, elements=elements(dtype, special))


@cache
def together(count: int, **limits: int) -> st.SearchStrategy[Any]:
    """Return the strategy for shapes that can be broadcast together."""
    return hnp.mutually_broadcastable_shapes(num_shapes=count, **limits)


def like(value: Any, xp: Any) -> Any:
    """Return an argument for a module."""
    if isinstance(value, Operand):
        return value.on(xp)
    if isinstance(value, list):
        return [like(one, xp) for one in value]
    if isinstance(value, tuple) and any(isinstance(one, Operand) for one in value):
        return tuple(like(one, xp) for one in value)
    if isinstance(value, np.dtype):
        return getattr(xp, value.name)
    return value


def find(xp: Any, name: str) -> Any:
    """Return a function of a module or of its extensions."""
    for part in name.split("."):
        xp = getattr(xp, part)
    return xp


@cache
def accepted(name: str, count: int) -> list[tuple[str, ...]]:
    """Return the types of arguments that the standard defines for a function of elements."""
    combinations = [(one,) for one in DTYPES] if count == 1 else [(a, b) for a in DTYPES for b in DTYPES]
    found = []
    for dtypes in combinations:
        try:
            find(strict, name)(*(strict.ones((1,), dtype=getattr(strict, dtype)) for dtype in dtypes))
        except TypeError:
            continue
        found.append(dtypes)
    return found


# How the arguments of each function are drawn.

Call = tuple[tuple[Any, ...], dict[str, Any]]
CALLS: dict[str, Callable[[Draw], Call]] = {}


def of(*names: str) -> Callable[[Callable[[Draw, str], Call]], Callable[[Draw, str], Call]]:
    def register(draws: Callable[[Draw, str], Call]) -> Callable[[Draw, str], Call]:
        for name in names:
            CALLS[name] = lambda draw, name=name: draws(draw, name)  # type: ignore[misc]
        return draws

    return register


_MOSTLY = st.sampled_from([False, True, True, True])


def some(draw: Draw, **options: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Draw most of the options."""
    return {name: draw(values) for name, values in options.items() if draw(_MOSTLY)}


@cache
def axis_of(shape: tuple[int, ...]) -> st.SearchStrategy[int]:
    return st.integers(-len(shape), len(shape) - 1)


@cache
def axes_of(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    chosen = [st.none()]
    if shape:
        unique = st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True)
        chosen += [axis_of(shape), unique.map(tuple)]
    return st.one_of(*chosen)


@cache
def with_dimensions(least: int = 1, empty: bool = True) -> st.SearchStrategy[Any]:
    return hnp.array_shapes(min_dims=least, max_dims=3, min_side=0 if empty else 1, max_side=4)


def _elementwise(count: int) -> list[str]:
    """Return the functions of elements with so many arguments."""
    found = {name: getattr(strict, name) for name in strict.__all__}
    mine = {name: one for name, one in found.items() if "_elementwise" in getattr(one, "__module__", "")}
    return [name for name, one in mine.items() if len(inspect.signature(one).parameters) == count]


ONE, TWO = _elementwise(1), _elementwise(2)


@of(*ONE)
def one(draw: Draw, name: str) -> Call:
    (dtype,) = draw(st.sampled_from(accepted(name, 1)))
    return (operand(draw, dtype, draw(SHAPES), special=True),), {}


@of(*TWO)
def two(draw: Draw, name: str) -> Call:
    dtypes = draw(st.sampled_from(accepted(name, 2)))
    shapes = draw(together(2, max_dims=3, max_side=4, min_side=0)).input_shapes
    is_special = name not in ("pow", "floor_divide", "remainder")
    args = [operand(draw, dtype, shape, is_special) for dtype, shape in zip(dtypes, shapes, strict=True)]
    if dtypes[0][-2:] != "64" and "int" in dtypes[0] and ("shift" in name or name == "pow"):
        args[1] = operand(draw, dtypes[1], shapes[1])
        args[1].base[...] = np.abs(args[1].base) % 3
    if "shift" in name or (name == "pow" and "int" in dtypes[1]):
        args[1].base[...] = np.abs(args[1].base.astype(np.int64)) % 3
    if dtypes[0] == dtypes[1] and draw(st.integers(0, 3)) == 0:  # a number of Python in the place of one
        number = args[1].base.ravel()[:1].tolist()
        if number and dtypes[0] != "uint64":
            place = draw(st.integers(0, 1)) if name != "pow" and "shift" not in name else 1
            args[place] = number[0]
    return tuple(args), {}


@of("clip")
def clip(draw: Draw, name: str) -> Call:
    dtype = draw(st.sampled_from([*INTEGERS, *REAL_FLOATS]))
    shapes = draw(together(3, max_dims=2, max_side=3)).input_shapes
    x = operand(draw, dtype, shapes[0], special=True)
    limits: list[Any] = []
    for least, shape in ((0, shapes[1]), (5, shapes[2])):
        limit = operand(draw, dtype, shape)
        limit.base[...] = least + np.abs(limit.base.astype(np.float64)) % 4
        limits.append(draw(st.sampled_from([None, least + 1, limit])))
    return (x, *limits), {}


@of("where")
def where(draw: Draw, name: str) -> Call:
    shapes = draw(together(3, max_dims=2, max_side=3)).input_shapes
    dtypes = draw(st.sampled_from(accepted("equal", 2)))
    return (
        operand(draw, "bool", shapes[0]),
        operand(draw, dtypes[0], shapes[1]),
        operand(draw, dtypes[1], shapes[2]),
    ), {}


@of("all", "any", "count_nonzero")
def of_truth(draw: Draw, name: str) -> Call:
    shape = draw(SHAPES)
    x = operand(draw, draw(st.sampled_from(DTYPES)), shape)
    return (x,), some(draw, axis=axes_of(shape), keepdims=st.booleans())


@of("max", "min", "argmax", "argmin")
def extremes(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions(0, empty=False))
    x = operand(draw, draw(st.sampled_from([*INTEGERS, *REAL_FLOATS])), shape)
    axis = axes_of(shape) if name[0] == "m" else st.one_of(st.none(), axis_of(shape)) if shape else st.none()
    return (x,), some(draw, axis=axis, keepdims=st.booleans())


@of("sum", "prod")
def totals(draw: Draw, name: str) -> Call:
    shape, dtype = draw(SHAPES), draw(st.sampled_from(DTYPES[1:]))
    wide = {"f": "float64", "c": "complex128"}.get(np.dtype(dtype).kind, "int64")
    dtypes = st.sampled_from([None, np.dtype(wide)])
    return (operand(draw, dtype, shape),), some(
        draw, axis=axes_of(shape), keepdims=st.booleans(), dtype=dtypes
    )


@of("mean", "std", "var")
def moments(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions(0, empty=False))
    x = operand(draw, draw(st.sampled_from(REAL_FLOATS)), shape)
    options = some(draw, axis=axes_of(shape), keepdims=st.booleans())
    if name != "mean":
        options |= some(draw, correction=st.sampled_from([0, 1, 0.5]))
    return (x,), options


@of("cumulative_sum", "cumulative_prod")
def running(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions())
    x = operand(draw, draw(st.sampled_from(DTYPES[1:])), shape)
    options = {} if len(shape) == 1 and draw(st.booleans()) else {"axis": draw(axis_of(shape))}
    return (x,), options | some(draw, include_initial=st.booleans())


@of("diff")
def diff(draw: Draw, name: str) -> Call:
    shape, dtype = draw(with_dimensions(empty=False)), draw(st.sampled_from(DTYPES[1:]))
    axis = draw(axis_of(shape))
    part = tuple(1 if place == axis % len(shape) else extent for place, extent in enumerate(shape))
    options = {end: operand(draw, dtype, part) for end in ("prepend", "append") if draw(st.booleans())}
    return (operand(draw, dtype, shape),), {"axis": axis, **options, **some(draw, n=st.integers(0, 2))}


@of("nonzero")
def nonzero(draw: Draw, name: str) -> Call:
    return (operand(draw, draw(st.sampled_from(DTYPES)), draw(with_dimensions())),), {}


@of("unique_all", "unique_counts", "unique_inverse", "unique_values")
def unique(draw: Draw, name: str) -> Call:
    return (operand(draw, draw(st.sampled_from(DTYPES)), draw(SHAPES)),), {}


@of("searchsorted")
def searchsorted(draw: Draw, name: str) -> Call:
    dtype = draw(st.sampled_from([*INTEGERS, *REAL_FLOATS]))
    x = operand(draw, dtype, draw(hnp.array_shapes(max_dims=1)))
    wanted = operand(draw, dtype, draw(SHAPES))
    wanted.base.flat[:1] = x.values[:1]  # one that is there
    options = some(draw, side=st.sampled_from(["left", "right"]))
    if draw(st.booleans()):
        order = np.argsort(x.values)
        return (x, wanted), options | {"sorter": Operand(order, (0,), (...,))}
    return (Operand(np.sort(x.values), (0,), (...,)), wanted), options


@of("sort", "argsort")
def sort(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions())
    x = operand(draw, draw(st.sampled_from([*INTEGERS, *REAL_FLOATS])), shape)
    return (x,), some(draw, axis=axis_of(shape), descending=st.booleans())


@of("take", "take_along_axis")
def take(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions(empty=False))
    axis = draw(axis_of(shape))
    extent, kind = shape[axis], draw(st.sampled_from(["int64", "uint8", "int32"]))
    if name == "take":
        indices = draw(
            hnp.arrays(kind, draw(hnp.array_shapes(max_dims=1)), elements=st.integers(0, extent - 1))
        )
    else:
        wanted = list(shape)
        wanted[axis] = draw(st.integers(1, 4))
        indices = draw(hnp.arrays(kind, tuple(wanted), elements=st.integers(0, extent - 1)))
    index = Operand(indices, tuple(range(indices.ndim)), (...,))
    return (operand(draw, draw(st.sampled_from(DTYPES)), shape), index), {"axis": axis}


# Shapes.


@of("broadcast_to")
def broadcast_to(draw: Draw, name: str) -> Call:
    found = draw(together(1, max_dims=3))
    return (operand(draw, draw(st.sampled_from(DTYPES)), found.input_shapes[0]), found.result_shape), {}


@of("broadcast_arrays")
def broadcast_arrays(draw: Draw, name: str) -> Call:
    shapes = draw(together(3, max_dims=3)).input_shapes
    return tuple(operand(draw, draw(st.sampled_from(DTYPES)), shape) for shape in shapes), {}


@of("concat", "stack")
def join(draw: Draw, name: str) -> Call:
    shape, dtype = draw(with_dimensions()), draw(st.sampled_from(DTYPES))
    count = draw(st.integers(1, 3))
    others = [one for one, other in accepted("equal", 2) if other == dtype]
    axis = draw(axis_of(shape))
    parts = []
    for _ in range(count):
        extents = list(shape)
        if name == "concat":
            extents[axis] = draw(st.integers(0, 3))
        parts.append(operand(draw, draw(st.sampled_from(others)), tuple(extents)))
    return (parts,), {"axis": axis}


@of("expand_dims", "squeeze")
def one_extent(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions())
    axis = draw(axis_of(shape))
    if name == "squeeze":
        shape = tuple(1 if place == axis % len(shape) else extent for place, extent in enumerate(shape))
    return (operand(draw, draw(st.sampled_from(DTYPES)), shape),), {"axis": axis}


@of("flip", "roll")
def move(draw: Draw, name: str) -> Call:
    shape = draw(SHAPES)
    x, axis = operand(draw, draw(st.sampled_from(DTYPES)), shape), draw(axes_of(shape))
    if name == "flip":
        return (x,), {"axis": axis}
    shift: Any = draw(st.integers(-5, 5))
    if isinstance(axis, tuple):
        shift = tuple(draw(st.integers(-5, 5)) for _ in axis)
    return (x, shift), {"axis": axis}


@of("moveaxis")
def moveaxis(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions())
    return (operand(draw, "int64", shape), draw(axis_of(shape)), draw(axis_of(shape))), {}


@of("permute_dims")
def permute_dims(draw: Draw, name: str) -> Call:
    shape = draw(SHAPES)
    return (operand(draw, "float32", shape), tuple(draw(st.permutations(range(len(shape)))))), {}


@of("reshape")
def reshape(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions(empty=False))
    shapes = [(-1,), (1, *shape), (*shape[::-1], 1), (shape[0], -1)]
    return (operand(draw, draw(st.sampled_from(DTYPES)), shape), draw(st.sampled_from(shapes))), {}


@of("repeat")
def repeat(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions())
    axis = draw(axis_of(shape))
    counts: Any = draw(st.integers(0, 3))
    if draw(st.booleans()):
        values = draw(hnp.arrays("int64", shape[axis], elements=st.integers(0, 3)))
        counts = Operand(values, (0,), (...,))
    return (operand(draw, draw(st.sampled_from(DTYPES)), shape), counts), {"axis": axis}


@of("tile")
def tile(draw: Draw, name: str) -> Call:
    times = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    return (operand(draw, draw(st.sampled_from(DTYPES)), draw(SHAPES)), times), {}


@of("unstack")
def unstack(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions())
    return (operand(draw, draw(st.sampled_from(DTYPES)), shape),), {"axis": draw(axis_of(shape))}


@of("meshgrid")
def meshgrid(draw: Draw, name: str) -> Call:
    dtype = draw(st.sampled_from(DTYPES[1:]))
    arrays = [operand(draw, dtype, (draw(st.integers(1, 4)),)) for _ in range(draw(st.integers(1, 3)))]
    return tuple(arrays), some(draw, indexing=st.sampled_from(["xy", "ij"]))


@of("tril", "triu")
def triangle(draw: Draw, name: str) -> Call:
    x = operand(draw, draw(st.sampled_from(DTYPES)), draw(with_dimensions(2)))
    return (x,), some(draw, k=st.integers(-3, 3))


@of("astype")
def astype(draw: Draw, name: str) -> Call:
    dtype, other = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(DTYPES))
    x = operand(draw, dtype, draw(SHAPES))
    if other.startswith("uint"):
        x.base[...] = np.abs(x.base)
    return (x, np.dtype(other)), some(draw, copy=st.booleans())


@of("asarray")
def asarray(draw: Draw, name: str) -> Call:
    x = operand(draw, draw(st.sampled_from(DTYPES)), draw(SHAPES))
    return (draw(st.sampled_from([x, x.values.tolist()])),), some(draw, copy=st.just(True))


# Creation.


@of("arange")
def arange(draw: Draw, name: str) -> Call:
    numbers = st.one_of(st.integers(-9, 9), st.sampled_from([-1.5, 0.0, 2.5]))
    args = draw(st.lists(numbers, min_size=1, max_size=2))
    steps = [draw(st.sampled_from([1, 2, -1, 0.5]))] if len(args) == 2 else []
    return (*args, *steps), some(draw, dtype=st.just(np.dtype("float32")))


@of("linspace")
def linspace(draw: Draw, name: str) -> Call:
    args = draw(st.integers(-9, 9)), draw(st.floats(-9, 9)), draw(st.integers(1, 9))
    return args, some(draw, endpoint=st.booleans(), dtype=st.just(np.dtype("float32")))


@of("eye")
def eye(draw: Draw, name: str) -> Call:
    dtypes = st.sampled_from(DTYPES).map(np.dtype)
    return (draw(st.integers(0, 4)), draw(st.sampled_from([None, 3]))), some(
        draw, k=st.integers(-2, 2), dtype=dtypes
    )


@of("zeros", "ones", "full")
def filled(draw: Draw, name: str) -> Call:
    value = [draw(st.sampled_from([True, 3, 2.5, 1 + 2j]))] if name == "full" else []
    options = {} if value else some(draw, dtype=st.sampled_from(DTYPES).map(np.dtype))
    return (draw(st.one_of(SHAPES, st.integers(0, 4))), *value), options


@of("zeros_like", "ones_like", "full_like")
def filled_like(draw: Draw, name: str) -> Call:
    x = operand(draw, draw(st.sampled_from(DTYPES[1:])), draw(SHAPES))
    return (x, *([3] if name == "full_like" else [])), some(draw, dtype=st.just(np.dtype("float64")))


# Linear algebra.


def square(draw: Draw, dtype: str, definite: bool = False) -> Operand:
    """Draw a stack of matrices that can be inverted."""
    size, stack = draw(st.integers(1, 3)), draw(st.sampled_from([(), (2,)]))
    values = draw(hnp.arrays(dtype, (*stack, size, size), elements=st.integers(-3, 3)))
    values = (values @ np.swapaxes(values, -1, -2) if definite else values) + 12 * np.eye(size)
    return Operand(values.astype(dtype), tuple(range(values.ndim)), (...,))


@of("matmul", "linalg.matmul")
def matmul(draw: Draw, name: str) -> Call:
    dtypes = draw(st.sampled_from(accepted("multiply", 2)))
    rows, inner, columns = (draw(st.integers(1, 4)) for _ in range(3))
    stack = draw(st.sampled_from([(), (2,)]))
    one = draw(st.sampled_from([(inner,), (rows, inner), (*stack, rows, inner)]))
    two = draw(st.sampled_from([(inner,), (inner, columns), (*stack, inner, columns)]))
    return (operand(draw, dtypes[0], one), operand(draw, dtypes[1], two)), {}


@of("vecdot", "linalg.vecdot", "linalg.cross")
def vectors(draw: Draw, name: str) -> Call:
    dtype = draw(st.sampled_from(FLOATS))
    shape = (*draw(SHAPES)[:2], 3)
    return (operand(draw, dtype, shape), operand(draw, dtype, shape)), some(draw, axis=st.just(-1))


@of("tensordot", "linalg.tensordot")
def tensordot(draw: Draw, name: str) -> Call:
    one, two = operand(draw, "float64", (2, 3, 4)), operand(draw, "float64", (3, 4, 2))
    axes = draw(st.sampled_from([0, ((1, 2), (0, 1)), ((0,), (2,)), ([1], [0])]))
    return (one, two), {"axes": axes}


@of("matrix_transpose", "linalg.matrix_transpose", "linalg.diagonal", "linalg.trace")
def matrices(draw: Draw, name: str) -> Call:
    x = operand(draw, draw(st.sampled_from(FLOATS)), draw(with_dimensions(2, empty=False)))
    return (x,), {} if name.endswith("transpose") else some(draw, offset=st.integers(-1, 1))


@of("linalg.outer")
def outer(draw: Draw, name: str) -> Call:
    dtype = draw(st.sampled_from(FLOATS))
    return tuple(operand(draw, dtype, (draw(st.integers(0, 4)),)) for _ in range(2)), {}


@of("linalg.det", "linalg.inv", "linalg.slogdet", "linalg.svdvals", "linalg.matrix_rank", "linalg.pinv")
def invertible(draw: Draw, name: str) -> Call:
    return (square(draw, draw(st.sampled_from(REAL_FLOATS))),), {}


@of("linalg.cholesky", "linalg.eigvalsh")
def definite(draw: Draw, name: str) -> Call:
    options = some(draw, upper=st.booleans()) if name == "linalg.cholesky" else {}
    return (square(draw, draw(st.sampled_from(REAL_FLOATS)), definite=True),), options


@of("linalg.matrix_power", "linalg.matrix_norm")
def powers(draw: Draw, name: str) -> Call:
    x = square(draw, draw(st.sampled_from(REAL_FLOATS)))
    if name == "linalg.matrix_power":
        return (x, draw(st.integers(-2, 3))), {}
    return (x,), some(draw, ord=st.sampled_from(["fro", "nuc", 1, -1, 2, np.inf]), keepdims=st.booleans())


@of("linalg.vector_norm")
def vector_norm(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions(empty=False))
    x = operand(draw, draw(st.sampled_from(FLOATS)), shape)
    return (x,), some(
        draw, axis=axes_of(shape), ord=st.sampled_from([1, 2, np.inf, 0, 3]), keepdims=st.booleans()
    )


@of("linalg.solve")
def solve(draw: Draw, name: str) -> Call:
    x = square(draw, "float64")
    shape = x.base.shape
    return (x, operand(draw, "float64", draw(st.sampled_from([shape, (*shape[:-1], 2), shape[-1:]])))), {}


# Transforms.


@of(*(f"fft.{name}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")))
def transform(draw: Draw, name: str) -> Call:
    shape = draw(with_dimensions(empty=False))
    dtypes = REAL_FLOATS if name in ("fft.rfft", "fft.ihfft") else ["complex64", "complex128"]
    norms = st.sampled_from(["backward", "ortho", "forward"])
    x = operand(draw, draw(st.sampled_from(dtypes)), shape)
    return (x,), {"n": draw(st.integers(2, 6)), "axis": draw(axis_of(shape)), **some(draw, norm=norms)}


@of(*(f"fft.{name}" for name in ("fftn", "ifftn", "rfftn", "irfftn")))
def transforms(draw: Draw, name: str) -> Call:
    dtypes = REAL_FLOATS if name == "fft.rfftn" else ["complex64", "complex128"]
    x = operand(draw, draw(st.sampled_from(dtypes)), (3, 4, 2))
    axes = draw(st.sampled_from([None, (0, 1), [1, 2]]))
    return (x,), {} if axes is None else {"axes": axes} | some(draw, s=st.just((4, 3)))


@of("fft.fftfreq", "fft.rfftfreq")
def frequencies(draw: Draw, name: str) -> Call:
    return (draw(st.integers(1, 9)),), some(draw, d=st.sampled_from([0.5, 2.0]))


@of("fft.fftshift", "fft.ifftshift")
def shifted(draw: Draw, name: str) -> Call:
    return (operand(draw, draw(st.sampled_from(FLOATS)), (3, 4)),), some(
        draw, axes=st.sampled_from([0, (0, 1)])
    )


# Indexing.


def index(draw: Draw, shape: tuple[int, ...]) -> Any:
    """Draw an index of any form that the standard has."""
    form = draw(st.sampled_from(["basic", "basic", "mask", "integers"]))
    if form == "mask":
        return operand(draw, "bool", shape)
    if form == "integers" and shape and 0 not in shape:
        wide = draw(together(len(shape), max_dims=2, max_side=3)).input_shapes
        parts = []
        for extent, one in zip(shape, wide, strict=True):
            values = draw(hnp.arrays("int64", one, elements=st.integers(-extent, extent - 1)))
            part = Operand(values, tuple(range(values.ndim)), (...,))
            parts.append(part if one or not draw(st.booleans()) else draw(st.integers(0, extent - 1)))
        return tuple(parts)
    key: list[Any] = []
    for extent in shape:
        slices = st.slices(extent)
        key.append(draw(st.one_of(slices, st.integers(-extent, extent - 1)) if extent else slices))
    left = draw(st.integers(0, len(key)))
    if left < len(key) or draw(st.booleans()):
        key[left:] = [..., *key[draw(st.integers(left, len(key))) :]]
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), None)
    return tuple(key)
