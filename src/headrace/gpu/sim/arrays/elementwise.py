"""Functions of each element by itself. NumPy has most of them by the standard's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays import kernels
from headrace.gpu.sim.arrays.compute import Stored, elementwise

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


def _one(function: _Function, name: str) -> _Function:
    def compute(x: Any, /) -> Any:
        _checked(name, x)
        return elementwise(function, x)

    return _named(compute, name)


def _two(function: _Function, name: str) -> _Function:
    def compute(x1: Any, x2: Any, /) -> Any:
        _checked(name, x1, x2)
        return elementwise(function, x1, x2)

    return _named(compute, name)


def _named(function: _Function, name: str) -> _Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Compute the standard's function ``{name}`` of each element."
    return function


_OF_ONE = (
    *(
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "bitwise_invert",
        "ceil",
        "conj",
        "cos",
        "cosh",
    ),
    *("exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2"),
    *("logical_not", "negative", "positive", "real", "reciprocal", "round", "sign", "signbit", "sin", "sinh"),
    *("sqrt", "square", "tan", "tanh", "trunc"),
)
_OF_TWO = (
    *(
        "add",
        "atan2",
        "bitwise_and",
        "bitwise_left_shift",
        "bitwise_or",
        "bitwise_right_shift",
        "bitwise_xor",
    ),
    *(
        "copysign",
        "divide",
        "equal",
        "floor_divide",
        "greater",
        "greater_equal",
        "hypot",
        "less",
        "less_equal",
    ),
    *("logaddexp", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "nextafter"),
    *("not_equal", "remainder", "subtract"),
)
globals().update({name: _one(getattr(np, name), name) for name in _OF_ONE})
globals().update({name: _two(getattr(np, name), name) for name in _OF_TWO})
pow = _two(kernels.power, "pow")


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Limit each element to a range; the result is of the type of `x`."""
    _checked("clip", x, *(limit for limit in (min, max) if limit is not None))
    return elementwise(kernels.clip, x, min, max)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """Choose each element from one of two arrays."""
    _checked("where", condition, x1, x2)
    return elementwise(np.where, condition, x1, x2)
