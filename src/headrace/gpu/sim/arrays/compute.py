"""Computing: a function of NumPy becomes a kernel on arrays in device memory.

The shapes and types of the results are needed when the kernel is launched, long before it runs. NumPy tells them
too: the function is called once with arrays of ones that take no memory, for each combination of shapes, types and
other arguments. What NumPy refuses is so refused at the call. When the kernel runs, NumPy computes from what is in
the memory then.

A result whose shape depends on values (:func:`compute_now`) needs the values: the host waits for the stream, as
CuPy does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from headrace.gpu.sim.arrays import work
from headrace.gpu.sim.arrays.work import View, allocate


class Stored:
    """Elements in device memory.

    Attributes
    ----------
    kind
        The class of the arrays that functions return: the only subclass.
    """

    __slots__ = ("__weakref__", "_memory", "_view")
    kind: ClassVar[type[Any]]
    _view: View  # on the bytes of the device
    _memory: Any  # keeps them

    def __init_subclass__(cls) -> None:
        Stored.kind = cls

    @classmethod
    def _on(cls, view: View, memory: Any) -> Any:
        """Return an array on memory that an object keeps."""
        self = object.__new__(cls)
        self._view, self._memory = view, memory
        return self


class _Shaped:
    """What an array is but for its values, in a key of the cache."""

    __slots__ = ("dtype", "shape")

    def __init__(self, view: View) -> None:
        self.shape, self.dtype = view.shape, view.dtype

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shaped) and (self.shape, self.dtype) == (other.shape, other.dtype)


def as_dtype(dtype: Any) -> Any:
    """Return a type of elements, or None if none is given."""
    return None if dtype is None else np.dtype(dtype)


def _key(value: Any) -> Any:
    """Return an argument for the cache; 1, 1.0 and True give results of different types."""
    if isinstance(value, Stored):
        return _Shaped(value._view)
    if isinstance(value, list | tuple):
        return (type(value), *map(_key, value))
    return (type(value), value)


def _example(key: Any, like: str) -> Any:
    """Return an argument of the same shape and type as the one of a key."""
    if not isinstance(key, _Shaped):
        values = (_example(one, like) for one in key[1:])
        return key[0](values) if key[0] in (list, tuple) else key[1]
    if like == "eye" and len(key.shape) >= 2:
        return np.broadcast_to(np.eye(*key.shape[-2:], dtype=key.dtype), key.shape)
    shape = () if like == "element" else key.shape
    return np.broadcast_to(np.ones((), key.dtype), shape)


@lru_cache(maxsize=4096)
def _results(
    function: Callable[..., Any], args: Any, options: Any, like: str
) -> tuple[Callable[[Iterable[Any]], Any] | None, list[tuple[tuple[int, ...], np.dtype[Any]]]]:
    """Return the shapes and types of the results, and what makes a tuple of them if there are several."""
    examples = [_example(key, like) for key in args]
    with np.errstate(all="ignore"):
        found = function(*examples, **{name: _example(key, like) for name, key in options})
    if like == "element":
        shapes = [key.shape for key in args if isinstance(key, _Shaped)]
        return None, [(np.broadcast_shapes(*shapes), np.asarray(found).dtype)]
    if not isinstance(found, tuple | list):
        return None, [(np.shape(found), np.asarray(found).dtype)]
    make = getattr(type(found), "_make", tuple)
    return make, [(np.shape(one), np.asarray(one).dtype) for one in found]


def _plain(value: Any) -> Any:
    """Return an argument with the bytes of the device in the place of arrays."""
    if isinstance(value, Stored):
        return value._view
    return type(value)(map(_plain, value)) if isinstance(value, list | tuple) else value


def compute(
    function: Callable[..., Any],
    *args: Any,
    like: str = "ones",
    operations: float | None = None,
    out: Any = None,
    **options: Any,
) -> Any:
    """Queue a function of NumPy on the current stream; return its results, which are arrays.

    Parameters
    ----------
    function
        The function; not one that is made anew for each call.
    args, options
        Its arguments: arrays, lists of arrays, and values that can be hashed.
    like
        What the function is called with to learn of its results: ``"ones"``; ``"eye"`` for one that inverts
        matrices; ``"element"`` for one that computes each element by itself.
    operations
        How many operations it does; by default one for each element.
    out
        The array whose elements the result replaces, of a function with one.
    """
    keys = tuple(map(_key, args)), tuple((name, _key(value)) for name, value in options.items())
    make, found = _results(function, *keys, like)
    if out is None:
        results = [new(shape, dtype) for shape, dtype in found]
    else:
        _check_holds(out._view, *found[0])
        results = [out]
    targets = [result._view for result in results]
    given = [_plain(value) for value in args]
    named = {name: _plain(value) for name, value in options.items()}

    name = getattr(function, "__name__", "kernel").strip("_")

    def effect() -> None:
        try:
            with np.errstate(all="ignore"):
                found = function(*given, **named)
        except np.linalg.LinAlgError:  # CuPy's kernels raise nothing either
            found = [np.nan] * len(targets)
        for target, one in zip(targets, found if isinstance(found, tuple | list) else [found], strict=True):
            if np.shape(one) not in (target.shape, ()):
                raise ValueError(
                    f"{name}: the shape of its result depends on values, which it does not wait for"
                )
            np.copyto(target, one, casting="unsafe")

    work.run(name, effect, work.views_in([*given, *named.values()]), targets, operations)
    return results[0] if make is None else make(results)


def compute_now(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the results of a function whose shapes depend on values; the host waits for the current stream."""
    given, found = [_plain(one) for one in args], []
    named = {name: _plain(value) for name, value in options.items()}
    name = getattr(function, "__name__", "kernel")
    read = work.views_in([*given, *named.values()])
    work.run(name, lambda: found.append(function(*given, **named)), read, [])
    work.array_stream().sync()
    values = found[0]
    if not isinstance(values, tuple):
        return stored(np.asarray(values))
    return getattr(type(values), "_make", list)(map(stored, values))


def new(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array whose elements are whatever is in its memory."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc":
        raise TypeError(f"an array holds booleans or numbers, not elements of {dtype}")
    memory = allocate(int(np.prod(shape, dtype=object)) * dtype.itemsize)
    return Stored.kind._on(np.ndarray(shape, dtype, memory.__simulated_memory__()), memory)


def stored(values: View) -> Any:
    """Return an array with values that a kernel has found."""
    result = new(values.shape, values.dtype)
    view = result._view
    work.run("write", lambda: np.copyto(view, values), [], [view])
    return result


def elementwise(function: Callable[..., Any], *args: Any, out: Any = None) -> Any:
    """Queue a function that computes each element by itself, of arrays that are broadcast.

    The results replace the elements of `out`, if that is given.
    """
    return compute(function, *args, like="element", out=out)


def _check_holds(view: View, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if shape != view.shape:
        raise ValueError(
            f"an array of shape {view.shape} cannot hold the result, which has the shape {shape}"
        )
    if not np.can_cast(dtype, view.dtype, "same_kind"):
        raise TypeError(f"an array of {view.dtype} cannot hold the result, which is of {dtype}")
