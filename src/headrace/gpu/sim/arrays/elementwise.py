"""Functions of each element by itself. NumPy has most of them by the standard's names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays import kernels
from headrace.gpu.sim.arrays.compute import Stored, compute_now, elementwise, named

_Function = Callable[..., Any]


def _checked(name: str, *args: Any) -> None:
    for one in args:
        if not isinstance(one, Stored | bool | int | float | complex | np.generic):
            raise TypeError(
                f"{name} takes arrays of headrace.gpu.arrays() and numbers, not {type(one).__name__}: "
                "asarray copies an array of the host to the device"
            )
    if not any(isinstance(one, Stored) for one in args):
        raise TypeError(f"{name} takes at least one array")


def of_elements(function: _Function, name: str) -> _Function:
    """Return a function of the module for one of NumPy's or a kernel, of each element by itself."""
    if (getattr(function, "nin", None) or len(inspect.signature(function).parameters)) == 1:

        def compute(x: Any, /, *, out: Any = None) -> Any:
            _checked(name, x)
            return elementwise(function, x, out=out)

    else:

        def compute(x1: Any, x2: Any, /, *, out: Any = None) -> Any:  # type: ignore[misc]
            _checked(name, x1, x2)
            return elementwise(function, x1, x2, out=out)

    return named(compute, name, "function of each element")


_NAMES = """
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or
bitwise_right_shift bitwise_xor ceil conj copysign cos cosh divide equal exp expm1 floor floor_divide
greater greater_equal hypot imag isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp
logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal
positive pow real reciprocal remainder sign signbit sin sinh sqrt square subtract tan tanh trunc
"""
for _name in _NAMES.split():
    globals()[_name] = of_elements(getattr(kernels, _name, None) or getattr(np, _name), _name)


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
